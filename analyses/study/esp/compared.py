"""Two-head models held against the construction: how alike, and the matrices that show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from headlab.interp import comparison
from headlab.interp.weights import ov_circuit, qk_circuit, residual_rows
from headlab.models.esp.constructed import construct
from headlab.models.esp.task import EspTask
from headlab.models.hooked import HookedTransformer

Matrices = tuple[Float[np.ndarray, " row"], Float[np.ndarray, "row vertex"]]


@dataclass(frozen=True)
class Likeness:
    """One seed against the construction: cosines of QK, OV and OV in use, agreement of answers."""

    qk: float
    ov: float
    in_use: float
    agreement: float


@dataclass(frozen=True)
class Compared:
    """All seeds against the construction. shown_heads: (qk, ov, in use) of heads A and B of the seed that is shown;
    learned, built: their matrices. chance: medians of untrained models."""

    seeds: Sequence[Likeness]
    shown_heads: Sequence[tuple[float, float, float]]
    learned: Sequence[Matrices]
    built: Sequence[Matrices]
    chance: Mapping[str, float]


def compare_with_construction(
    task: EspTask, models: Sequence[HookedTransformer], untrained: Callable[[int], HookedTransformer]
) -> Compared:
    """Each model against the two-head construction, in token space; the shown seed is the one of median likeness.

    untrained: an untrained model of the same architecture, by seed.
    """
    target = construct(task, "two-head", tied=True).model
    examples = task.examples()
    queries = torch.zeros(len(examples), len(task.positions), dtype=torch.bool)
    queries[:, -1] = True
    likeness = [comparison.compare(model, target, examples.inputs, queries) for model in models]
    seeds = [Likeness(f.qk, f.ov, f.in_use, f.function["agreement"]) for f in likeness]
    shown = sorted(range(len(models)), key=lambda k: seeds[k].in_use)[(len(models) - 1) // 2]
    partner = {match.b[1]: match for match in likeness[shown].heads}

    level = comparison.chance(untrained, target, examples.inputs, queries)
    return Compared(
        seeds=seeds,
        shown_heads=[(partner[h].qk, partner[h].ov, partner[h].in_use) for h in (0, 1)],
        learned=[matrices(models[shown], task, partner[h].a[1]) for h in (0, 1)],
        built=[matrices(target, task, h) for h in (0, 1)],
        chance={name: each.median for name, each in level.items()},
    )


def matrices(model: HookedTransformer, task: EspTask, head: int) -> Matrices:
    """QK strip and OV matrix of one head; rows u, v (a vertex each), then 1, 2, #; columns the vertices."""
    n = task.n
    vertices = torch.arange(n)
    inputs = task.sequences(vertices, vertices, vertices % 2)
    residual = residual_rows(model, inputs)  # [vertex, position, model]
    rows = torch.cat([residual[:, 0], residual[:, 1], residual[:2, 2], residual[:1, 3]])
    qk = qk_circuit(model, 0, rows[-1:], rows)[head, 0]
    ov = ov_circuit(model, 0, rows)[head, :, :n]
    ov = ov - ov.mean(1, keepdim=True)
    ov = ov - ov.mean(0, keepdim=True)
    return (qk - qk.mean()).double().cpu().numpy(), ov.double().cpu().numpy()
