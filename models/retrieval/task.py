"""Generalised D-retrieval as a task: sequences of continuous tokens, a CLS behind them, and one real answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headlab.interp.circuits import Circuit
from headlab.interp.errors import RequestError
from headlab.interp.roles import Role
from headlab.models.retrieval.circuits import true_circuit
from headlab.models.retrieval.contrasts import single_changes
from headlab.models.retrieval.family import Family
from headlab.models.task import Contrast, Examples, LogitMetric


@dataclass(frozen=True)
class RetrievalTask:
    """Give F0(z_1, ..., z_D) of a sequence at its CLS token. Implements models.task.Task."""

    family: Family
    name: str = "retrieval"

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> RetrievalTask:
        """The task that `options()` describes; errors as for Family.from_options."""
        return cls(Family.from_options(options))

    def options(self) -> dict[str, Any]:
        """JSON-ready: the family's options."""
        return self.family.options()

    @property
    def cls(self) -> int:
        """The position of the CLS token, where the answer is read."""
        return self.family.length

    @property
    def positions(self) -> tuple[str, ...]:
        """'x0' to 'x{T-1}', then 'CLS'."""
        return (*(f"x{position}" for position in range(self.family.length)), "CLS")

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Empty: the tokens are vectors."""
        return ()

    @property
    def role_names(self) -> tuple[str, ...]:
        """'coordinate-0' to 'coordinate-{D-1}'."""
        return tuple(f"coordinate-{index}" for index in range(self.family.coordinates))

    def token_labels(self, row: Float[Tensor, "position feature"]) -> tuple[str, ...]:
        """'x0', 'x1 · 0, 2', ..., 'CLS': behind a position the coordinates whose minimum stands there."""
        held: dict[int, list[str]] = {}
        for coordinate, position in enumerate(self.family.retrieved(row).tolist()):
            held.setdefault(position, []).append(str(coordinate))
        labels = (
            f"x{position} · {', '.join(held[position])}" if position in held else f"x{position}"
            for position in range(self.family.length)
        )
        return (*labels, "CLS")

    def draw(self, count: int, seed: int) -> Float[Tensor, "example position feature"]:
        """`count` sequences of the family's distribution. Raises ValueError for a count below 1."""
        return self.family.draw(count, torch.Generator().manual_seed(seed))

    def examples(self, *, seed: int = 0, count: int | None = None) -> Examples:
        """`count` sequences (2048 by default) drawn with `seed`: there is no list of all of them."""
        return self.examples_of(self.draw(2048 if count is None else count, seed))

    def examples_of(self, tokens: Float[Tensor, "example position feature"]) -> Examples:
        """Given sequences as examples. Factors: per role, the position of its minimum. Errors as for Family.values."""
        retrieved = self.family.retrieved(tokens)
        places = self.positions[:-1]
        return Examples(
            inputs=tokens,
            targets=self.family.target(tokens)[:, None],
            read=torch.full((len(tokens), 1), self.cls),
            factors={name: retrieved[:, index] for index, name in enumerate(self.role_names)},
            levels=dict.fromkeys(self.role_names, places),
        )

    def metrics(self, examples: Examples) -> Mapping[str, LogitMetric]:
        """`negative_squared_error`, -(f - y)^2, and `negative_absolute_error`, both read at CLS, in the target's units.

        Higher is better; 0 is perfect.
        """
        targets = examples.targets[:, 0]

        def error(logits: Float[Tensor, "example position 1"]) -> Float[Tensor, " example"]:
            return logits[:, self.cls, 0] - targets.to(logits)

        return {
            "negative_squared_error": lambda logits: -error(logits).square(),
            "negative_absolute_error": lambda logits: -error(logits).abs(),
        }

    def contrasts(self, *, seed: int = 0, count: int = 64) -> Mapping[str, Contrast]:
        """One contrast per coordinate, of which alone the minimum changes, and `background`, where none does.

        In each pair ONE token differs: the one that held the minimum, or, for `background`, one that held none.
        Metrics: `shift`, (f - y_destination) * sign(y_source - y_destination), which is |y_source - y_destination| on
        a perfect source and 0 on its destination; `negative_squared_error`, against the source's target. In
        `background` both runs have one target, and nothing is to be recovered. Raises ValueError where sequences are
        too short for a coordinate to change alone; the background is left out where no token is free to change.
        """
        generator = torch.Generator().manual_seed(seed)
        found = {}
        for index, name in enumerate((*self.role_names, "background")):
            coordinate = index if name != "background" else None
            pairs = single_changes(self.family, coordinate, count, generator)
            if pairs is None:
                if coordinate is None:
                    continue
                raise RequestError(
                    f"no pair was found that differs in {name} alone: sequences of {self.family.length} tokens are "
                    f"too short for {self.family.coordinates} coordinates"
                )
            factor = "a token that holds no minimum" if coordinate is None else f"the minimum of {name}"
            found[name] = self._contrast(name, factor, *pairs)
        return found

    def _contrast(self, name: str, factor: str, source: Tensor, destination: Tensor) -> Contrast:
        high, low = self.family.target(source), self.family.target(destination)

        def shift(logits: Float[Tensor, "example read 1"]) -> Float[Tensor, " example"]:
            return (logits[:, 0, 0] - low.to(logits)) * (high - low).sign().to(logits)

        def negative_squared_error(logits: Float[Tensor, "example read 1"]) -> Float[Tensor, " example"]:
            return -(logits[:, 0, 0] - high.to(logits)).square()

        return Contrast(
            name=name,
            factor=factor,
            source=source,
            destination=destination,
            read=(self.cls,),
            metrics={"shift": shift, "negative_squared_error": negative_squared_error},
            positions=self.positions,
        )

    def roles(self, *, seed: int = 0, count: int = 256) -> tuple[Role, ...]:
        """One role per coordinate: at CLS, read the token that has the minimum."""
        tokens = self.draw(count, seed)
        return tuple(self._role(name, tokens, place) for name, place in self._places(tokens))

    def _places(self, tokens: Tensor) -> list[tuple[str, Int[Tensor, " example"]]]:
        retrieved = self.family.retrieved(tokens)
        return [(name, retrieved[:, index]) for index, name in enumerate(self.role_names)]

    def _role(self, name: str, tokens: Tensor, places: Int[Tensor, " example"]) -> Role:
        count, length = len(tokens), self.family.length + 1
        queries = torch.zeros(count, length, dtype=torch.bool)
        queries[:, self.cls] = True
        targets = torch.zeros(count, length, length, dtype=torch.bool)
        targets[torch.arange(count), self.cls, places] = True
        return Role(name, tokens, queries, targets)

    def role_metrics(self, roles: Sequence[Role]) -> Mapping[str, LogitMetric]:
        """role -> -(f - y)^2 per example of that role's inputs: the answer needs every role, so all share it."""
        return {role.name: self.metrics(self.examples_of(role.inputs))["negative_squared_error"] for role in roles}

    def circuit(self, variant: str, ablation: str, *, read: Sequence[int] | None = None) -> Circuit:
        """The circuit of the constructed `variant` under `ablation`; see models.retrieval.circuits.true_circuit.

        `read` has no part: the CLS alone is read.
        """
        return true_circuit(self.family, variant, ablation)
