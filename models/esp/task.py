"""The endpoint selection problem: (u, v, i, #) -> the i-th endpoint of the arc (u, v)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headlab.interp.circuits import Circuit
from headlab.interp.errors import RequestError, UnknownName
from headlab.interp.roles import Role
from headlab.models.esp.circuits import true_circuit
from headlab.models.esp.graphs import Digraph, read_graph
from headlab.models.task import Contrast, Examples, LogitMetric

ROLES = ("endpoint 1", "endpoint 2")


@dataclass(frozen=True)
class EspTask:
    """Endpoint selection on one directed multigraph: 2m samples, one per arc and selector, uniform.

    Sequence (u, v, i, #), read at '#'; target u for selector '1', v for '2'. Vertex k is token k; the selectors and
    '#' are the last three tokens. With `induction` the sequence is the two-hop form (1, u, 2, v, #, i, #): the
    endpoint that stands behind the selector's own token is to be found. A sample is right only where the target's
    logit is strictly the largest over all tokens: a tie is wrong.
    """

    graph: Digraph
    induction: bool = False
    name: str = "esp"

    @property
    def n(self) -> int:
        """The number of vertices."""
        return self.graph.n

    @property
    def m(self) -> int:
        """The number of arcs, with multiplicity, self-loops counted."""
        return self.graph.m

    @property
    def selectors(self) -> tuple[int, int]:
        """Token ids of '1' and '2'."""
        return self.n, self.n + 1

    @property
    def query_token(self) -> int:
        """Token id of '#'."""
        return self.n + 2

    @property
    def positions(self) -> tuple[str, ...]:
        """The names of the sequence's positions."""
        if self.induction:
            return ("mark 1", "u", "mark 2", "v", "break", "selector", "query")
        return ("u", "v", "selector", "query")

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """A label per token: the vertices, then '1', '2', '#', in brackets where a vertex has one of these labels."""
        special = ("1", "2", "#")
        while not set(special).isdisjoint(self.graph.labels):
            special = tuple(f"[{label}]" for label in special)
        return (*self.graph.labels, *special)

    def token_labels(self, row: Int[Tensor, " position"]) -> tuple[str, ...]:
        """The label of each token of one sample."""
        return tuple(self.vocabulary[token] for token in row.tolist())

    def position(self, name: str) -> int:
        """The index of a named position; KeyError lists the names."""
        if name not in self.positions:
            raise UnknownName(f"no position '{name}': there are {', '.join(self.positions)}")
        return self.positions.index(name)

    def sequences(
        self, u: Int[Tensor, " example"], v: Int[Tensor, " example"], selector: Int[Tensor, " example"]
    ) -> Int[Tensor, "example position"]:
        """The token sequences of endpoints u, v (any pair, also off the graph) and selectors (0 for '1', 1 for '2')."""
        one, two, mark = (torch.full_like(u, token) for token in (*self.selectors, self.query_token))
        if self.induction:
            return torch.stack([one, u, two, v, mark, selector + self.n, mark], dim=1)
        return torch.stack([u, v, selector + self.n, mark], dim=1)

    @cached_property
    def _all(self) -> Examples:
        arcs = torch.tensor(self.graph.arcs, dtype=torch.long).repeat_interleave(2, dim=0)
        selector = torch.arange(2).repeat(self.m)
        distinct = {arc: k for k, arc in enumerate(dict.fromkeys(self.graph.arcs))}
        number = torch.tensor([distinct[arc] for arc in self.graph.arcs]).repeat_interleave(2)
        labels = self.graph.labels
        return Examples(
            inputs=self.sequences(arcs[:, 0], arcs[:, 1], selector),
            targets=arcs.gather(1, selector[:, None]),
            read=torch.full((2 * self.m, 1), len(self.positions) - 1),
            factors={"selector": selector, "arc": number},
            levels={"selector": ("1", "2"), "arc": tuple(f"{labels[u]} -> {labels[v]}" for u, v in distinct)},
        )

    def examples(self, *, seed: int = 0, count: int | None = None) -> Examples:
        """All 2m samples, arc by arc, selector '1' then '2'; or `count` of them drawn with `seed`.

        Drawn without replacement up to 2m; beyond, whole passes in new orders. Factors: `selector` and `arc` (parallel
        arcs share a level). ValueError for a count below 1.
        """
        everything = self._all
        if count is None:
            return everything[torch.arange(len(everything))]
        if count < 1:
            raise RequestError(f"{count} examples were asked for: at least 1 is needed")
        generator = torch.Generator().manual_seed(seed)
        passes = -(-count // len(everything))
        rows = torch.cat([torch.randperm(len(everything), generator=generator) for _ in range(passes)])
        return everything[rows[:count]]

    def endpoints(self, examples: Examples) -> tuple[Int[Tensor, " example"], Int[Tensor, " example"]]:
        """The tokens u and v of each example."""
        return examples.inputs[:, self.position("u")], examples.inputs[:, self.position("v")]

    def metrics(self, examples: Examples) -> Mapping[str, LogitMetric]:
        """Performance per example from the full logits, read at '#'; higher is better.

        `logit_difference`: target minus the other endpoint, or minus the largest other token for a self-loop.
        `log_probability`: of the target, in nats. `margin`: target minus the largest other token.
        `accuracy`: 1.0 where the margin is positive, else 0.0.
        """
        target, read = examples.targets[:, 0], int(examples.read[0, 0])
        u, v = self.endpoints(examples)
        other, loop = u + v - target, u == v

        def margin(logits: Float[Tensor, "example position vocabulary"]) -> Float[Tensor, " example"]:
            return margins(logits[:, read], target)

        def logit_difference(logits: Float[Tensor, "example position vocabulary"]) -> Float[Tensor, " example"]:
            difference = _pick(logits[:, read], target) - _pick(logits[:, read], other)
            return torch.where(loop.to(logits.device), margin(logits), difference)

        def log_probability(logits: Float[Tensor, "example position vocabulary"]) -> Float[Tensor, " example"]:
            return _pick(logits[:, read].log_softmax(-1), target)

        def accuracy(logits: Float[Tensor, "example position vocabulary"]) -> Float[Tensor, " example"]:
            return (margin(logits) > 0).to(logits.dtype)

        return {
            "logit_difference": logit_difference,
            "log_probability": log_probability,
            "margin": margin,
            "accuracy": accuracy,
        }

    def contrasts(self, *, seed: int = 0, count: int = 64) -> Mapping[str, Contrast]:
        """Pairs of runs whose right answers differ: up to `count` of each, drawn with `seed`.

        `selector`: the other selector. `u`, `v`: the first (second) endpoint redrawn, in samples that ask for it,
        along another arc of the graph where there is one, else any other vertex. `all`: two samples of different
        targets. Self-loops have no part in `selector`, which is left out where the graph has nothing else.
        """
        generator = torch.Generator().manual_seed(seed)
        examples = self.examples()
        u, v = self.endpoints(examples)
        selector = examples.factors["selector"]
        target = examples.targets[:, 0]
        made: dict[str, Contrast] = {}

        def rows_of(mask: Bool[Tensor, " example"]) -> Int[Tensor, " row"]:
            rows = mask.nonzero()[:, 0]
            return rows[torch.randperm(len(rows), generator=generator)[:count]]

        rows = rows_of(u != v)
        if len(rows):
            flipped = self.sequences(u[rows], v[rows], 1 - selector[rows])
            made["selector"] = self._contrast("selector", examples[rows], flipped, (u + v - target)[rows])
        for side, name in enumerate(("u", "v")):
            rows = rows_of(selector == side)
            pair = torch.stack([u[rows], v[rows]], dim=1)
            pair[:, side] = self._redrawn(pair, side, generator)
            destination = self.sequences(pair[:, 0], pair[:, 1], selector[rows])
            made[name] = self._contrast(name, examples[rows], destination, pair[:, side])
        pairs = []
        for row in torch.randperm(len(examples), generator=generator)[:count].tolist():
            unlike = (target != target[row]).nonzero()[:, 0]
            if len(unlike):
                pairs.append((row, int(unlike[torch.randint(len(unlike), (1,), generator=generator)])))
        if pairs:
            rows, others = torch.tensor(pairs).T
            made["all"] = self._contrast("all", examples[rows], examples.inputs[others], target[others])
        return made

    def _redrawn(self, pair: Int[Tensor, "row 2"], side: int, generator: torch.Generator) -> Int[Tensor, " row"]:
        along: dict[int, set[int]] = {}
        for arc in self.graph.arcs:
            along.setdefault(arc[1 - side], set()).add(arc[side])
        drawn = []
        for row in pair.tolist():
            choices = sorted(along.get(row[1 - side], set()) - {row[side]})
            choices = choices or [vertex for vertex in range(self.n) if vertex != row[side]]
            drawn.append(choices[int(torch.randint(len(choices), (1,), generator=generator))])
        return torch.tensor(drawn)

    def _contrast(self, name: str, source: Examples, destination: Tensor, foil: Int[Tensor, " row"]) -> Contrast:
        target, read = source.targets[:, 0], len(self.positions) - 1

        def logit_difference(logits: Float[Tensor, "row read vocabulary"]) -> Float[Tensor, " row"]:
            return _pick(logits[:, 0], target) - _pick(logits[:, 0], foil)

        def log_probability(logits: Float[Tensor, "row read vocabulary"]) -> Float[Tensor, " row"]:
            return _pick(logits[:, 0].log_softmax(-1), target)

        metrics = {"logit_difference": logit_difference, "log_probability": log_probability}
        return Contrast(name, name, source.inputs, destination, (read,), metrics, self.positions)

    def roles(self, *, seed: int = 0, count: int = 256) -> tuple[Role, ...]:
        """`endpoint 1` and `endpoint 2`: under that selector '#' reads that endpoint's position.

        At most `count` samples in all, drawn with `seed`, half for each role; self-loops only where there is nothing
        else.
        """
        examples = self.examples()
        generator = torch.Generator().manual_seed(seed)
        u, v = self.endpoints(examples)
        proper = (u != v) | bool((u == v).all())
        length, query = len(self.positions), len(self.positions) - 1
        roles = []
        for side, name in enumerate(ROLES):
            rows = (proper & (examples.factors["selector"] == side)).nonzero()[:, 0]
            rows = rows[torch.randperm(len(rows), generator=generator)[: max(count // 2, 1)]].sort().values
            queries = torch.zeros(len(rows), length, dtype=torch.bool)
            queries[:, query] = True
            targets = torch.zeros(len(rows), length, length, dtype=torch.bool)
            targets[:, query, self.position("uv"[side])] = True
            roles.append(Role(name, examples.inputs[rows], queries, targets))
        return tuple(roles)

    def role_metrics(self, roles: Sequence[Role]) -> Mapping[str, LogitMetric]:
        """role -> accuracy per example of that role's inputs: 1.0 where its endpoint is strictly the largest logit."""

        def accuracy(role: Role) -> LogitMetric:
            target = role.inputs[:, self.position("uv"[ROLES.index(role.name)])]
            read = len(self.positions) - 1
            return lambda logits: (margins(logits[:, read], target) > 0).to(logits.dtype)

        return {role.name: accuracy(role) for role in roles}

    def circuit(self, variant: str, ablation: str, *, read: Sequence[int] | None = None) -> Circuit:
        """The true circuit of a construction under one kind of ablation; KeyError lists what is known.

        `read` has no part: there is one answer, at '#'.
        """
        return true_circuit(variant, ablation, induction=self.induction)

    def options(self) -> dict[str, Any]:
        """JSON-ready, the whole graph with its labels included: `from_options` makes an equal task."""
        return {"graph": self.graph.to_json(), "induction": self.induction}

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> EspTask:
        """The task that `options` wrote; `graph` may also be a specification for `read_graph`."""
        graph = options["graph"]
        graph = Digraph.from_json(graph) if isinstance(graph, Mapping) else read_graph(graph)
        return cls(graph, bool(options.get("induction", False)))


def margins(logits: Float[Tensor, "example vocabulary"], targets: Int[Tensor, " example"]) -> Float[Tensor, " example"]:
    """The target's logit minus the largest other logit, over all tokens: positive where the sample is right."""
    here = torch.arange(logits.shape[-1], device=logits.device) == targets.to(logits.device)[:, None]
    return _pick(logits, targets) - logits.masked_fill(here, -torch.inf).max(-1).values


def _pick(logits: Float[Tensor, "example vocabulary"], tokens: Int[Tensor, " example"]) -> Float[Tensor, " example"]:
    return logits.gather(-1, tokens.to(logits.device)[:, None])[:, 0]
