"""Methods from elsewhere: a function of plain hooks, and auto-circuit's, as methods of the calibration.

    def mine(model, inputs, value):            # value(logits) -> one number per example
        ...
        return {"blocks.0.attn.hook_z": tensor[example, position, head, width], ...}

    calibrate(from_hooks(mine), level="heads")

auto-circuit gives a score per edge of its own graph, named by source, destination and token position
(`AutoCircuit.PruneScores`); `from_auto_circuit` takes any function that returns such names, and needs no auto-circuit
to be installed: names are `Resid Start`, `A0.1` (a head), `MLP 0` for sources, `A0.1.Q` (`.K`, `.V`), `MLP 0`,
`Resid End` for destinations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from torch import Tensor

from headlab.analyses.calibrate.view import Method, View, item_of
from headlab.interp.circuits import END, Edge, Node

Named = tuple[str, str, int]


def from_hooks(score: Callable[[Any, Tensor, Callable[[Tensor], Tensor]], Mapping[str, Tensor]]) -> Method:
    """A function of (model, inputs, value) that gives a tensor per hook `blocks.L.attn.hook_z`
    [example, position, head, ...] becomes a method of heads or sites: the mean of |entries| over examples, summed over
    what is left. Raises ValueError, as the sentence of a cell, at the level of edges, which hooks do not tell apart."""

    def method(view: View) -> dict[Any, float]:
        if view.level == "edges":
            raise ValueError("hooks give a score per head or site: calibrate at the level heads or sites")
        found = score(view.model, view.inputs, view.value)
        scores = {}
        for item in view.items:
            layer, head, *position = item  # type: ignore[misc]
            value = found[f"blocks.{layer}.attn.hook_z"].detach()
            own = value.abs().mean(0)
            scores[item] = float((own[position[0], head] if position else own[:, head]).sum())
        return scores

    return method


def from_auto_circuit(score: Callable[[View], Mapping[Named, float]]) -> Method:
    """A function that scores edges by auto-circuit's names (source, destination, position) becomes a method of edges,
    or of heads and sites by the largest score among what each writes. An edge that it does not name has no score."""

    def method(view: View) -> dict[Any, float]:
        named = score(view)
        edges = {edge: float(named[key]) for edge in view.edges if (key := auto_circuit_name(edge)) in named}
        if view.level == "edges":
            return edges
        scores: dict[Any, float] = {}
        for edge, value in edges.items():
            item = item_of(view.level, edge)
            if item is not None:
                scores[item] = max(scores.get(item, float("-inf")), value)
        return scores

    return method


def auto_circuit_name(edge: Edge) -> Named:
    """The name of an edge in auto-circuit's graph: source node, destination node, token position."""

    def node(each: Node, port: str = "") -> str:
        if each.kind == "head":
            return f"A{each.layer}.{each.head}" + (f".{port.upper()}" if port in ("q", "k", "v") else "")
        if each.kind == "mlp":
            return f"MLP {each.layer}"
        return "Resid End" if each == END else "Resid Start"

    return node(edge.source), node(edge.destination, edge.port), cast("int", edge.position)
