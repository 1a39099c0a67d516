"""Many edges as arrays: a million of them are four columns of numbers, and `Edge` objects where one is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, overload

import numpy as np

from headlab.interp.circuits import END, START, Edge, Node, Port
from headlab.interp.errors import RequestError
from headlab.interp.model import HookedModel

QKV: tuple[Port, ...] = ("q", "k", "v")
Reader = tuple[Node, Port]
WHOLE = -1  # in the column of positions: the edge at every position together


def reader_name(reader: Reader) -> str:
    """`1.0.q` for a head's port, `mlp1`, `end`."""
    node, port = reader
    return f"{node}.{port}" if port in QKV else str(node)


def writers_of(model: HookedModel) -> tuple[Node, ...]:
    """Every node that writes to the residual stream, in model order: start, then by layer its heads and its MLP."""
    nodes: list[Node] = [START]
    for layer in range(int(model.cfg.n_layers)):
        nodes += [Node("head", layer, head) for head in range(int(model.cfg.n_heads))]
        nodes += [] if model.cfg.attn_only else [Node("mlp", layer)]
    return tuple(nodes)


def readers_of(nodes: Iterable[Node]) -> tuple[Reader, ...]:
    """Every place where the nodes read the residual stream, and its end, in model order."""
    found: list[Reader] = []
    for node in nodes:
        if node.kind == "head":
            found.extend((node, port) for port in QKV)
        elif node.kind == "mlp":
            found.append((node, "mlp"))
    return (*found, (END, "end"))


def reaches(source: Node, reader: Reader, *, parallel: bool) -> bool:
    """Whether the reader's residual stream holds what `source` writes. parallel: the MLP reads before the heads
    write."""
    node, port = reader
    if port == "end" or node.layer > source.layer:
        return True
    return port == "mlp" and node.layer == source.layer and source.kind == "head" and not parallel


@dataclass(frozen=True, eq=False)
class EdgeTable(Sequence[Edge]):
    """Edges in three columns. Indexing gives an `Edge`; a slice or an array of rows gives a table.

    nodes, readers: what the columns count. position: where the value is read; -1 for the edge at every position
    together, whose `Edge.position` is None. A table holds one of the two kinds.
    """

    nodes: tuple[Node, ...]
    readers: tuple[Reader, ...]
    source: np.ndarray
    reader: np.ndarray
    position: np.ndarray

    @classmethod
    def every(
        cls,
        nodes: Sequence[Node],
        *,
        positions: Sequence[int] | None,
        end: Sequence[int] | None = None,
        parallel: bool = False,
        from_: str = "*",
        to: str = "*",
    ) -> EdgeTable:
        """All edges between `nodes` and into the end, sorted; at `positions`, into the end at `end`; without positions
        (None) each edge once. from_, to: patterns on the names of source and reader."""
        sources = tuple(sorted(nodes))
        readers = tuple(sorted(readers_of(nodes)))
        reads = np.array([[reaches(source, reader, parallel=parallel) for reader in readers] for source in sources])
        reads &= np.array([fnmatchcase(str(source), from_) for source in sources])[:, None]
        reads &= np.array([fnmatchcase(reader_name(reader), to) for reader in readers])[None]
        source, reader = reads.nonzero()
        if positions is None:
            return cls(sources, readers, source, reader, np.full(len(source), WHOLE))
        inside, at_end = np.array(sorted(positions)), np.array(sorted(positions if end is None else end))
        last = np.array([port == "end" for _, port in readers])[reader]
        count = np.where(last, len(at_end), len(inside))
        row = np.repeat(np.arange(len(source)), count)
        nth = np.arange(len(row)) - np.repeat(count.cumsum() - count, count)
        width = max(len(inside), len(at_end), 1)
        choices = np.zeros((2, width), dtype=np.int64)
        choices[0, : len(inside)], choices[1, : len(at_end)] = inside, at_end
        return cls(sources, readers, source[row], reader[row], choices[last[row].astype(int), nth])

    @classmethod
    def of(cls, edges: Iterable[Edge]) -> EdgeTable:
        """The edges as a table, in their order, each once (a table is returned as it is). RequestError for edges with
        and without a position together."""
        if isinstance(edges, EdgeTable):
            return edges
        edges = tuple(dict.fromkeys(edges))
        if len({edge.position is None for edge in edges}) > 1:
            raise RequestError("some edges have a position and some have none: give edges of one kind")
        nodes = tuple(dict.fromkeys(edge.source for edge in edges))
        readers: tuple[Reader, ...] = tuple(dict.fromkeys((edge.destination, edge.port) for edge in edges))
        node_row, reader_row = ({key: row for row, key in enumerate(keys)} for keys in (nodes, readers))
        source = np.array([node_row[edge.source] for edge in edges], dtype=np.int64)
        reader = np.array([reader_row[edge.destination, edge.port] for edge in edges], dtype=np.int64)
        position = np.array([WHOLE if edge.position is None else edge.position for edge in edges], dtype=np.int64)
        return cls(nodes, readers, source, reader, position)

    @property
    def whole(self) -> bool:
        """Whether these are edges at every position together."""
        return bool(len(self)) and bool(self.position[0] == WHOLE)

    def __len__(self) -> int:
        return len(self.source)

    @overload
    def __getitem__(self, row: int) -> Edge: ...

    @overload
    def __getitem__(self, row: slice) -> EdgeTable: ...

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, (int, np.integer)):
            node, port = self.readers[self.reader[row]]
            at = int(self.position[row])
            return Edge(self.nodes[self.source[row]], node, port, None if at == WHOLE else at)
        return EdgeTable(self.nodes, self.readers, self.source[row], self.reader[row], self.position[row])

    def __iter__(self) -> Iterator[Edge]:
        for source, reader, at in zip(self.source.tolist(), self.reader.tolist(), self.position.tolist(), strict=True):
            node, port = self.readers[reader]
            yield Edge(self.nodes[source], node, port, None if at == WHOLE else at)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(a == b for a, b in zip(self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"EdgeTable of {len(self):,} edges from {len(self.nodes)} nodes to {len(self.readers)} readers"


@dataclass(frozen=True, eq=False)
class SingleEdges(Sequence[tuple[Edge, ...]]):
    """The edges of a table as sets of one."""

    table: EdgeTable

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, row: Any) -> Any:
        return SingleEdges(self.table[row]) if isinstance(row, slice) else (self.table[row],)


def edges(model: HookedModel, *, from_: str = "*", to: str = "*", positions: Iterable[int] | None = None) -> EdgeTable:
    """The edges of a model whose source and reader match two patterns.

    Args:
        model: The model.
        from_: Pattern on the source's name, as a shell's: `start`, `1.0` (head 0 of layer 1), `mlp*`.
        to: Pattern on the reader's name: `1.0.q`, `*.v`, `mlp1`, `end`.
        positions: Where the values are read, from 0; without it, each edge at every position together, which is the
            unit of EAP-IG.

    Returns:
        The edges, sorted.

    Example:
        >>> edges(model, from_="0.*", to="1.*.k", positions=range(8))
    """
    parallel = bool(getattr(model.cfg, "parallel_attn_mlp", False))
    chosen = None if positions is None else tuple(positions)
    return EdgeTable.every(writers_of(model), positions=chosen, parallel=parallel, from_=from_, to=to)
