"""`headlab bench startup`: what `headlab --help` costs beside a bare interpreter."""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import Any

import numpy as np


def _cpu_of(command: list[str]) -> tuple[float, str]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def run(quick: bool = False) -> dict[str, Any]:
    """The JSON of `headlab bench startup`: CPU seconds of a bare interpreter over those of `headlab --help`.

    The output is checked to be the help text. There is no floor to compare with, so `work` is null.
    """
    bare = [sys.executable, "-c", "pass"]
    ours = [sys.executable, "-c", "from headlab.analyses.cli import run; run()", "--help"]
    pairs = 1 if quick else 5
    for command in (bare, ours):
        _cpu_of(command)  # the file cache is warm for both
    ratios, seconds = [], []
    for _ in range(pairs):
        peer, _ = _cpu_of(bare)
        own, shown = _cpu_of(ours)
        if "evaluate" not in shown:
            raise RuntimeError("headlab --help did not print its commands")
        ratios.append(peer / own)
        seconds.append(own)
    case = {
        "case": f"headlab --help, {np.median(seconds):.2f} s of CPU time, {pairs} pair(s)",
        "peer": "bare interpreter",
        "ratio": {"min": min(ratios), "median": float(np.median(ratios)), "max": max(ratios)},
        "max_difference": 0.0,
        "work": None,
        "peak_memory": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
    }
    return {"name": "startup", "threads": 1, "cases": [case]}
