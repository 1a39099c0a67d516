"""A recipe: how a model is trained, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from headlab.interp.errors import RequestError
from headlab.models.losses import loss_function


@dataclass(frozen=True)
class Recipe:
    """How a model is trained, as plain data.

    loss: `cross_entropy`, `gce` (with q) or `mse`. steps: updates at most. clip: largest gradient norm, per seed; None
    for none. weight_decay is decoupled from the gradient. warmup: steps of linear rise of the learning rate; then it is
    constant, or falls by a cosine to `final_fraction` of `lr` at the last step. batch: examples a step, None for all.
    init_scale: standard deviation of the initial weights (models.hooked.initialise). lr_scales: pattern of parameter
    names -> factor on the learning rate, the first that matches. record: how many log-spaced steps the history keeps.
    check: every so many steps the learner is measured (best weights, solved seeds); 0 for recorded steps only.
    stop: end `settle` steps after every seed is solved.
    """

    loss: str = "cross_entropy"
    q: float = 0.7
    steps: int = 300
    lr: float = 1e-2
    optimiser: str = "adam"
    betas: tuple[float, float] = (0.9, 0.99)
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = 1.0
    warmup: int = 20
    schedule: str = "constant"
    final_fraction: float = 0.02
    batch: int | None = None
    init_scale: float | None = None
    lr_scales: Mapping[str, float] = field(default_factory=dict)
    record: int = 40
    check: int = 0
    stop: bool = False
    settle: int = 0

    def __post_init__(self) -> None:
        loss_function(self.loss)
        if self.optimiser not in ("adam", "sgd"):
            raise RequestError(f"unknown optimiser '{self.optimiser}': choose adam or sgd")
        if self.schedule not in ("constant", "cosine"):
            raise RequestError(f"unknown schedule '{self.schedule}': choose constant or cosine")
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise RequestError(f"the learning rate must be above 0, not {self.lr}")
        if self.steps < 0 or self.warmup < 0:
            raise RequestError(f"steps and warmup cannot be negative: {self.steps}, {self.warmup}")
        if not 0 < self.q <= 1:
            raise RequestError(f"q must lie in (0, 1], not {self.q}")

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict from which `from_json` makes an equal recipe."""
        return asdict(self) | {"betas": list(self.betas), "lr_scales": dict(self.lr_scales)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Recipe:
        """The recipe that `to_json` wrote. Raises RequestError for an entry that no recipe has."""
        unknown = set(data) - {entry.name for entry in fields(cls)}
        if unknown:
            raise RequestError(f"a recipe has no '{min(unknown)}'")
        return cls(**{**data, "betas": tuple(data.get("betas", cls.betas))})


def learning_rate(recipe: Recipe, step: int) -> float:
    """The learning rate of update number `step`, counted from 0."""
    if step < recipe.warmup:
        return recipe.lr * (step + 1) / recipe.warmup
    if recipe.schedule == "constant":
        return recipe.lr
    progress = min(1.0, (step - recipe.warmup) / max(1, recipe.steps - 1 - recipe.warmup))
    fall = 0.5 * (1 + math.cos(math.pi * progress))
    return recipe.lr * (recipe.final_fraction + (1 - recipe.final_fraction) * fall)


def recorded_steps(recipe: Recipe) -> list[int]:
    """0, the last step and log-spaced steps between: at most `recipe.record` of them beside 0."""
    last, count = recipe.steps, max(1, recipe.record)
    spaced = {round(last ** (index / max(1, count - 1))) for index in range(count)} if last else set()
    return sorted({0, last} | spaced)
