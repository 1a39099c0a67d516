"""A circuit as a picture: what is read where, by which heads and MLPs, up to the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from headlab.interp.circuits import END, START, Circuit, Edge, Node
from headlab.interp.errors import RequestError
from headlab.interp.render.circuit import CircuitPanel, Link, circuit_diagram
from headlab.interp.render.circuit import Node as Mark
from headlab.interp.render.figure import Figure
from headlab.interp.render.theme import Head


def draw_circuit(
    circuit: Circuit,
    *,
    positions: Sequence[str] = (),
    badges: Sequence[tuple[tuple[int, int], str]] = (),
    title: str = "Circuit",
) -> Figure:
    """Columns of nodes in model order: the tokens that are read, then by layer heads and MLPs, then the end.

    positions: the names of the model's positions, numbers where none are given. badges: (layer, head) -> the key of the
    role's colour, A to L; other heads are drawn in ink. Edges between the same two nodes (q, k and v, or several
    positions) are one line, as wide as their weights in sum, with the names of a head's inputs on it; an unmeasured
    edge weighs 1, and shows no number. Raises ValueError for a circuit without edges.
    """
    if not circuit.edges:
        raise RequestError("the circuit has no edges: there is nothing to draw")
    keys = dict(badges)
    ports: dict[tuple[str, str], set[str]] = defaultdict(set)
    weights: dict[tuple[str, str], float] = defaultdict(float)
    for edge in sorted(circuit.edges):
        pair = (_source(edge), str(edge.destination))
        ports[pair].add(edge.port)
        weights[pair] += float(circuit.weights.get(edge, 1.0))
    columns: list[list[str]] = [sorted({_source(edge) for edge in circuit.edges if edge.source == START})]
    marks = {name: Mark(_label(int(name.split("@")[1]), positions)) for name in columns[0]}
    for node in circuit.nodes:
        if node in (START, END):
            continue
        marks[str(node)] = Mark(str(node), circuit.roles.get((node.layer, node.head), ""), head=_head(node, keys))
    for layer in sorted({node.layer for node in circuit.nodes if node not in (START, END)}):
        for kind in ("head", "mlp"):
            there = [str(node) for node in circuit.nodes if node.kind == kind and node.layer == layer]
            columns += [there] if there else []
    marks[str(END)] = Mark("end", strong=True)
    columns = [column for column in [*columns, [str(END)]] if column]
    place = {name: (i, row) for i, column in enumerate(columns) for row, name in enumerate(column)}
    measured = bool(circuit.weights)
    links = [
        Link(place[a], place[b], weight, ", ".join(sorted(ports[a, b] - {"end", "mlp"})), measured)
        for (a, b), weight in weights.items()
        if a in place and b in place
    ]
    told = "; ".join(f"{a} to {b} through {', '.join(sorted(names))}" for (a, b), names in sorted(ports.items()))
    return circuit_diagram(
        [CircuitPanel([[marks[name] for name in column] for column in columns], links)],
        headings=_headings(columns),
        unit="performance lost",
        threshold=0.0,
        positive="performance lost without it",
        negative="performance gained without it",
        size="width: how much",
        title=title,
        description=f"{len(circuit.edges)} edges under {circuit.ablation} ablation: {told}.",
        caption=f"{len(circuit.edges)} edges, {circuit.ablation} ablation"
        + (f", {circuit.ranking}." if circuit.ranking else "."),
    )


def _source(edge: Edge) -> str:
    return f"start@{edge.position or 0:04d}" if edge.source == START else str(edge.source)


def _label(position: int, positions: Sequence[str]) -> str:
    return positions[position] if position < len(positions) else f"position {position}"


def _head(node: Node, keys: dict[tuple[int, int], str]) -> Head | None:
    return Head(keys.get((node.layer, node.head), "ink"), str(node)) if node.kind == "head" else None


def _headings(columns: Sequence[Sequence[str]]) -> tuple[str, ...]:
    names = []
    for column in columns:
        first = column[0]
        names.append(
            "token"
            if first.startswith("start")
            else "end"
            if first == "end"
            else "MLP"
            if first.startswith("mlp")
            else f"heads of layer {first.split('.')[0]}"
        )
    return tuple(names)
