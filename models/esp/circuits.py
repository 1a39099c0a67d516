"""The true circuits of the constructions: which edges act, under each kind of ablation.

Edges start -> head (q, k, v at a position), start -> end and head -> end; metric: the logit difference of the target
and the other endpoint. An edge belongs to a circuit where replacing what it carries, alone, moves that metric; edges
that would move it only by the attention that a finite sink leaves over (of order e^-sink) do not belong.
"""

from __future__ import annotations

from headlab.interp.circuits import END, START, Circuit, Edge, Node, Port
from headlab.interp.errors import UnknownName

KINDS = ("resample:u", "resample:v", "resample:selector", "resample", "positional_mean", "zero")
REFERENCE = {
    "resample:u": "a run in which the first endpoint alone is redrawn",
    "resample:v": "a run in which the second endpoint alone is redrawn",
    "resample:selector": "a run in which the selector alone is redrawn",
    "resample": "a run in which both endpoints and the selector are redrawn",
    "positional_mean": "the mean over all samples of the task, position by position",
    "zero": "the null vector",
}
VARIANTS = ("one-head-dag", "one-head", "two-head", "two-head-narrow")


def true_circuit(variant: str, ablation: str, *, induction: bool = False) -> Circuit:
    """The circuit of `variant` under `ablation`, with the roles of its heads.

    Raises KeyError for an unknown variant or kind of ablation, listing those there are, and for a one-head variant on
    the induction form, which has none.
    """
    if variant not in VARIANTS:
        raise UnknownName(f"no construction '{variant}': there are {', '.join(VARIANTS)}")
    if ablation not in KINDS:
        raise UnknownName(f"the circuit under '{ablation}' ablation is not known; known: {', '.join(KINDS)}")
    u, v, selector, query = (1, 3, 5, 6) if induction else (0, 1, 2, 3)
    if variant in ("two-head", "two-head-narrow"):
        return _two_heads(ablation, u, v, selector, query, inert=(0, 2, 4) if induction else ())
    if induction:
        raise UnknownName(f"'{variant}' has no induction form: take two-head or two-head-narrow")
    return _one_head(ablation, u, v, selector, query, sharpened=variant == "one-head")


def _reads(head: int, port: Port, position: int) -> Edge:
    return Edge(START, Node("head", 0, head), port, position)


def _writes(head: int, position: int) -> Edge:
    return Edge(Node("head", 0, head), END, "end", position)


def _one_head(ablation: str, u: int, v: int, selector: int, query: int, *, sharpened: bool) -> Circuit:
    value = {name: _reads(0, "v", position) for name, position in (("u", u), ("v", v), ("selector", selector))}
    slot = ablation.partition(":")[2]
    edges = {value[slot]} if slot else set(value.values())
    if ablation == "zero" and sharpened:
        edges |= {_reads(0, "q", query), _reads(0, "k", u), _reads(0, "k", query)}
    return Circuit(frozenset(edges | {_writes(0, query)}), ablation, {}, {}, REFERENCE[ablation])


def _two_heads(ablation: str, u: int, v: int, selector: int, query: int, *, inert: tuple[int, ...]) -> Circuit:
    own, other = (u, v), (v, u)
    edges: set[Edge] = set()
    for head in (0, 1):
        moves = {_reads(head, "v", own[head])}
        switches = {_reads(head, "k", selector)}
        if ablation in ("resample:u", "resample:v"):
            edges |= moves | {_writes(head, query)} if ablation[-1] == "uv"[head] else set()
        elif ablation == "resample:selector":
            edges |= switches | {_writes(head, query)}
        else:
            edges |= moves | switches | {_writes(head, query)}
        if ablation == "zero":
            edges |= {_reads(head, "q", query), _reads(head, "k", other[head])}
            edges |= {_reads(head, "k", position) for position in inert}
    roles = {(0, 0): "endpoint 1", (0, 1): "endpoint 2"}
    return Circuit(frozenset(edges), ablation, roles, {}, REFERENCE[ablation])
