"""Backward and reverse heads of a tree model: which heads they are, what hangs on them, and when they form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from headlab.interp.ablation import Head, ablate_heads
from headlab.interp.assignment import Assignment, assign
from headlab.interp.changepoint import Phase, earlier, phase
from headlab.interp.errors import RequestError
from headlab.interp.model import HookedModel
from headlab.models.tree.task import TreeTask

ENOUGH = 0.9  # share of a role's performance with which one head counts as able to do the role


@dataclass(frozen=True)
class Redundancy:
    """Whether a role hangs on one head. Performance: share of right predictions in the role's stage.

    alone: head of the group -> what the role loses without it alone. left: head -> the role's performance when every
    other head of the group is ablated. able: the heads that are enough by themselves, at 90 % of the baseline.
    """

    role: str
    alone: Mapping[Head, float]
    left: Mapping[Head, float]
    able: tuple[Head, ...]

    @property
    def redundant(self) -> bool:
        """Whether more than one head can do the role by itself."""
        return len(self.able) > 1


@dataclass(frozen=True)
class TreeHeads:
    """What the heads of one model do.

    assignment: usage, roles, and the loss of every role when a role's whole group, or all heads without a role, are
    ablated. path: share of whole paths right. path_lost: group (None: heads without a role) -> share of paths lost.
    """

    assignment: Assignment
    path: float
    path_lost: Mapping[str | None, float]
    redundancy: tuple[Redundancy, ...]

    def group(self, role: str | None) -> tuple[Head, ...]:
        """The heads that play `role`; for None, those that play none."""
        return self.assignment.group(role)

    def left(self, ablated: str | None, role: str) -> float | None:
        """The performance of `role` without the group `ablated`; None where no head is in it."""
        lost = self.assignment.loss.get(ablated)
        return None if lost is None else self.assignment.baseline[role] - lost[role]

    def to_frame(self) -> pd.DataFrame:
        """One row per head: layer, head, role, usage, causal, alone (lost without it), left (with it alone)."""
        frame = self.assignment.to_frame()
        alone = {head: value for each in self.redundancy for head, value in each.alone.items()}
        left = {head: value for each in self.redundancy for head, value in each.left.items()}
        heads = [(int(layer), int(head)) for layer, head in zip(frame["layer"], frame["head"], strict=True)]
        return frame.assign(alone=[alone.get(head) for head in heads], left=[left.get(head) for head in heads])


def detect(model: HookedModel, task: TreeTask, *, seed: int = 0, count: int = 256) -> TreeHeads:
    """Roles by attention beyond chance, then checked by mean ablation of whole groups: redundant heads hide each other.

    A head plays a role where interp.assignment names it: usage of .5 or more in the role's stage, and clearly more of
    that role's movement than of the other's. Reference of the ablation: the same `count` held-out trees. Raises
    ValueError for a task without stages (plain tokens, or no chain of thought).
    """
    roles = task.roles(seed=seed, count=count)
    if not roles:
        raise RequestError("backward and reverse heads need pair tokens and a backward stage: this task has no roles")
    metrics = task.role_metrics(roles)
    assignment = assign(model, roles, metrics, seed=seed)
    examples = task.examples(seed=seed, count=count)
    groups = {name: assignment.group(name) for name in (*(role.name for role in roles), None)}
    present = [name for name, heads in groups.items() if heads]
    path = task.metrics(examples)["path"]
    found = ablate_heads(
        model,
        examples.inputs,
        path,
        kind="mean",
        reference=examples.inputs,
        groups=[groups[name] for name in present],
        name="path",
    )
    lost = {name: float(value) for name, value in zip(present, found.mean, strict=True)}
    redundancy = []
    for role in roles:
        heads = groups[role.name]
        if not heads:
            redundancy.append(Redundancy(role.name, {}, {}, ()))
            continue
        alone = _losses(model, role.inputs, metrics[role.name], [[head] for head in heads])
        rest = [[other for other in heads if other != head] for head in heads]
        base = assignment.baseline[role.name]
        cost = _losses(model, role.inputs, metrics[role.name], rest) if len(heads) > 1 else [0.0]
        left = {head: base - value for head, value in zip(heads, cost, strict=True)}
        able = tuple(head for head, value in left.items() if value >= ENOUGH * base)
        redundancy.append(Redundancy(role.name, dict(zip(heads, alone, strict=True)), left, able))
    return TreeHeads(assignment, float(found.baseline.mean()), lost, tuple(redundancy))


def _losses(model: HookedModel, inputs: Any, metric: Any, groups: Sequence[Sequence[Head]]) -> list[float]:
    found = ablate_heads(model, inputs, metric, kind="mean", reference=inputs, groups=groups, name="role")
    return found.mean.tolist()


@dataclass(frozen=True)
class Formation:
    """When the groups of heads formed, by change point on each curve over ln(step + 1).

    phases: curve -> its passage; curves that were not recorded have none. first: the role whose stage was learned
    first, None where it cannot be told; probability: how sure that is, .5 being no telling. curves: steps and
    values as recorded.
    """

    phases: Mapping[str, Phase]
    first: str | None
    probability: float
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]]

    def span(self, curve: str) -> tuple[float, float]:
        """The steps at which the curve left its level and arrived at the next."""
        found = self.phases[curve]
        return float(np.expm1(found.start.value)), float(np.expm1(found.end.value))


CURVES = ("backward", "reverse", "usage backward", "usage reverse", "specialisation", "path")
SURE = 0.95


def formation(history: Sequence[Mapping[str, Any]], *, by: str = "usage {}") -> Formation:
    """The phases of one seed's training history (a checkpoint's, or a run's `history_of`).

    by: the curve that tells when a group formed, `{}` for its role: what heads attend to, or `{}` alone: what is
    answered. Raises ValueError where the history has none of the curves, or fewer than 3 points.
    """
    steps = np.log1p(np.array([row["step"] for row in history], dtype=float))
    curves = {name: np.array([row[name] for row in history], dtype=float) for name in CURVES if name in history[0]}
    if not curves:
        raise RequestError("the history holds no accuracy by stage: train with headlab.models.tree.runs")
    phases = {name: phase(steps, values) for name, values in curves.items()}
    names = [by.format(role) for role in ("backward", "reverse")]
    first, probability = None, 0.5
    if all(name in phases and phases[name].change > 0.5 for name in names):
        sooner = earlier(phases[names[0]], phases[names[1]])
        probability = max(sooner, 1 - sooner)
        if probability >= SURE:
            first = "backward" if sooner > 0.5 else "reverse"
    return Formation(phases, first, probability, {name: (np.expm1(steps), values) for name, values in curves.items()})
