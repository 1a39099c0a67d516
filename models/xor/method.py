"""How the queries of sparse parity are trained, as plain data, and training many seeds by it.

Models are ensembles of queries here, no transformers: `headlab.models.xor.runs` makes those.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headlab.interp.errors import RequestError, UnknownName
from headlab.models.xor.descent import Descent, DescentRule, descend, population_objective
from headlab.models.xor.ensemble import default_kappa, default_width, draw, step_size
from headlab.models.xor.samples import draw_samples, sample_objective
from headlab.models.xor.task import XorTask

METHODS = ("one-step", "plain", "normalised", "in-turn")


@dataclass(frozen=True)
class Method:
    """How the queries are trained, as plain data.

    name: `one-step`, one large population step; `plain`, small ones; `normalised`, steps of one length, all heads at
    once; `in-turn`, the same one head a step. size: kappa, by how much a step first moves a target's score (one-step,
    plain), or the length of a step; None for the method's own. start: as `draw` has it, or `auto`, antisymmetric for
    two heads and independent for others. samples: how many fixed samples, None for the population itself.
    """

    name: str = "one-step"
    size: float | None = None
    steps: int | None = None
    start: str = "auto"
    kind: str = "softmax"
    width: int | None = None
    samples: int | None = None

    def __post_init__(self) -> None:
        if self.name not in METHODS:
            raise UnknownName(f"unknown method '{self.name}': choose one of {', '.join(METHODS)}")
        if self.steps is not None and self.steps < 1:
            raise RequestError(f"{self.steps} steps: take at least 1")
        if self.size is not None and not (0 < self.size < math.inf):
            raise RequestError(f"size {self.size}: it must be positive and finite")
        if self.name == "one-step" and self.steps not in (None, 1):
            raise RequestError(f"one-step takes 1 step, not {self.steps}: use plain for more")

    def plan(self, task: XorTask) -> MethodPlan:
        """The same with every choice made that was left to the method."""
        heads = len(task.targets)
        width = default_width(task.bits) if self.width is None else self.width
        sizes = {"one-step": default_kappa(task, width), "plain": 0.5, "normalised": 0.5, "in-turn": 100.0}
        steps = {"one-step": 1, "plain": 200, "normalised": 150, "in-turn": 4 * heads}
        auto = "antisymmetric" if heads == 2 else "independent"
        return MethodPlan(
            name=self.name,
            size=sizes[self.name] if self.size is None else self.size,
            steps=steps[self.name] if self.steps is None else self.steps,
            start=auto if self.start == "auto" else self.start,
            kind=self.kind,
            width=width,
            samples=self.samples,
        )


@dataclass(frozen=True)
class MethodPlan:
    """A method with every choice made; the fields are those of `Method`."""

    name: str
    size: float
    steps: int
    start: str
    kind: str
    width: int
    samples: int | None

    def rule(self, task: XorTask) -> DescentRule:
        """The rule of descent; kappa becomes a step size."""
        if self.name in ("one-step", "plain"):
            return DescentRule("plain", step_size(task, self.width, self.size))
        return DescentRule("in-turn" if self.name == "in-turn" else "normalised", self.size)


def recorded(step: int) -> bool:
    """Which steps are kept beside the first and the last: powers of two."""
    return step & (step - 1) == 0


def run(task: XorTask, method: Method, seeds: Sequence[int], *, data_seed: int = 0, device: str = "cpu") -> Descent:
    """Train `seeds` together in float64. Errors as for `draw`, `draw_samples` and `descend`."""
    own = method.plan(task)
    models = draw(task, width=own.width, seeds=tuple(seeds), start=own.start, kind=own.kind, device=device)
    objective = population_objective
    if own.samples is not None:
        objective = sample_objective(draw_samples(models, own.samples, seed=data_seed))
    return descend(models, own.rule(task), own.steps, objective=objective, record=recorded)
