"""Directed multigraphs with labelled vertices: bundled, generated, or read from a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from headlab.interp.errors import MissingFile, RequestError
from headlab.models.esp.graph_files import parse_edge_list, read_file, require_directed

BUNDLED = ("click", "httpx", "jinja2", "rich")
GENERATORS = {
    "complete": "complete:N (both arcs between any two of N vertices)",
    "tournament": "tournament:N[:REVERSED:SEED] (an arc from each vertex to all later ones, some of them reversed)",
    "cycle": "cycle:N (one directed cycle)",
    "random": "random:N:P[:SEED] (each of the N(N-1) arcs with probability P)",
}
MEMORY = 2.0  # GB
ARC_BYTES = 1000  # of an arc while a graph is read
PAIR_BYTES = 48  # of six matrices vertex x vertex in float64: the weights of a constructed model and a copy


@dataclass(frozen=True)
class Digraph:
    """A directed multigraph: vertices 0..n-1 with labels, arcs as (tail, head) pairs, parallel arcs repeated.

    Raises ValueError for a graph that the endpoint selection problem is not defined on: no vertices, one vertex,
    no arcs, two vertices of one label, an arc to a vertex that does not exist.
    """

    name: str
    labels: tuple[str, ...]
    arcs: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        n = len(self.labels)
        if n == 0:
            raise RequestError(f"the graph '{self.name}' is empty: it needs at least two vertices and one arc")
        if n == 1:
            raise RequestError(f"the graph '{self.name}' has 1 vertex: it needs at least two vertices and one arc")
        if not self.arcs:
            raise RequestError(f"the graph '{self.name}' has {n} vertices and no arcs: it needs at least one arc")
        if len(set(self.labels)) != n:
            twice = Counter(self.labels).most_common(1)[0][0]
            raise RequestError(f"the graph '{self.name}' has two vertices with the label {twice!r}: rename one of them")
        for arc in self.arcs:
            if not all(0 <= vertex < n for vertex in arc):
                raise RequestError(f"the graph '{self.name}' has the arc {arc}, but its vertices are 0 to {n - 1}")

    @property
    def n(self) -> int:
        """The number of vertices."""
        return len(self.labels)

    @property
    def m(self) -> int:
        """The number of arcs, parallel arcs and self-loops counted."""
        return len(self.arcs)

    def constraints(self) -> Counter[tuple[int, int]]:
        """Arc -> multiplicity, self-loops left out: what an order of the vertices can respect or give up."""
        return Counter(arc for arc in self.arcs if arc[0] != arc[1])

    def cycle(self) -> tuple[int, ...] | None:
        """The vertices of one directed cycle in order, or None where there is none; self-loops do not count."""
        try:
            arcs = nx.find_cycle(nx.DiGraph(list(self.constraints())))
        except nx.NetworkXNoCycle:
            return None
        return tuple(tail for tail, _ in arcs)

    def show_cycle(self, cycle: tuple[int, ...]) -> str:
        """A cycle as text, 'a -> b -> a', shortened in the middle where it has more than eight vertices."""
        shown = [self.labels[vertex] for vertex in cycle]
        if len(shown) > 8:
            shown = [*shown[:4], f"... {len(shown) - 7} more ...", *shown[-3:]]
        return " -> ".join([*shown, self.labels[cycle[0]]])

    def to_networkx(self) -> nx.MultiDiGraph:
        """A networkx multigraph whose nodes are the labels."""
        graph = nx.MultiDiGraph(name=self.name)
        graph.add_nodes_from(self.labels)
        graph.add_edges_from((self.labels[tail], self.labels[head]) for tail, head in self.arcs)
        return graph

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; `from_json` makes an equal graph."""
        return {"name": self.name, "labels": list(self.labels), "arcs": [list(arc) for arc in self.arcs]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Digraph:
        """The graph that `to_json` wrote. ValueError where it is not of that form."""
        try:
            labels = tuple(str(label) for label in data["labels"])
            arcs = tuple((int(tail), int(head)) for tail, head in data["arcs"])
            name = str(data.get("name", "graph"))
        except (KeyError, TypeError, ValueError) as error:
            raise RequestError(f"not a stored graph: it needs 'labels' and 'arcs' ({error})") from None
        return cls(name, labels, arcs)


def from_networkx(graph: nx.Graph, name: str | None = None) -> Digraph:
    """Any networkx DiGraph or MultiDiGraph; a node's label is its text, its place the order of insertion.

    ValueError for an undirected graph and for what Digraph refuses.
    """
    name = name or str(graph.graph.get("name") or "graph")
    require_directed(graph, name)
    place = {node: k for k, node in enumerate(graph.nodes)}
    arcs = tuple((place[tail], place[head]) for tail, head in graph.edges())
    return Digraph(name, tuple(str(node) for node in graph.nodes), arcs)


def read_graph(spec: str | Path | nx.Graph | Digraph, *, memory: float | int = MEMORY) -> Digraph:
    """A graph by name, generator or file.

    Args:
        spec: `click`, `httpx`, `jinja2`, `rich` (which module imports which, bundled); `complete:8`, `tournament:8`,
            `cycle:5`, `random:10:0.3:SEED` (generated, vertices labelled v0, v1, ...); else a file: edge list, GraphML,
            JSON. A file that has a bundled name is reached as `./click`. Graphs of networkx and Digraphs pass through.
        memory: GB that a graph from a generator or a file may take, with the weights of one model on it, by estimate.

    Raises:
        RequestError: for an unknown or ill-formed specification, a file that is not a graph, a graph beyond `memory`
            (a generated one before it is built), and what Digraph refuses.
        MissingFile: where there is no such file.
    """
    if isinstance(spec, Digraph):
        return spec
    if isinstance(spec, nx.Graph):
        return from_networkx(spec)
    text = str(spec)
    if text in BUNDLED:
        source = files("headlab.models.esp").joinpath("data", f"{text}.edgelist")
        return from_networkx(parse_edge_list(source.read_text("utf-8"), text), text)
    kind, _, rest = text.partition(":")
    if kind in GENERATORS and not isinstance(spec, Path):
        return _generate(kind, rest.split(":") if rest else [], text, memory)
    if _exists(text):
        read = read_file(text, most_bytes=int(memory * 1e8))
        require_memory(text, len(read), read.number_of_edges(), memory)
        return from_networkx(read, Path(text).stem)
    what = "generator" if ":" in text and "/" not in text else "graph, and no such file"
    error = RequestError if what == "generator" else MissingFile
    raise error(
        f"unknown {what}: '{text}'; there are the bundled graphs {', '.join(BUNDLED)}, "
        f"the generators {', '.join(GENERATORS.values())}, and files"
    )


def require_memory(name: str, n: int, m: int, memory: float | int) -> None:
    """Raise RequestError where a graph of n vertices and m arcs takes more than `memory` GB, by estimate."""
    needed = (ARC_BYTES * m + PAIR_BYTES * n**2) / 1e9
    if needed > memory:
        seconds = 2 * m * 34 * n**2 / 1e10  # products of vectors with the weights, four positions, all samples
        raise RequestError(
            f"'{name}' has {n} vertices and up to {m} arcs: with a model's weights they take about {needed:.3g} GB, "
            f"and all {2 * m} samples about {seconds / 3600:.2g} hours of one core; the limit is {memory:g} GB, which "
            "--memory raises"
        )


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # a name that is too long for a file
        return False


def _generate(kind: str, arguments: list[str], spec: str, memory: float | int) -> Digraph:
    numbers: dict[str, tuple[type, ...]] = {
        "complete": (int,),
        "tournament": (int, int, int),
        "cycle": (int,),
        "random": (int, float, int),
    }
    counts = {"complete": (1,), "tournament": (1, 3), "cycle": (1,), "random": (2, 3)}[kind]
    wrong = f"'{spec}' is not a graph: write {GENERATORS[kind]}"
    if len(arguments) not in counts:
        raise RequestError(wrong)
    try:
        values = [number(argument) for number, argument in zip(numbers[kind], arguments, strict=False)]
    except ValueError:
        raise RequestError(wrong) from None
    n = values[0]
    if n < 2:
        raise RequestError(f"'{spec}' asks for {n} vertices: at least two are needed")
    share = min(1.0, max(0.0, values[1])) if kind == "random" else 1.0
    require_memory(spec, n, n if kind == "cycle" else int(share * n * (n - 1)), memory)
    make: dict[str, Callable[..., list[tuple[int, int]]]] = {
        "complete": _complete,
        "tournament": _tournament,
        "cycle": lambda n: [(k, (k + 1) % n) for k in range(n)],
        "random": _random,
    }
    return Digraph(spec, tuple(f"v{k}" for k in range(n)), tuple(make[kind](*values)))


def _complete(n: int) -> list[tuple[int, int]]:
    return [(tail, head) for tail in range(n) for head in range(n) if tail != head]


def _tournament(n: int, reversed_arcs: int = 0, seed: int = 0) -> list[tuple[int, int]]:
    arcs = [(tail, head) for tail in range(n) for head in range(tail + 1, n)]
    if not 0 <= reversed_arcs <= len(arcs):
        raise RequestError(f"a tournament of {n} vertices has {len(arcs)} arcs: {reversed_arcs} cannot be reversed")
    if seed < 0:
        raise RequestError(f"the seed is {seed}: it must not be negative")
    back = set(np.random.default_rng(seed).permutation(len(arcs))[:reversed_arcs].tolist())
    return [(head, tail) if k in back else (tail, head) for k, (tail, head) in enumerate(arcs)]


def _random(n: int, probability: float, seed: int = 0) -> list[tuple[int, int]]:
    if not 0 <= probability <= 1:
        raise RequestError(f"the probability of an arc is {probability}: it must lie between 0 and 1")
    if seed < 0:
        raise RequestError(f"the seed is {seed}: it must not be negative")
    drawn = np.random.default_rng(seed).random((n, n)) < probability
    np.fill_diagonal(drawn, val=False)
    return [(tail, head) for tail, head in np.argwhere(drawn).tolist()]
