"""A circuit: which edges of a model carry a behaviour, under which kind of ablation, and what each head does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import networkx as nx

from headlab.interp.errors import RequestError

Port = Literal["q", "k", "v", "mlp", "end"]


@dataclass(frozen=True, order=True)
class Node:
    """A component that reads from and writes to the residual stream. Layers and heads count from 0.

    kind: `start` (the embeddings), `head`, `mlp`, `end` (the residual stream after the last block).
    """

    kind: Literal["start", "head", "mlp", "end"]
    layer: int = -1
    head: int = -1

    def __str__(self) -> str:
        if self.kind == "head":
            return f"{self.layer}.{self.head}"
        return f"mlp{self.layer}" if self.kind == "mlp" else self.kind


START = Node("start")
END = Node("end")


@dataclass(frozen=True, order=True)
class Edge:
    """What `source` writes, as `destination` reads it: through the port q, k, v (a head), mlp or end, at `position`.

    `position` is where the value is read: for k and v the key's position, for q the query's. None: at every position
    together, the unit of EAP-IG and of most circuit benchmarks.
    """

    source: Node
    destination: Node
    port: Port
    position: int | None

    def __str__(self) -> str:
        port = f".{self.port}" if self.port in ("q", "k", "v") else ""
        at = "" if self.position is None else f"@{self.position}"
        return f"{self.source} -> {self.destination}{port}{at}"


@dataclass(frozen=True)
class Circuit:
    """The edges that carry a behaviour, true under ONE kind of ablation.

    ablation: the kind under which it is true, e.g. `resample`, `positional_mean`, `zero`.
    roles: (layer, head) -> the name of the role that the head plays, where it plays one.
    weights: edge -> effect, where it was measured (higher = more important).
    reference: which data the ablation draws from, in words.
    ranking: the rule by which edges were ranked or chosen, in words; empty for a circuit known from a theorem.
    """

    edges: frozenset[Edge]
    ablation: str
    roles: Mapping[tuple[int, int], str] = field(default_factory=dict)
    weights: Mapping[Edge, float] = field(default_factory=dict)
    reference: str = ""
    ranking: str = ""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that some edge touches, in model order."""
        touched = {node for edge in self.edges for node in (edge.source, edge.destination)}
        order = {"start": 0, "head": 1, "mlp": 2, "end": 3}
        last = max((node.layer for node in touched), default=0) + 1
        return tuple(sorted(touched, key=lambda n: (last if n.kind == "end" else n.layer, order[n.kind], n.head)))

    def with_heads(self, names: Mapping[tuple[int, int], tuple[int, int]]) -> Circuit:
        """The same circuit in a model whose heads stand elsewhere: (layer, head) -> (layer, head); others stay.

        Raises ValueError where two heads would become one.
        """
        heads = {(node.layer, node.head) for node in self.nodes if node.kind == "head"} | set(self.roles)
        new = {head: names.get(head, head) for head in heads}
        if len(set(new.values())) < len(new):
            raise RequestError(f"two heads of the circuit would become one: {dict(names)}")

        def node(old: Node) -> Node:
            return Node("head", *new[old.layer, old.head]) if old.kind == "head" else old

        moved = {
            edge: replace(edge, source=node(edge.source), destination=node(edge.destination)) for edge in self.edges
        }
        return replace(
            self,
            edges=frozenset(moved.values()),
            roles={new[head]: role for head, role in self.roles.items()},
            weights={moved[edge]: weight for edge, weight in self.weights.items() if edge in moved},
        )

    def to_graph(self) -> nx.MultiDiGraph:
        """The circuit as a networkx graph; edge data: port, position, weight (1.0 where unmeasured)."""
        graph = nx.MultiDiGraph(ablation=self.ablation, reference=self.reference, ranking=self.ranking)
        for node in self.nodes:
            graph.add_node(str(node), role=self.roles.get((node.layer, node.head)))
        for edge in sorted(self.edges):
            graph.add_edge(
                str(edge.source),
                str(edge.destination),
                port=edge.port,
                position=edge.position,
                weight=float(self.weights.get(edge, 1.0)),
            )
        return graph
