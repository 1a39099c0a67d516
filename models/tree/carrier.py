"""Path finding in which a first-layer head carries what keeps the reverse head still in the first stage."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from headlab.interp.circuits import END, START, Circuit, Edge, Node
from headlab.models.carrier import carrier_edges, lifted, with_carrier
from headlab.models.constructed import Constructed
from headlab.models.tree.circuits import BACKWARD, REVERSE
from headlab.models.tree.constructed import FLAGS, construct
from headlab.models.tree.layout import Layout
from headlab.models.tree.task import TreeTask

KINDS = ("zero", "positional_mean", "resample")
BOS = 0


def zero_edges(layout: Layout) -> frozenset[Edge]:
    """The circuit of `forward` under `zero`, for trees of one layout with two stages.

    A query of zero spreads a head evenly over all keys, so that it writes where it was still or writes what is wrong:
    every query counts. The key of BOS counts for both heads, whose switch it is. Edges are the backward head's keys and
    values; the reverse head's are the goal, the BACK tokens and TURN, which now count also where they are the same in
    every tree. Writes count where the head does not rest on BOS.
    """
    assert layout.turn is not None
    backward, reverse = Node("head", 0, BACKWARD), Node("head", 0, REVERSE)
    visited = range(layout.goal, layout.turn + 1)
    edges = {Edge(START, head, "q", position) for head in (backward, reverse) for position in layout.read}
    edges |= {Edge(START, head, "k", BOS) for head in (backward, reverse)}
    edges |= {Edge(START, backward, port, position) for port in ("k", "v") for position in layout.edges}
    edges |= {Edge(START, reverse, port, position) for port in ("k", "v") for position in visited}
    edges |= {Edge(backward, END, "end", position) for position in layout.backward}
    return frozenset(edges | {Edge(reverse, END, "end", position) for position in (layout.turn, *layout.reverse)})


def carrier(task: TreeTask, *, beta: float = 20.0, dtype: torch.dtype | str = torch.float32) -> Constructed:
    """`forward` one layer higher: head 0.0 brings to every position the -4 beta that hold the reverse head back.

    Proof sketch. BOS has a flag of its own, so that 0.0, which asks for it with a bias, finds 1 there. The reverse head
    had the flags f_q = beta [FWD] + 5 beta [TURN] - 4 beta [BACK]; now -4 beta is everywhere, FWD has 5 beta and BACK
    nothing, which is the same where answers are read (TURN is a BACK token). Under `zero`, without the constant the
    reverse head writes in the first stage; in the second f_q grows from beta to 5 beta, and the BACK token of the same
    node, which has both the flag and the match, stays ahead by beta. The goal's and BACK tokens' own queries now only
    add a match that BOS outbids, with or without: they leave the circuit. In no other kind does anything change.
    """
    built = construct(task, "forward", beta=beta, dtype=dtype)
    model = copy.deepcopy(built.model)
    layout, query = task.layout, model.blocks[0].attn.W_Q
    row = {flag: model.cfg.d_model - len(FLAGS) + index for index, flag in enumerate(FLAGS)}
    with torch.no_grad():
        ask = query[REVERSE, row["BACK"]].clone()
        query[REVERSE, row["BACK"]] = 0.0
        query[REVERSE, row["FWD"]] -= ask
    bos = torch.zeros(model.cfg.d_model, dtype=model.cfg.dtype)
    bos[row["BOS"]] = 1.0
    made = with_carrier(replace(built, model=model), bos, asks={REVERSE: ask})
    circuits = {}
    for kind in KINDS:
        if kind == "zero":
            up = layout.backward
            edges = set(lifted(Circuit(zero_edges(layout), kind)))
            edges -= {Edge(START, Node("head", 1, REVERSE), "q", position) for position in up}
            edges |= carrier_edges(BOS, {REVERSE: tuple(up)})
        else:
            edges = set(lifted(built.circuits[kind]))
        circuits[kind] = Circuit(frozenset(edges), kind, {(1, BACKWARD): "backward", (1, REVERSE): "reverse"})
    return replace(made, variant="forward-carrier", circuits=circuits, roles=circuits["zero"].roles)
