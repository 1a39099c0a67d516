"""Query-target alignment: how exactly each head's query has found one target, heads matched to targets one to one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from headlab.interp import statistics
from headlab.interp.ablation import Head
from headlab.interp.errors import RequestError
from headlab.interp.model import HookedModel, activations, model_device, untouched, visible_keys
from headlab.interp.movement import batches
from headlab.interp.roles import Role, by_inputs


@dataclass(frozen=True)
class Alignment:
    """How well heads and targets are matched one to one.

    Args:
        alignment: In [0, 1], the mean over TARGETS of the matched entries of `matrix`; a target without a head counts
            0, and heads beyond the targets do not count: a model with 270 heads can reach 1.
        rank: In [0, 1], the same of `ranks`, under the same matching.
        heads: (layer, head) of the rows.
        targets: Names of the columns.
        matrix: Chance-corrected attention of each head to each target.
        ranks: How often that target has the head's largest query-key score, a tie counted in parts.
        matched: Each head's target, or None.
        chance: The alignment with shuffled targets; None where no shuffle was asked for.
    """

    alignment: float
    rank: float
    heads: tuple[Head, ...]
    targets: tuple[str, ...]
    matrix: Float[np.ndarray, "head target"]
    ranks: Float[np.ndarray, "head target"]
    matched: tuple[str | None, ...]
    chance: statistics.Chance | None

    @property
    def left_over(self) -> tuple[Head, ...]:
        """The heads that were matched with no target."""
        return tuple(head for head, target in zip(self.heads, self.matched, strict=True) if target is None)

    def to_frame(self) -> pd.DataFrame:
        """One row per head: layer, head, target, score, rank; score and rank are 0 where it has no target."""
        rows = []
        for index, ((layer, head), target) in enumerate(zip(self.heads, self.matched, strict=True)):
            column = None if target is None else self.targets.index(target)
            rows.append(
                {
                    "layer": layer,
                    "head": head,
                    "target": target,
                    "score": 0.0 if column is None else float(self.matrix[index, column]),
                    "rank": 0.0 if column is None else float(self.ranks[index, column]),
                }
            )
        return pd.DataFrame(rows)


@dataclass(frozen=True)
class Reading:
    """What the heads attend to in the queries of one target.

    Args:
        attention: The heads' weights.
        scores: Their query-key scores; the weights themselves where the model's score hook holds those.
        targets: Which keys are the target.
        visible: Which keys the query can see.
    """

    attention: Float[Tensor, "query head key"]
    scores: Float[Tensor, "query head key"]
    targets: Bool[Tensor, "query key"]
    visible: Bool[Tensor, "query key"]


def align(
    attention: Float[Tensor, "example head key"],
    targets: Bool[Tensor, "example target key"],
    *,
    scores: Float[Tensor, "example head key"] | None = None,
    visible: Bool[Tensor, "example key"] | None = None,
    names: Sequence[str] | None = None,
    heads: Sequence[Head] | None = None,
    shuffles: int = 64,
    seed: int = 0,
) -> Alignment:
    """The alignment of heads with targets, from their attention at one query per example.

    M[h, t] = clip((A_h[t] - 1/d) / (1 - 1/d), 0, 1), the mean over examples of the head's normalised |attention| on
    the target, corrected for the d keys it can see (k/d for a target of k keys). Heads and targets are matched one to
    one for the largest sum (Hungarian method), ties by rank.

    Args:
        attention: Of each head at the one query.
        targets: Which keys are each target.
        scores: Query-key scores before the attention map; by default |attention|.
        visible: Which keys the query can see; by default all.
        names: Of the targets; by default their numbers.
        heads: Their (layer, head); by default those of layer 0.
        shuffles: For the chance level: so often the keys that every query sees are permuted, for all examples alike,
            and the targets with them; 0 leaves it out.
        seed: Of the shuffles.

    Raises:
        RequestError: For shapes that do not fit, or an example without a target.
    """
    examples, width, keys = attention.shape
    if targets.shape[0] != examples or targets.shape[2] != keys:
        raise RequestError(f"targets of shape {tuple(targets.shape)} do not fit attention {tuple(attention.shape)}")
    if scores is not None and scores.shape != attention.shape:
        raise RequestError(f"scores of shape {tuple(scores.shape)} do not fit attention {tuple(attention.shape)}")
    if visible is None:
        visible = torch.ones(examples, keys, dtype=torch.bool, device=attention.device)
    count = targets.shape[1]
    readings = [
        Reading(attention, attention.abs() if scores is None else scores, targets[:, column], visible)
        for column in range(count)
    ]
    return align_readings(
        readings,
        names=tuple(names) if names is not None else tuple(str(column) for column in range(count)),
        heads=tuple(heads) if heads is not None else tuple((0, head) for head in range(width)),
        shuffles=shuffles,
        seed=seed,
    )


def align_roles(
    model: HookedModel, roles: Sequence[Role], *, batch: int | None = None, shuffles: int = 64, seed: int = 0
) -> Alignment:
    """The alignment of all heads of `model` with the targets of `roles`, each role read at its own queries.

    As `align`; the scores are the model's own before softmax.

    Raises:
        RequestError: For no roles, and roles that are never played apart.
    """
    if not roles:
        raise RequestError("alignment needs at least one role")
    readings: dict[str, Reading] = {}
    heads: tuple[Head, ...] = ()
    for group, queries in by_inputs(tuple(roles)):
        parts: list[list[Reading]] = [[] for _ in group]
        for part in batches(model, len(group[0].inputs), group[0].targets.shape[-1], batch):
            masks = [(kept[part], role.targets[part]) for kept, role in zip(queries, group, strict=True)]
            heads, read = _read(model, group[0].inputs[part], masks)
            for collected, reading in zip(parts, read, strict=True):
                collected.append(reading)
        for role, collected in zip(group, parts, strict=True):
            readings[role.name] = Reading(
                *(torch.cat([getattr(each, name) for each in collected]) for name in Reading.__dataclass_fields__)
            )
    names = tuple(role.name for role in roles)
    return align_readings([readings[name] for name in names], names=names, heads=heads, shuffles=shuffles, seed=seed)


def align_readings(
    readings: Sequence[Reading],
    *,
    names: tuple[str, ...],
    heads: tuple[Head, ...],
    shuffles: int = 64,
    seed: int = 0,
) -> Alignment:
    """The alignment from one reading a target; see `align`."""
    normalised = []
    for name, reading in zip(names, readings, strict=True):
        hidden = ~(reading.targets & reading.visible).any(-1)
        if not len(hidden) or hidden.any():
            raise RequestError(f"target '{name}' is not among the keys that query {int(hidden.int().argmax())} can see")
        size = reading.attention.abs().double()
        total = size.sum(-1, keepdim=True)
        normalised.append(size / torch.where(total > 0, total, torch.ones_like(total)))
    matrix = np.stack([_aligned(a, r.targets, r.visible) for a, r in zip(normalised, readings, strict=True)], axis=1)
    ranks = np.stack([_ranked(reading) for reading in readings], axis=1)
    rows, columns = _match(matrix, ranks)
    matched: list[str | None] = [None] * len(heads)
    for row, column in zip(rows, columns, strict=True):
        matched[row] = names[column]
    level = None
    if shuffles:
        shuffled = _shuffled(normalised, readings, shuffles, np.random.default_rng(seed))
        level = statistics.chance([float(m[_match(m, np.zeros_like(m))].sum()) / len(names) for m in shuffled])
    return Alignment(
        alignment=float(matrix[rows, columns].sum()) / len(names),
        rank=float(ranks[rows, columns].sum()) / len(names),
        heads=heads,
        targets=names,
        matrix=matrix,
        ranks=ranks,
        matched=tuple(matched),
        chance=level,
    )


def _match(matrix: np.ndarray, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return linear_sum_assignment(matrix + 1e-9 * ranks, maximize=True)


def _aligned(
    attention: Float[Tensor, "query head key"],
    targets: Bool[Tensor, "query key"],
    visible: Bool[Tensor, "query key"],
) -> Float[np.ndarray, " head"]:
    wanted = targets & visible
    even = (wanted.sum(-1) / visible.sum(-1)).double()
    informative = even < 1
    if not informative.any():
        return np.zeros(attention.shape[1])
    mass = torch.einsum("qhk,qk->qh", attention[informative], wanted[informative].double())
    corrected = (mass - even[informative, None]) / (1 - even[informative, None])
    return corrected.mean(0).clamp(0, 1).cpu().numpy()


def _ranked(reading: Reading) -> Float[np.ndarray, " head"]:
    seen = reading.visible.unsqueeze(1)
    scores = reading.scores.masked_fill(~seen, -torch.inf)
    best = (scores == scores.amax(-1, keepdim=True)) & seen
    hits = (best & reading.targets.unsqueeze(1)).sum(-1).double() / best.sum(-1).clamp(min=1)
    return hits.mean(0).cpu().numpy()


def _shuffled(
    normalised: list[Tensor], readings: Sequence[Reading], shuffles: int, rng: np.random.Generator
) -> list[Float[np.ndarray, "head target"]]:
    shared: dict[int, np.ndarray] = {}
    for reading in readings:
        keys = reading.visible.shape[1]
        shared[keys] = shared.get(keys, np.ones(keys, dtype=bool)) & reading.visible.all(0).cpu().numpy()
    matrices = []
    for _ in range(shuffles):
        moved = {}
        for keys, seen in shared.items():
            order = np.arange(keys)
            order[seen] = rng.permutation(order[seen])
            moved[keys] = torch.from_numpy(order)
        columns = [
            _aligned(attention, reading.targets[:, moved[reading.targets.shape[1]]], reading.visible)
            for attention, reading in zip(normalised, readings, strict=True)
        ]
        matrices.append(np.stack(columns, axis=1))
    return matrices


def _read(
    model: HookedModel, inputs: Tensor, masks: list[tuple[Tensor, Tensor]]
) -> tuple[tuple[Head, ...], list[Reading]]:
    """One batch's readings, the heads of all layers side by side."""
    names = [
        [f"blocks.{layer}.attn.{name}" for layer in range(model.cfg.n_layers)]
        for name in ("hook_attn_scores", "hook_pattern")
    ]
    with untouched(model):
        _, held = activations(model, inputs.to(model_device(model)), [*names[0], *names[1]])
    heads = tuple((layer, head) for layer, name in enumerate(names[1]) for head in range(held[name].shape[1]))
    scores, pattern = (torch.cat([held[name] for name in layers], dim=1).cpu() for layers in names)
    visible = visible_keys(model, scores, pattern).expand_as(pattern)
    readings = []
    for queries, targets in masks:
        if queries.shape[1:] != pattern.shape[2:3] or targets.shape[1:] != pattern.shape[2:]:
            raise RequestError(
                f"queries and targets count {tuple(targets.shape[1:])} positions, "
                f"the model's attention has {tuple(pattern.shape[2:])} (query, key)"
            )
        example, query = queries.cpu().nonzero(as_tuple=True)
        row = scores.expand_as(pattern)[example, :, query]
        seen = visible[example, :, query].any(1)
        readings.append(Reading(pattern[example, :, query], row, targets.cpu()[example, query], seen))
    return heads, readings
