"""Sparse parity: bits x in {-1, 1}^d, label y = -prod over the targets of x_t; for two targets the sparse XOR.

The sequence is x_0 ... x_{d-1} followed by a CLS token, at which the answer is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.circuits import END, START, Circuit, Edge, Node
from headlab.interp.errors import RequestError, UnknownName
from headlab.interp.roles import Role
from headlab.models.task import Contrast, Examples, LogitMetric

LISTED_UP_TO = 12
MOST_PAIRS = 1 << 25  # of positions, in the examples of one role
KEYS_UNTOUCHED = ("resample", "positional_mean")
KEYS_TAKEN = ("mean", "zero")


@dataclass(frozen=True)
class XorTask:
    """Parity of the bits at `targets` among `bits` bits, times -1. Implements models.task.Task.

    Raises ValueError for fewer than two bits, no target, more targets than bits, equal targets or a target that is no
    position.
    """

    bits: int
    targets: tuple[int, ...] = (0, 1)
    name: str = "xor"

    def __post_init__(self) -> None:
        if self.bits < 2:
            raise RequestError(f"bits = {self.bits}: sparse parity needs at least 2 bits")
        if not self.targets:
            raise RequestError("no targets: name at least one position, e.g. targets 0 1")
        if len(self.targets) > self.bits:
            raise RequestError(
                f"{len(self.targets)} targets among {self.bits} bits: there cannot be more targets than bits"
            )
        for target in self.targets:
            if not 0 <= target < self.bits:
                raise RequestError(f"target {target} is not a position: positions count from 0 to {self.bits - 1}")
        if len(set(self.targets)) < len(self.targets):
            twice = next(target for target in self.targets if self.targets.count(target) > 1)
            raise RequestError(f"target {twice} is named twice: targets {' '.join(map(str, self.targets))} must differ")

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> XorTask:
        """The task that `options()` describes."""
        return cls(bits=int(options["bits"]), targets=tuple(int(target) for target in options["targets"]))

    def options(self) -> dict[str, Any]:
        """JSON-ready: `bits`, `targets`."""
        return {"bits": self.bits, "targets": list(self.targets)}

    @property
    def cls(self) -> int:
        """The position of the CLS token, where the answer is read."""
        return self.bits

    @property
    def positions(self) -> tuple[str, ...]:
        """'x0' to 'x{d-1}', then 'CLS'."""
        return (*(f"x{position}" for position in range(self.bits)), "CLS")

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Empty: bits enter as numbers."""
        return ()

    def token_labels(self, row: Float[Tensor, " bit"]) -> tuple[str, ...]:
        """'x0 +1', 'x1 −1', ..., 'CLS': the bit at each position of one input."""
        return (*(f"x{position} {'+1' if bit > 0 else '−1'}" for position, bit in enumerate(row.tolist())), "CLS")

    @property
    def role_names(self) -> tuple[str, ...]:
        """One role per target, in the order of `targets`."""
        return tuple(f"target-{index}" for index in range(len(self.targets)))

    def labels(self, inputs: Float[Tensor, "*example bit"]) -> Float[Tensor, "*example"]:
        """y = -prod over the targets of x_t, in {-1, 1}."""
        return -inputs[..., list(self.targets)].prod(dim=-1)

    def examples(self, *, seed: int = 0, count: int | None = None) -> Examples:
        """All 2^d inputs where d <= 12 and `count` is None; else `count` (4096 by default) drawn with `seed`.

        inputs: [example, bit] in {-1, 1}. Factors: each target's bit by role name, and the label.
        """
        if count is None and self.bits <= LISTED_UP_TO:
            inputs = torch.tensor(list(product((-1.0, 1.0), repeat=self.bits)))
        else:
            inputs = self._draw(4096 if count is None else count, seed)
        labels = self.labels(inputs)
        bits = {name: inputs[:, target] for name, target in zip(self.role_names, self.targets, strict=True)}
        factors = {name: (values > 0).long() for name, values in {**bits, "label": labels}.items()}
        return Examples(
            inputs=inputs,
            targets=labels[:, None],
            read=torch.full((len(inputs), 1), self.cls),
            factors=factors,
            levels=dict.fromkeys(factors, ("-1", "+1")),
        )

    def _draw(self, count: int, seed: int) -> Float[Tensor, "example bit"]:
        if count < 1:
            raise RequestError(f"count = {count}: ask for at least one example")
        generator = torch.Generator().manual_seed(seed)
        return 2.0 * torch.randint(0, 2, (count, self.bits), generator=generator) - 1.0

    def metrics(self, examples: Examples) -> Mapping[str, LogitMetric]:
        """`negative_squared_error`, -(f - y)^2, and `agreement`, f * y; both read at CLS, higher is better."""
        labels = examples.targets[:, 0]

        def negative_squared_error(logits: Float[Tensor, "example position 1"]) -> Float[Tensor, " example"]:
            return -((logits[:, self.cls, 0] - labels.to(logits)) ** 2)

        def agreement(logits: Float[Tensor, "example position 1"]) -> Float[Tensor, " example"]:
            return logits[:, self.cls, 0] * labels.to(logits)

        return {"negative_squared_error": negative_squared_error, "agreement": agreement}

    def contrasts(self, *, seed: int = 0, count: int = 64) -> Mapping[str, Contrast]:
        """One contrast per target, with its bit flipped, and `background`, with one bit that is not a target flipped.

        The metric `agreement` is f times the label of the source run: 1 on a perfect source and -1 on its destination.
        A background flip changes no label, so that there it is 1 on both and nothing is to be recovered. The
        background position is the first that is not a target; a task in which every bit is a target has none.
        """
        flips = dict(zip(self.role_names, self.targets, strict=True))
        background = next((position for position in range(self.bits) if position not in self.targets), None)
        if background is not None:
            flips["background"] = background
        source = self._draw(count, seed)
        labels = self.labels(source)

        def agreement(logits: Float[Tensor, "example read 1"]) -> Float[Tensor, " example"]:
            return logits[:, 0, 0] * labels.to(logits)

        found = {}
        for name, position in flips.items():
            destination = source.clone()
            destination[:, position] *= -1
            found[name] = Contrast(
                name=name,
                factor=f"the bit x{position}",
                source=source,
                destination=destination,
                read=(self.cls,),
                metrics={"agreement": agreement},
                positions=self.positions,
            )
        return found

    def roles(self, *, seed: int = 0, count: int = 256) -> tuple[Role, ...]:
        """One role per target: at CLS, read that target's position. The masks are views, one row for all examples.

        Fewer than `count` examples from some 360 bits on: where a head looks does not depend on the bits.
        """
        length = self.bits + 1
        count = max(1, min(count, MOST_PAIRS // length**2))
        inputs = self._draw(count, seed)
        queries = torch.zeros(1, length, dtype=torch.bool)
        queries[0, self.cls] = True
        roles = []
        for name, target in zip(self.role_names, self.targets, strict=True):
            targets = torch.zeros(1, length, length, dtype=torch.bool)
            targets[0, self.cls, target] = True
            roles.append(Role(name, inputs, queries.expand(count, -1), targets.expand(count, -1, -1)))
        return tuple(roles)

    def role_metrics(self, roles: Sequence[Role]) -> Mapping[str, LogitMetric]:
        """role -> f * y per example of that role's inputs: the answer needs every role, so all are judged by it."""

        def agreement(role: Role) -> LogitMetric:
            labels = self.labels(role.inputs)
            return lambda logits: logits[:, self.cls, 0] * labels.to(logits)

        return {role.name: agreement(role) for role in roles}

    @property
    def circuit_kinds(self) -> tuple[str, ...]:
        """The kinds of ablation under which the limit's circuit is known; one per target's contrast among them."""
        return (*KEYS_UNTOUCHED, *KEYS_TAKEN, *(f"resample:{name}" for name in self.role_names))

    def circuit(self, variant: str, ablation: str, *, read: Sequence[int] | None = None) -> Circuit:
        """The circuit of the constructed model `limit`, in which head h reads target h, under `ablation`.

        What carries the answer: the bit of target h as head h's value, and the head's output as the CLS reads it.
        The key at the target is part of it where it is replaced by something else (`mean`, `zero`): at one position
        it is the same in every run, so that a value taken from other runs changes nothing. `resample:target-h`
        replaces by runs that differ in that one bit, which passes through head h alone. Raises KeyError, with what
        is known, for another variant or ablation. `read` has no part: the CLS alone is read.
        """
        if variant != "limit" or ablation not in self.circuit_kinds:
            raise UnknownName(
                f"the circuit of '{variant}' under '{ablation}' ablation is not known; "
                f"known: limit under {', '.join(self.circuit_kinds)}"
            )
        edges = set()
        for head, (name, target) in enumerate(zip(self.role_names, self.targets, strict=True)):
            if ablation not in (*KEYS_UNTOUCHED, *KEYS_TAKEN, f"resample:{name}"):
                continue
            node = Node("head", 0, head)
            edges |= {Edge(START, node, "v", target), Edge(node, END, "end", self.cls)}
            if ablation in KEYS_TAKEN:
                edges.add(Edge(START, node, "k", target))
        return Circuit(
            edges=frozenset(edges),
            ablation=ablation,
            roles={(0, head): name for head, name in enumerate(self.role_names)},
            reference="" if ablation == "zero" else "inputs uniform on {-1, 1}^d",
        )
