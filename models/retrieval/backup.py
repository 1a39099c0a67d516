"""Retrieval with a backup: a second-layer head that retrieves the first coordinate once the first head is silent."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.circuits import END, START, Circuit, Edge, Node
from headlab.models.carrier import read_later
from headlab.models.constructed import Constructed
from headlab.models.enlarged import enlarged
from headlab.models.retrieval.carrier import zero_edges
from headlab.models.retrieval.constructed import head_per_coordinate
from headlab.models.retrieval.task import RetrievalTask

KINDS = ("zero", "positional_mean", "resample")
FIRST, SPARE = Node("head", 0, 0), Node("head", 1, 0)


def padded(tokens: Float[Tensor, "example position feature"]) -> Float[Tensor, "example position+1 feature"]:
    """The sequences with a last token of zeros, on which the backup can rest."""
    return torch.cat([tokens, torch.zeros_like(tokens[:, :1])], dim=1)


def backup(task: RetrievalTask, *, beta: float = 200.0, dtype: torch.dtype | str = torch.float32) -> Constructed:
    """`head_per_coordinate` on `padded` sequences, and head 1.0, which retrieves coordinate 0 where 0.0 is silent.

    Residual axes: those of the construction, `pad` (1 at the padding), `done`. Proof sketch, G the gate's score. 0.0
    also writes its attention on S_0 into `done`: 1 up to the gate's leak. Head 1.0 scores the tokens as 0.0 does, at
    most G + beta times the spread of f, and the padding with four times G done. With 0.0 alive it rests on the padding,
    whose value is 0; with 0.0 silent by `zero`, done is 0 and it retrieves as 0.0 did. The mean of 0.0 over inputs, and
    another run's output, hold the same done = 1: under these kinds the backup never acts.

    The family must be gated (some S_i is not the whole sequence). Raises ValueError where it is not.
    """
    family = task.family
    if family.is_whole:
        raise ValueError("the backup tells its own tokens by the gate: take position sets that are not whole sequences")
    built = head_per_coordinate(task, beta=beta, dtype=dtype)
    model, design = enlarged(built.model, built.architecture, width=2, head_width=1, positions=1, after=1)
    pad, done, gate = built.model.cfg.d_model, built.model.cfg.d_model + 1, family.coordinates
    first, spare = (model.blocks[layer].attn for layer in (0, 1))
    positions = model.pos_embed.W_pos
    with torch.no_grad():
        positions[family.length] = 0.0
        positions[family.length, pad] = 1.0
        first.W_V[0, gate, -1] = 1.0
        first.W_O[0, -1, done] = 1.0
        spare.W_Q[0] = first.W_Q[0]
        spare.W_K[0] = first.W_K[0]
        # Half of the score on either side: one weight that large would drown the others in noise.
        spare.W_Q[0, done, -1] = spare.W_K[0, pad, -1] = math.sqrt(4 * float(built.notes["gate"]))
        spare.W_V[0, :, 0] = first.W_V[0, :, 0]
        spare.W_O[0, 0] = first.W_O[0, 0]
    cls = family.length + 1
    roles = {**built.roles, (1, 0): task.role_names[0]}
    circuits = {}
    for kind in KINDS:
        mean = built.circuits["positional_mean" if kind == "zero" else kind]
        plain = zero_edges(task, mean) if kind == "zero" else mean.edges
        edges = read_later(plain)
        if kind == "zero":
            edges |= {Edge(START, SPARE, port, position) for position in family.position_sets[0] for port in ("k", "v")}
            edges |= {Edge(START, SPARE, "k", family.length), Edge(START, SPARE, "q", cls)}
            edges |= {Edge(FIRST, SPARE, "q", cls), Edge(SPARE, END, "end", cls)}
        circuits[kind] = Circuit(frozenset(edges), kind, roles)
    return Constructed(
        model,
        design,
        "head-per-coordinate-backup",
        circuits,
        roles,
        options={"beta": beta},
        notes={**built.notes, "missed singly": ["1.0"], "backs up": ["0.0"]},
    )
