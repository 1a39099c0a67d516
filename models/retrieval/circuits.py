"""The true circuits of the retrieval constructions: which edges act, under each kind of ablation."""

from __future__ import annotations

from headlab.interp.circuits import END, START, Circuit, Edge, Node
from headlab.interp.errors import UnknownName
from headlab.models.retrieval.family import Family

PER_COORDINATE, MEMORISE = "head-per-coordinate", "memorise"
VARIANTS = (PER_COORDINATE, MEMORISE)
REFERENCE = {
    "resample": "other sequences of the task's distribution",
    "positional_mean": "the mean over sequences, position by position",
    "zero": "",
}


def kinds(family: Family, variant: str) -> tuple[str, ...]:
    """The kinds of ablation under which the circuit of `variant` is known. Raises KeyError for another variant."""
    if variant == MEMORISE:
        return ("resample", "positional_mean", "zero")
    if variant == PER_COORDINATE:
        return ("resample", "positional_mean", *(f"resample:coordinate-{i}" for i in range(family.coordinates)))
    raise UnknownName(f"no construction '{variant}' of retrieval: there are {', '.join(VARIANTS)}")


def true_circuit(family: Family, variant: str, ablation: str, *, heads: int | None = None) -> Circuit:
    """The circuit of `variant` under `ablation`, with the roles of its heads.

    head-per-coordinate: head i reads keys and values over S_i and writes z_i to the CLS; its query is the same in
    every run, so that it carries nothing. `resample:coordinate-i` replaces by runs in which that one minimum differs
    (the task's contrast), which pass through head i alone. memorise: the one head carries every token of some S_i as
    its value; its attention is constant. heads: of a model with fewer heads than coordinates, the first `heads`
    coordinates. Raises KeyError for an unknown variant or kind, listing those there are.
    """
    known = kinds(family, variant)
    if ablation not in known:
        raise UnknownName(
            f"the circuit of '{variant}' under '{ablation}' ablation is not known; known: {', '.join(known)}"
        )
    cls = family.length
    sets = family.position_sets
    kind, _, coordinate = ablation.partition(":")
    reference = f"sequences in which {coordinate} alone differs" if coordinate else REFERENCE[kind]
    if variant == MEMORISE:
        node = Node("head", 0, 0)
        edges = {Edge(START, node, "v", position) for own in sets for position in own}
        return Circuit(frozenset(edges | {Edge(node, END, "end", cls)}), ablation, {}, {}, reference)
    acting = range(family.coordinates if heads is None else min(heads, family.coordinates))
    edges = set()
    for head in acting:
        if coordinate not in ("", f"coordinate-{head}"):
            continue
        node = Node("head", 0, head)
        edges |= {Edge(START, node, port, position) for position in sets[head] for port in ("k", "v")}
        edges.add(Edge(node, END, "end", cls))
    roles = {(0, head): f"coordinate-{head}" for head in acting}
    return Circuit(frozenset(edges), ablation, roles, {}, reference)
