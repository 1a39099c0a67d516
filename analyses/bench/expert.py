"""A benchmark's second peer: what an expert would write by hand for the one case, timed in turn with ours."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np


def against_expert(
    written: FunctionType,
    expert: Callable[[], Any],
    ours: Callable[[], Any],
    difference: Callable[[Any, Any], float],
    *,
    pairs: int = 5,
    repeats: int = 1,
) -> dict[str, Any]:
    """`expert` of a benchmark's case: lines of `written`, and the expert's CPU time over ours, in pairs.

    Args:
        written: the expert's function, whose lines are counted.
        expert: calls it.
        ours: does the same work.
        difference: of the two results, relative to the largest value.
        pairs: timed pairs, after one that is not counted.
        repeats: calls of each in a pair.

    Returns:
        lines, ratio (min, median, max; above 1 ours is faster), max_difference, and our median seconds a call.
    """
    ratios, own, worst = [], [], difference(expert(), ours())
    for _ in range(pairs):
        times = []
        for make in (expert, ours):
            began = time.process_time()
            for _ in range(repeats):
                made = make()
            times.append((time.process_time() - began) / repeats)
            del made
        ratios.append(times[0] / times[1])
        own.append(times[1])
    return {
        "lines": len(inspect.getsource(written).splitlines()),
        "ratio": {"min": min(ratios), "median": float(np.median(ratios)), "max": max(ratios)},
        "max_difference": worst,
        "seconds": float(np.median(own)),
    }
