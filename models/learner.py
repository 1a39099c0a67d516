"""What training trains: one HookedTransformer, or many seeds of one at once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.models.hooked import HookedTransformer

Measures = Mapping[str, Float[Tensor, " seed"]]


@runtime_checkable
class Learner(Protocol):
    """What is trained: one model, or many seeds of one at once.

    stacked: whether every leaf has a leading seed axis. losses(step) draws what it needs and gives one loss per seed;
    measure() may use what `losses` just computed. state/load_state: its generators, as tensors.
    """

    seeds: tuple[int, ...]
    stacked: bool

    def parameters(self) -> dict[str, Tensor]: ...

    def losses(self, step: int) -> Float[Tensor, " seed"]: ...

    def measure(self) -> Measures: ...

    def state(self) -> dict[str, Tensor]: ...

    def load_state(self, state: Mapping[str, Tensor]) -> None: ...

    def export(self, seed_index: int, weights: Mapping[str, Tensor] | None = None) -> HookedTransformer: ...


class ModelLearner:
    """A single model as a Learner. `draw` gets a generator seeded with `seed` and kept in the training state."""

    stacked = False

    def __init__(
        self,
        model: HookedTransformer,
        *,
        seed: int,
        draw: Callable[[torch.Generator, int], Any],
        loss: Callable[[HookedTransformer, Any], Float[Tensor, ""]],
        measure: Callable[[HookedTransformer], Mapping[str, float | int]] | None = None,
    ) -> None:
        self.model = model
        self.seeds = (seed,)
        self.generator = torch.Generator().manual_seed(seed)
        self._draw, self._loss, self._measure = draw, loss, measure

    def parameters(self) -> dict[str, Tensor]:
        return {name: leaf for name, leaf in self.model.named_parameters() if leaf.requires_grad}

    def losses(self, step: int) -> Float[Tensor, " seed"]:
        return self._loss(self.model, self._draw(self.generator, step)).reshape(1)

    def measure(self) -> Measures:
        measures = self._measure(self.model) if self._measure else {}
        return {name: torch.tensor([float(value)], dtype=torch.float64) for name, value in measures.items()}

    def state(self) -> dict[str, Tensor]:
        return {"generator": self.generator.get_state()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.generator.set_state(state["generator"])

    def export(self, seed_index: int = 0, weights: Mapping[str, Tensor] | None = None) -> HookedTransformer:
        """A copy of the model, with `weights` (of a run's `best` or `weights`) where given."""
        model = copy.deepcopy(self.model)
        with torch.no_grad():
            for name, leaf in model.named_parameters():
                if weights is not None and name in weights:
                    leaf.copy_(weights[name])
        return model
