"""What every task offers: examples, contrasts, roles, circuits, and the names of its positions and tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from headlab.interp.circuits import Circuit
from headlab.interp.roles import Role


@dataclass(frozen=True)
class Examples:
    """Inputs, what is right, and where it is read.

    inputs: what the model takes, first axis `example`.
    targets: token ids, or real values for a regression, at each position that is read.
    read: the model's positions that are read; -1 marks an unused column (sequences of mixed length).
    factors: name -> level per example (small integers), what the examples can be grouped and matched by.
    levels: name -> what each level is called.
    """

    inputs: Shaped[Tensor, "example ..."]
    targets: Shaped[Tensor, "example read"]
    read: Int[Tensor, "example read"]
    factors: Mapping[str, Int[Tensor, " example"]] = field(default_factory=dict)
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.inputs.shape[0]

    def __getitem__(self, rows: Any) -> Examples:
        """The examples at `rows` (an index tensor or a slice)."""
        factors = {name: values[rows] for name, values in self.factors.items()}
        return Examples(self.inputs[rows], self.targets[rows], self.read[rows], factors, self.levels)

    def to(self, device: torch.device | str) -> Examples:
        """The same examples on `device`."""
        factors = {name: values.to(device) for name, values in self.factors.items()}
        return Examples(self.inputs.to(device), self.targets.to(device), self.read.to(device), factors, self.levels)


LogitMetric = Callable[[Float[Tensor, "example position vocabulary"]], Float[Tensor, " example"]]


@dataclass(frozen=True)
class Contrast:
    """Pairs of runs that differ in ONE named factor; row i of source and destination belong together.

    Activations of the source run are put into the destination run. `read`: the model positions that the metric looks
    at, the same for every pair. `metrics`: name -> a function of the logits AT THOSE POSITIONS
    [example, read, vocabulary], one number per pair; each is high on the source run and low on the destination run,
    so that what a patch recovers is positive.
    """

    name: str
    factor: str
    source: Shaped[Tensor, "example ..."]
    destination: Shaped[Tensor, "example ..."]
    read: tuple[int, ...]
    metrics: Mapping[str, LogitMetric]
    positions: tuple[str, ...]

    def to(self, device: torch.device | str) -> Contrast:
        """The same pairs on `device`."""
        return replace(self, source=self.source.to(device), destination=self.destination.to(device))


@runtime_checkable
class Task(Protocol):
    """One task with its data. Whatever is random takes a seed and moves no global generator."""

    name: str

    @property
    def positions(self) -> tuple[str, ...]:
        """Names of the model's positions, e.g. ('u', 'v', 'selector', 'query')."""
        ...

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """A printable label per token id; empty for continuous tokens."""
        ...

    def token_labels(self, row: Shaped[Tensor, ...]) -> tuple[str, ...]:
        """What stands at each of the model's positions in one example (a row of `inputs`), for a reader."""
        ...

    def examples(self, *, seed: int = 0, count: int | None = None) -> Examples:
        """All examples where they can be listed and `count` is None; else `count` of them drawn with `seed`."""
        ...

    def metrics(self, examples: Examples) -> Mapping[str, LogitMetric]:
        """name -> performance per example from the model's full logits, higher is better; the first is the default."""
        ...

    def contrasts(self, *, seed: int = 0, count: int = 64) -> Mapping[str, Contrast]:
        """name -> pairs of runs that differ in that one factor."""
        ...

    def roles(self, *, seed: int = 0, count: int = 256) -> tuple[Role, ...]:
        """The roles that heads can play here."""
        ...

    def role_metrics(self, roles: Sequence[Role]) -> Mapping[str, LogitMetric]:
        """role -> performance per example of that role's inputs, from the full logits; what an ablation is held to."""
        ...

    def circuit(self, variant: str, ablation: str, *, read: Sequence[int] | None = None) -> Circuit:
        """The true circuit of the constructed model `variant` under `ablation`; KeyError lists what is known.

        read: the positions whose answers count; None is all that the task reads.
        """
        ...

    def options(self) -> dict[str, Any]:
        """JSON-ready options from which the task's `from_options` makes an equal task; stored in checkpoints."""
        ...
