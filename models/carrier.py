"""A constant carrier: a first-layer head that brings every query the same number, with which the task's heads ask.

What the head writes is the same in every run. Replaced by zero it takes the queries away; replaced by its mean, or by
another run's, nothing changes. So the head and its edges belong to the circuit under `zero` and to no other: whether a
component is "important" depends on what is put in its place (Miller et al. 2024).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.circuits import START, Circuit, Edge, Node
from headlab.models.constructed import Constructed
from headlab.models.enlarged import enlarged

CARRIER = Node("head", 0, 0)
SHARP = 40.0  # nats by which the marked position wins: e^-40 of the attention goes elsewhere


def lifted(circuit: Circuit) -> frozenset[Edge]:
    """The edges of a one-layer circuit in a model whose heads stand one layer higher."""
    return frozenset(
        replace(edge, source=_up(edge.source), destination=_up(edge.destination)) for edge in circuit.edges
    )


def _up(node: Node) -> Node:
    return replace(node, layer=node.layer + 1) if node.kind == "head" else node


def with_carrier(
    built: Constructed,
    key: Float[Tensor, " model"] | None,
    *,
    query: Float[Tensor, " model"] | None = None,
    asks: Mapping[int, Float[Tensor, " d_head"]],
    padded: bool = False,
) -> Constructed:
    """`built` one layer higher, below it a head 0.0 that carries a constant into a new axis, the last.

    Args:
        built: a construction of one layer, whose queries the caller has stripped of what `asks` gives back.
        key: the residual direction that marks the position looked at, of length 1 there; the constant is 1.
        query: the residual direction that asks, of length 1 where it does; None asks with a bias, everywhere.
        asks: head -> what the constant adds to its query.
        padded: the sequences have a token of zeros before the last, which is marked by an axis of its own and looked
            at; no position before it sees it, so that the constant is written where it is needed only. `key` is None.

    Returns:
        `built` with that model and architecture. Residual axes: the old ones, the padding's where there is one, and
        the constant's, which is the last.
    """
    own = built.model.cfg.d_model
    model, architecture = enlarged(built.model, built.architecture, width=1 + padded, positions=int(padded), before=1)
    first, second = model.blocks[0].attn, model.blocks[1].attn
    with torch.no_grad():
        if key is None:
            model.pos_embed.W_pos[-2, own] = 1.0
            first.W_K[0, own, 0] = first.W_V[0, own, 0] = 1.0
        else:
            first.W_K[0, :own, 0] = key.to(first.W_K)
            first.W_V[0, :own, 0] = key.to(first.W_V)
        if query is None:
            first.b_Q[0, 0] = SHARP
        else:
            first.W_Q[0, :own, 0] = SHARP * query.to(first.W_Q)
        first.W_O[0, 0, -1] = 1.0
        for head, asked in asks.items():
            second.W_Q[head, -1] = asked.to(second.W_Q)
    return replace(built, model=model, architecture=architecture)


def read_later(edges: Iterable[Edge]) -> set[Edge]:
    """The edges where the last position, which alone asks and is read, stands one later, behind a padding."""
    return {
        replace(edge, position=cast("int", edge.position) + 1) if edge.port in ("q", "end") else edge for edge in edges
    }


def carrier_edges(at: int, read: Mapping[int, tuple[int, ...]], *, query: tuple[int, ...] = ()) -> set[Edge]:
    """The carrier's own edges under `zero`: at the marked position `at`, into the queries of layer 1 by head, and its
    own queries where it asks with a direction of the residual stream."""
    edges = {Edge(START, CARRIER, "k", at), Edge(START, CARRIER, "v", at)}
    edges |= {Edge(START, CARRIER, "q", position) for position in query}
    return edges | {Edge(CARRIER, Node("head", 1, h), "q", position) for h, own in read.items() for position in own}
