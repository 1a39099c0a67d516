"""What the endpoint selection study holds of each model and each way of making one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float

from headlab.models.esp.certificate import Certificate
from headlab.models.hooked import Architecture, HookedTransformer


@dataclass(frozen=True)
class Run:
    """One model on the study's graph.

    errors: of all 2m questions, at the weights kept (fewest errors). step: of those weights. solved: the first step
    without an error, None where there was none. certificate: of one-head models.
    """

    seed: int
    errors: int
    accuracy: float
    step: int
    solved: int | None
    model: HookedTransformer
    directory: Path
    certificate: Certificate | None = None


@dataclass(frozen=True)
class Curves:
    """A method's seeds over training. steps: recorded ones. Accuracy, and specialisation where it was followed."""

    steps: Sequence[int]
    accuracy: Float[np.ndarray, "seed step"]
    endpoint_share: Float[np.ndarray, "seed step"] | None = None
    specialisation: Float[np.ndarray, "seed step"] | None = None


@dataclass(frozen=True)
class Method:
    """One way of making models: its name for a reader, and what it made."""

    key: str
    label: str
    note: str
    heads: int
    runs: tuple[Run, ...]
    curves: Curves | None = None
    constructed: bool = False
    recipe: dict = field(default_factory=dict)
    architecture: Architecture | None = None

    @property
    def best(self) -> Run:
        """The run with the fewest errors, the earlier seed where several have them."""
        return min(self.runs, key=lambda run: (run.errors, run.seed))


def best_one_head(methods: Mapping[str, Method]) -> tuple[Method, Run]:
    """The trained one-head method that found the fewest errors by itself, without the solver, and that run."""
    by_itself = [m for m in methods.values() if m.heads == 1 and not m.constructed and m.key != "solver-guided"]
    method = min(by_itself, key=lambda m: (m.best.errors, m.key))
    return method, method.best
