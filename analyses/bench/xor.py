"""`headlab bench xor`: the exact population gradient beside sampling it, at a stated error of the gradient.

The exact gradient has no sampling error, so "equal" means: the peer draws as many samples as it needs to come within
the stated relative error, found by the law error ~ 1 / sqrt n and checked at that n. The expert has the closed form.
"""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from headlab.analyses.bench import expert_xor as expert
from headlab.analyses.bench.expert import against_expert
from headlab.analyses.study.xor.scale import measure_apart
from headlab.models.xor.descent import population_objective
from headlab.models.xor.ensemble import Ensemble, default_width, draw
from headlab.models.xor.samples import gradients_by_sample_count, sample_objective
from headlab.models.xor.task import XorTask

PILOT = 16_384


@dataclass(frozen=True)
class XorCase:
    """One gradient at the antisymmetric start. error: relative, of the sampled gradient; None for all 2^bits inputs."""

    bits: int
    error: float | None
    quick: bool = True


CASES = (XorCase(12, None), XorCase(64, 0.1), XorCase(64, 0.05, quick=False), XorCase(256, 0.3, quick=False))
SCALE = (100_000, 1_000_000, 96)


def work(models: Ensemble) -> dict[str, int]:
    """Multiplications and additions. Floor: every score once, and every position once into the gradient.

    Ours: that, and the power sums with their derivative, 9 a position for two heads each way.
    """
    heads, bits, width = models.queries.shape[1], models.task.bits, models.width
    floor = 2 * heads * bits * width
    return {"ours": floor + 3 * 3**heads * bits, "floor": floor}


def measure(case: XorCase, pairs: int) -> dict[str, Any]:
    """The record of one case. The first pair is the only one where it takes over 20 s, and the name says so."""
    task = XorTask(case.bits)
    models = draw(task, width=default_width(case.bits), seeds=(0,))
    _, exact = population_objective(models)
    count = None if case.error is None else _samples_for(models, exact, case.error)
    ratios, own, worst = [], [], 0.0
    for pair in range(pairs):
        began = time.process_time()
        if count is None:
            _, relative_error = sample_objective(task.examples().inputs.double()[None])(models)
        else:
            ((_, relative_error),) = gradients_by_sample_count(models, [count], seed=1 + pair)
        theirs = time.process_time() - began
        repeats = 50
        began = time.process_time()
        for _ in range(repeats):
            _, exact = population_objective(models)
        ours = (time.process_time() - began) / repeats
        worst = max(worst, float((relative_error - exact).norm() / exact.norm()))
        ratios.append(theirs / ours)
        own.append(ours)
        if theirs + ours > 20:
            break
    peer = (
        "all 2^12 inputs" if count is None else f"{count} samples, for a gradient within {100 * (case.error or 0):g} %"
    )
    return {
        "case": f"d={case.bits} m={models.width}, two heads, one gradient, float64, {len(ratios)} pair"
        f"{'s' if len(ratios) > 1 else ''}",
        "peer": peer,
        "ratio": {"min": min(ratios), "median": float(np.median(ratios)), "max": max(ratios)},
        "expert": beside_expert(models, pairs, repeats=50),
        "max_difference": worst,
        "work": work(models),
        "seconds": float(np.median(own)),
        "dtype": "float64",
        "peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _samples_for(models: Ensemble, exact: torch.Tensor, error: float) -> int:
    ((_, pilot),) = gradients_by_sample_count(models, [PILOT], seed=0)
    relative_error = float((pilot - exact).norm() / exact.norm())
    return max(1, round(PILOT * (relative_error / error) ** 2))


def beside_expert(models: Ensemble, pairs: int, *, repeats: int) -> dict[str, Any]:
    """One gradient of all seeds beside the same formula in NumPy, to which one seed is given unstacked."""
    queries, positions = models.queries.numpy(), models.positions.numpy()
    if len(models.seeds) == 1:
        queries, positions = queries[0], positions[0]

    def difference(theirs: Any, ours: Any) -> float:
        gradient = ours[1].numpy().reshape(theirs[1].shape)
        return float(np.abs(theirs[1] - gradient).max() / np.abs(gradient).max())

    return against_expert(
        expert.loss_and_gradient,
        lambda: expert.loss_and_gradient(queries, positions, *models.task.targets),
        lambda: population_objective(models),
        difference,
        pairs=pairs,
        repeats=repeats,
    )


def many_at_once(bits: int, width: int, seeds: int, pairs: int, *, repeats: int) -> dict[str, Any]:
    """One gradient of many seeds, or of one at a large size, beside the expert alone."""
    models = draw(XorTask(bits), width=width, seeds=range(seeds))
    found = beside_expert(models, pairs, repeats=repeats)
    return {
        "case": f"d={bits} m={width}, two heads, one gradient of {seeds} seed(s), float64, {pairs} pair(s)",
        "peer": "the closed form in NumPy",
        "ratio": found["ratio"],
        "expert": found,
        "max_difference": found["max_difference"],
        "work": None,
        "seconds": found["seconds"],
        "peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def growth() -> dict[str, Any]:
    """One whole step, model drawn, at d = 10^6 beside d = 10^5, each in a process of its own."""
    small_bits, large_bits, width = SCALE
    small, large = (measure_apart(bits, width, 0) for bits in (small_bits, large_bits))
    seconds = [each.draw_seconds + each.step_seconds for each in (small, large)]
    ratio = seconds[0] / seconds[1]
    return {
        "case": f"d={large_bits} m={width}, one step with its draw, {seconds[1]:.1f} s of one core, "
        f"{seconds[1] / seconds[0]:.1f} times the time of the peer, 1 pair",
        "peer": f"the same at d={small_bits}",
        "ratio": {"min": ratio, "median": ratio, "max": ratio},
        "max_difference": max(small.loss, large.loss),
        "work": None,
        "peak_memory": large.peak_bytes,
    }


def run(quick: bool = False) -> dict[str, Any]:
    """The JSON of `headlab bench xor`; `quick` leaves out the cases whose peer takes long, and d = 10^6."""
    cases = [measure(case, 1 if quick else 5) for case in CASES if case.quick or not quick]
    cases.append(many_at_once(64, default_width(64), 64, 1 if quick else 5, repeats=50))
    if not quick:
        cases.append(many_at_once(SCALE[1], SCALE[2], 1, 5, repeats=1))
        cases.append(many_at_once(SCALE[0] // 10, default_width(64), 64, 5, repeats=1))
        cases.append(growth())
    return {"name": "xor", "threads": torch.get_num_threads(), "cases": cases}
