"""Sparse parity with a backup: a second-layer head that reads the first target once the first head is silent."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from headlab.interp.circuits import END, START, Circuit, Edge, Node
from headlab.models.carrier import read_later
from headlab.models.constructed import Constructed
from headlab.models.enlarged import enlarged
from headlab.models.xor.constructed import limit
from headlab.models.xor.task import XorTask

KINDS = ("zero", "positional_mean", "resample")
FIRST, SPARE = Node("head", 0, 0), Node("head", 1, 0)


def padded(bits: Float[Tensor, "example bit"]) -> Float[Tensor, "example bit+1"]:
    """The sequences with a last token of value 0, on which the backup can rest."""
    return F.pad(bits, (0, 1))


def backup(
    task: XorTask, *, scale: float | None = None, seed: int = 0, dtype: torch.dtype | str = torch.float32
) -> Constructed:
    """`limit` on `padded` sequences, and head 1.0, which does in the second layer what 0.0 does, where 0.0 is silent.

    Residual axes: those of `limit`, `one` (1 at every bit), `pad` (1 at the padding), `done`, and
    `bit`, the bits once more: 0.0 writes what it finds into the axis of the bits. Proof sketch, K the
    scale. 0.0 also writes its attention on `one` into `done`: 1, whatever the bits. Head 1.0 scores the bits as 0.0
    does, at most K, and the padding with 2K done. With 0.0 alive it rests on the padding by a margin of K, whose value
    is 0; with 0.0 silent by `zero`, done is 0 and it reads target 0, as 0.0 did. So cutting what 0.0 reads as value, or
    silencing either, alone costs nothing, and both cost the answer. The mean of 0.0 over inputs, and another run's
    output, hold the same done = 1: under these kinds the backup never acts, and no edge of it is part of the circuit.
    """
    built = limit(task, scale=scale, seed=seed, dtype=dtype)
    scale, width = float(built.notes["scale"]), int(built.options["width"])
    model, design = enlarged(built.model, built.architecture, width=4, head_width=1, positions=1, after=1)
    one, pad, done, bit = (built.model.cfg.d_model + index for index in range(4))
    first, spare = (model.blocks[layer].attn for layer in (0, 1))
    with torch.no_grad():
        model.pos_embed.W_pos[: task.bits, one] = 1.0
        model.pos_embed.W_pos[task.bits, pad] = 1.0
        first.W_V[0, one, -1] = 1.0
        first.W_O[0, -1, done] = 1.0
        spare.W_K[0, :width, :width] = torch.eye(width)
        spare.W_K[0, pad, -1] = 1.0
        spare.b_Q[0] = first.b_Q[0]
        spare.W_Q[0, done, -1] = 2 * scale
        model.embed.W_E[0, bit] = 1.0
        spare.W_V[0, bit] = first.W_V[0, width]
        spare.W_O[0, :-1] = first.W_O[0, :-1]
    cls = task.bits + 1
    roles = {**built.roles, (1, 0): task.role_names[0]}
    circuits = {}
    for kind in KINDS:
        edges = read_later(task.circuit("limit", kind).edges)
        if kind == "zero":
            target = task.targets[0]
            edges |= {Edge(START, SPARE, port, target) for port in ("k", "v")}
            edges |= {Edge(START, SPARE, "k", task.bits), Edge(FIRST, SPARE, "q", cls), Edge(SPARE, END, "end", cls)}
        circuits[kind] = Circuit(frozenset(edges), kind, roles)
    return Constructed(
        model,
        design,
        "limit-backup",
        circuits,
        roles,
        options=built.options,
        errors=0,
        notes={"scale": scale, "missed singly": ["1.0"], "backs up": ["0.0"]},
    )
