"""A million bits on one core: time and peak memory of one step, in a process of its own."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from headlab.analyses.study.frame import Work
from headlab.analyses.study.record import Measured, Table
from headlab.models.xor.descent import DescentRule, population_objective, step
from headlab.models.xor.ensemble import draw, step_size
from headlab.models.xor.task import XorTask


@dataclass(frozen=True)
class Scale:
    """One step at one size. draw_seconds, step_seconds: CPU time of drawing the model, of the gradient and the step.

    peak_bytes: the largest resident size of the process, libraries included.
    """

    bits: int
    width: int
    seed: int
    one_to_one: bool
    loss: float
    draw_seconds: float
    step_seconds: float
    peak_bytes: int


def measure(bits: int, width: int, seed: int) -> Scale:
    """One step in THIS process; its peak memory counts what the process did before."""
    torch.set_num_threads(1)
    task = XorTask(bits, (bits // 3, bits - 1))
    began = time.process_time()
    models = draw(task, width=width, seeds=(seed,))
    drawn = time.process_time()
    _, gradient = population_objective(models)
    after = models.with_queries(step(models, DescentRule("plain", step_size(task, width)), gradient))
    stepped = time.process_time()
    unit = 1 if sys.platform == "darwin" else 1024
    return Scale(
        bits=bits,
        width=width,
        seed=seed,
        one_to_one=bool(after.placement().one_to_one),
        loss=max(0.0, float(after.loss())),
        draw_seconds=drawn - began,
        step_seconds=stepped - drawn,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
    )


def measure_apart(bits: int, width: int, seed: int) -> Scale:
    """The same in a fresh process, whose peak is this work's own. Raises RuntimeError where that process fails."""
    program = [sys.executable, "-m", "headlab.analyses.study.xor.scale", str(bits), str(width), str(seed)]
    done = subprocess.run(program, capture_output=True, text=True, cwd=Path(__file__).parents[3], check=False)
    if done.returncode:
        raise RuntimeError(f"one step at d = {bits} failed in its own process: {done.stderr.strip()[-300:]}")
    return Scale(**json.loads(done.stdout))


def scales(config: Mapping[str, Any], work: Work) -> Measured:
    """One seed at each size of `sizes`, each in a process of its own."""
    rows = [asdict(measure_apart(bits, width, config["seed"])) for bits, width in config["sizes"]]
    units = {"draw_seconds": "CPU seconds", "step_seconds": "CPU seconds", "peak_bytes": "bytes"}
    return {"scale": Table(rows, units | {"loss": "squared error"})}


if __name__ == "__main__":
    print(json.dumps(asdict(measure(*(int(argument) for argument in sys.argv[1:4])))))
