"""Is the stated truth right? Decided by exact enumeration over all inputs, never by an instrument that is judged."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.analyses.calibrate.rung import Rung
from headlab.interp.circuits import Edge, Node
from headlab.interp.model import untouched
from headlab.interp.paths import exact_effects
from headlab.interp.wiring import Wiring, wire

GAP = 2.0  # by how much the smallest true effect must exceed the largest false one


@dataclass(frozen=True, eq=False)
class Certificate:
    """What enumeration says of one rung's truth under one kind.

    edges: the candidates, those from which something can reach a position that is read.
    largest: per candidate, its largest |effect| over inputs (and contexts). mean: its mean |effect| alone.
    smallest_true, largest_false: of `largest`, contested edges left out. gap: their ratio, inf where no false
        edge acts.
    lost: true edges that are no candidates. accuracy: share of inputs that the model answers right.
    state: `proved`, `enumerated` or `measured` where all inputs are right and the gap is at least 2, else `void`
        (`open` where the truth was to be measured).
    """

    edges: tuple[Edge, ...]
    largest: Float[Tensor, " edge"]
    mean: Float[Tensor, " edge"]
    smallest_true: float
    largest_false: float
    worst_true: str
    worst_false: str
    lost: tuple[Edge, ...]
    accuracy: float
    state: str

    @property
    def gap(self) -> float:
        """Smallest true over largest false effect."""
        return self.smallest_true / self.largest_false if self.largest_false > 0 else float("inf")

    @property
    def holds(self) -> bool:
        """Whether the truth stands."""
        return self.state not in ("void", "open")


def candidates(wiring: Wiring, rung: Rung) -> tuple[Edge, ...]:
    """The edges from which something can reach a position that is read."""
    return tuple(edge for edge in wiring.edges(end=rung.read) if wiring.acts(edge, set(rung.read)))


def _without(rung: Rung, kind: str, node: Node, edges: tuple[Edge, ...]) -> Float[Tensor, "edge example"]:
    """|Effects| of `edges` in the model in which all that `node`, a head, writes is replaced."""
    put, model = rung.interventions[kind], rung.model
    effects = torch.zeros(len(edges), len(rung.inputs), dtype=torch.float64)
    rows = [i for i, edge in enumerate(edges) if node not in (edge.source, edge.destination)]  # others are cut off
    if kind == "zero":  # the same model without the head's output: nothing else of it is left to be cut
        model = copy.deepcopy(model)
        with torch.no_grad():
            model.blocks[node.layer].attn.W_O[node.head] = 0.0
    with untouched(model):
        wiring = wire(model, rung.inputs)
        cut = () if kind == "zero" else tuple(edge for edge in wiring.edges(end=rung.read) if edge.source == node)
        effect = exact_effects(wiring, [(edges[i],) for i in rows], rung.metric, put, cut, rung.read).effect
    effects[rows] = effect.abs()
    return effects


def certify(rung: Rung, kind: str) -> Certificate:
    """Enumerate every candidate's effect on every input, alone and in the rung's contexts, and hold the truth to it."""
    put = rung.interventions[kind]
    with untouched(rung.model):
        wiring = wire(rung.model, rung.inputs)
        edges = candidates(wiring, rung)
        accuracy = float(rung.right(wiring.logits[:, list(rung.read)]).mean())
        singles = [(edge,) for edge in edges]
        effects = [exact_effects(wiring, singles, rung.metric, put, (), rung.read).effect.abs()]
    for node in rung.contexts.get(kind, ()):
        effects.append(_without(rung, kind, node, edges))
    effects = torch.stack(effects)
    largest = effects.amax((0, 2))
    truth, contested = rung.truth[kind], rung.contested.get(kind, frozenset())
    true = [i for i, edge in enumerate(edges) if edge in truth]
    false = [i for i, edge in enumerate(edges) if edge not in truth and edge not in contested]
    low = min(true, key=lambda i: float(largest[i]), default=None)
    high = max(false, key=lambda i: float(largest[i]), default=None)
    smallest = float("nan") if low is None else float(largest[low])
    highest = 0.0 if high is None else float(largest[high])
    lost = tuple(sorted(truth - set(edges)))
    holds = not lost and accuracy == 1.0 and smallest >= GAP * highest and smallest > 0
    return Certificate(
        edges=edges,
        largest=largest,
        mean=effects[0].mean(1),
        smallest_true=smallest,
        largest_false=highest,
        worst_true="" if low is None else str(edges[low]),
        worst_false="" if high is None else str(edges[high]),
        lost=lost,
        accuracy=accuracy,
        state=rung.basis if holds else ("open" if rung.basis == "measured" else "void"),
    )
