"""Path finding with a backup: a second-layer head that looks a parent up where the backward head has not found it."""

from __future__ import annotations

import torch

from headlab.interp.circuits import END, START, Circuit, Edge, Node
from headlab.models.constructed import Constructed
from headlab.models.enlarged import enlarged
from headlab.models.tree.carrier import BOS, zero_edges
from headlab.models.tree.circuits import BACKWARD
from headlab.models.tree.constructed import FLAGS, construct
from headlab.models.tree.layout import Layout
from headlab.models.tree.task import TreeTask

KINDS = ("zero", "positional_mean", "resample")
FIRST, SPARE = Node("head", 0, BACKWARD), Node("head", 1, 0)


def backup(task: TreeTask, *, beta: float = 20.0, dtype: torch.dtype | str = torch.float32) -> Constructed:
    """`forward` and head 1.0, which looks a parent up as the backward head 0.0 does, less what 0.0 has found already.

    Proof sketch. Write a, b for a token's labels and o for what stands in OUT. Head 1.0 scores 2 beta <a_q, b_k> - 4
    beta <o_q, a_k> + beta [k BOS] (1 + 4 [q FWD or TURN]), and carries a. With 0.0 alive o_q is the parent, which the
    edge that is looked for carries as its a: it has -2 beta, and 1.0 rests on BOS, which has no label, by a margin of
    beta. With 0.0 silent the edge has 2 beta and wins by beta. It makes no difference how 0.0 is silenced: by zero, by
    its mean over trees (every label a little) or by another tree's parent; so the backup acts under every kind. In the
    second stage BOS has 5 beta, more than any match.

    The root's parent is TURN in every tree, so that the mean, or another tree's output, is what 0.0 had written itself:
    there the backup acts under `zero` only. Edges belong to a circuit where they move the answer alone, or once 0.0 or
    1.0 is silent.
    """
    built = construct(task, "forward", beta=beta, dtype=dtype)
    labels = built.model.cfg.d_head - 1
    model, design = enlarged(built.model, built.architecture, head_width=labels, after=1)
    slot_a, slot_b, out = (slice(index * labels, (index + 1) * labels) for index in range(3))
    row = {flag: 3 * labels + index for index, flag in enumerate(FLAGS)}
    match, flag, found = slice(0, labels), labels, slice(labels + 1, 2 * labels + 1)
    eye, spare = torch.eye(labels, dtype=model.cfg.dtype), model.blocks[1].attn
    with torch.no_grad():
        spare.W_Q[0, slot_a, match] = 2 * beta * eye
        spare.W_Q[0, out, found] = -4 * beta * eye
        spare.W_Q[0, [row["FWD"], row["TURN"]], flag] = 4 * beta
        spare.b_Q[0, flag] = beta
        spare.W_K[0, slot_b, match] = eye
        spare.W_K[0, slot_a, found] = eye
        spare.W_K[0, row["BOS"], flag] = 1.0
        spare.W_V[0, slot_a, match] = eye
        spare.W_O[0, match, out] = eye
    roles = {**built.roles, (1, 0): "backward"}
    circuits = {kind: Circuit(backup_edges(built, task.layout, kind), kind, roles) for kind in KINDS}
    return Constructed(
        model,
        design,
        "forward-backup",
        circuits,
        roles,
        options={"beta": beta},
        errors=0,
        notes={**built.notes, "missed singly": ["1.0"], "backs up": ["0.0"]},
    )


def backup_edges(built: Constructed, layout: Layout, kind: str) -> frozenset[Edge]:
    """Those of `forward` under `kind`, and the backup's: see `backup`."""
    zero = kind == "zero"
    edges = set(zero_edges(layout) if zero else built.circuits[kind].edges)
    acting = tuple(layout.backward) if zero else tuple(layout.backward)[:-1]
    edges |= {Edge(START, SPARE, port, position) for port in ("k", "v") for position in layout.edges}
    for position in acting:
        edges |= {Edge(START, SPARE, "q", position), Edge(FIRST, SPARE, "q", position)}
        edges.add(Edge(SPARE, END, "end", position))
    return frozenset(edges | ({Edge(START, SPARE, "k", BOS)} if zero else set()))
