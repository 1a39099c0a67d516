"""Softmax beside linear and erf attention: one step at the best of shared step sizes, and many steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from headlab.analyses.query_alignment import align_ensemble
from headlab.models.attention_maps import ATTENTION_MAPS
from headlab.models.xor.descent import Rule, descend, population_objective, step
from headlab.models.xor.ensemble import draw
from headlab.models.xor.task import XorTask

LEARNED = 0.1  # population loss; 1 is the loss of answering 0


@dataclass(frozen=True)
class MapResult:
    """One attention map from one start. Values per seed, at the step size of the grid that is best for this map.

    once, once_loss: alignment and loss after ONE step, at the size of the largest median alignment. once_best_loss: the
    smallest median loss of any size. many, many_loss: after many steps at the size of the smallest median loss.
    together: the share of seeds with all heads on one target there. solved: the first step with a median loss under
    .1, None where there is none.
    """

    kind: str
    start: str
    once: Float[np.ndarray, " seed"]
    once_loss: Float[np.ndarray, " seed"]
    once_size: float
    once_best_loss: float
    many: Float[np.ndarray, " few"]
    many_loss: Float[np.ndarray, " few"]
    many_size: float
    one_to_one: float
    together: float
    solved: int | None
    steps: Sequence[int]
    traced: Float[np.ndarray, "step few"]


def compare_maps(
    bits: int,
    width: int,
    seeds: Sequence[int],
    *,
    few: int,
    sizes: Sequence[float],
    coarse: Sequence[float],
    steps: int,
    starts: Sequence[str] = ("antisymmetric", "independent"),
    progress: Callable[[], None] = lambda: None,
) -> list[MapResult]:
    """Every map from every start. sizes: the grid of one step; coarse: of many steps, which the first `few` seeds take.

    Step sizes are multiples of the gradient, the same for every map; a size at which the loss overflows is passed over.
    """
    results = []
    for start in starts:
        for kind in ATTENTION_MAPS:
            results.append(_one(XorTask(bits), width, tuple(seeds), few, sizes, coarse, steps, start, kind))
            progress()
    return results


def _alignment(models) -> np.ndarray:
    return np.array([each.alignment for each in align_ensemble(models)])


def _one(
    task: XorTask,
    width: int,
    seeds: tuple[int, ...],
    few: int,
    sizes: Sequence[float],
    coarse: Sequence[float],
    steps: int,
    start: str,
    kind: str,
) -> MapResult:
    models = draw(task, width=width, seeds=seeds, start=start, kind=kind)
    _, gradient = population_objective(models)
    once = []
    for size in sizes:
        after = models.with_queries(step(models, Rule("plain", size), gradient))
        once.append((size, _alignment(after), after.loss().numpy()))
    aligned = max(once, key=lambda row: (np.median(row[1]), -row[0]))
    many = []
    for size in coarse:
        try:
            descent = descend(
                models.select(range(few)), Rule("plain", size), steps, record=lambda number: number & (number - 1) == 0
            )
        except ValueError:  # it overflows: too large a step for this map
            continue
        many.append((float(np.median(descent.final.loss().numpy())), size, descent))
    _, size, best = min(many, key=lambda row: row[:2])
    placed = best.final.placement()
    medians = np.median(best.loss.numpy(), axis=1)
    return MapResult(
        kind=kind,
        start=start,
        once=aligned[1],
        once_loss=aligned[2],
        once_size=aligned[0],
        once_best_loss=float(min(np.median(row[2]) for row in once)),
        many=_alignment(best.final),
        many_loss=best.final.loss().numpy(),
        many_size=size,
        one_to_one=float(placed.one_to_one.double().mean()),
        together=float(placed.together.double().mean()),
        solved=next((number for number, loss in zip(best.steps, medians, strict=True) if loss < LEARNED), None),
        steps=best.steps,
        traced=np.stack([_alignment(best.at(record)) for record in range(len(best.steps))]),
    )
