"""Gradient descent on the queries: plain steps, normalised steps, heads in turn, on the population or on samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.models.xor import population
from headlab.models.xor.ensemble import Ensemble

Gradient = Callable[[Ensemble], tuple[Float[Tensor, " seed"], Float[Tensor, "seed head width"]]]
"""An objective: what a step follows, as the loss and its gradient in the queries."""


@dataclass(frozen=True)
class DescentRule:
    """How the queries move.

    plain: theta -= size * gradient. normalised: every head moves by length `size` against its own gradient.
    in-turn: the same for one head a step, head 0 first.
    """

    kind: Literal["plain", "normalised", "in-turn"] = "plain"
    size: float = 1.0


@dataclass(frozen=True)
class Descent:
    """What a descent did.

    final: the models afterwards. steps: row r of the other fields was recorded after steps[r] steps (0 = the start).
    loss: the objective's own loss. queries: kept at every record, so that any instrument can read any step.
    """

    final: Ensemble
    steps: tuple[int, ...]
    loss: Float[Tensor, "record seed"]
    queries: Float[Tensor, "record seed head width"]

    def at(self, record: int) -> Ensemble:
        """The models as they were at one record."""
        return self.final.with_queries(self.queries[record])


def population_objective(models: Ensemble) -> tuple[Float[Tensor, " seed"], Float[Tensor, "seed head width"]]:
    """The exact population loss and gradient."""
    return population.loss_and_gradient(models.queries, models.positions, models.task.targets, models.kind)


def step(
    models: Ensemble, rule: DescentRule, gradient: Float[Tensor, "seed head width"], *, number: int = 0
) -> Float[Tensor, "seed head width"]:
    """The queries after one step; `number` counts steps from 0 and says whose turn it is.

    A head whose gradient is exactly 0 stays where it is. Raises ValueError where the step overflows.
    """
    if rule.kind == "plain":
        moved = models.queries - rule.size * gradient
    else:
        length = gradient.norm(dim=-1, keepdim=True)
        moving = length > 0
        if rule.kind == "in-turn":
            turn = torch.arange(gradient.shape[-2], device=gradient.device) == number % gradient.shape[-2]
            moving = moving & turn[:, None]
        direction = torch.where(moving, gradient / torch.where(length > 0, length, torch.ones_like(length)), 0.0)
        moved = models.queries - rule.size * direction
    limit = torch.finfo(moved.dtype).max / moved.shape[-1]
    if not bool((moved.abs() < limit).all()):  # also false for nan
        raise RequestError(
            f"a step of size {rule.size:g} overflows {str(moved.dtype).removeprefix('torch.')} at step {number}: "
            "take a smaller one"
        )
    return moved


def descend(
    models: Ensemble,
    rule: DescentRule,
    steps: int,
    *,
    objective: Gradient = population_objective,
    record: Callable[[int], bool] = lambda step: True,
) -> Descent:
    """`steps` steps of `rule` down `objective`, recorded where `record(step)`, and always at the start and the end.

    Raises ValueError for a negative number of steps, a step size that is not positive and finite, or where a step or a
    loss overflows: the step is named, and no nan is handed on.
    """
    if steps < 0:
        raise RequestError(f"{steps} steps: the number of steps cannot be negative")
    if not 0 < rule.size < inf:
        raise RequestError(f"step size {rule.size}: it must be positive and finite")
    kept_steps, losses, queries = [], [], []
    for number in range(steps + 1):
        last = number == steps
        keep = number == 0 or last or record(number)
        if last and not keep:
            break
        value, gradient = objective(models)
        if not bool(torch.isfinite(value).all() and torch.isfinite(gradient).all()):
            raise RequestError(f"the loss overflows after {number} steps of size {rule.size:g}: take a smaller step")
        if keep:
            kept_steps.append(number)
            losses.append(value)
            queries.append(models.queries)
        if not last:
            models = models.with_queries(step(models, rule, gradient, number=number))
    return Descent(models, tuple(kept_steps), torch.stack(losses), torch.stack(queries))
