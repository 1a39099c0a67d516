"""Sparse parity in which a first-layer head carries the constant that every head asks with."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from headlab.interp.circuits import Circuit
from headlab.models.carrier import carrier_edges, lifted, read_later, with_carrier
from headlab.models.constructed import Constructed
from headlab.models.xor.constructed import limit
from headlab.models.xor.task import XorTask

KINDS = ("zero", "positional_mean", "resample")


def carrier(
    task: XorTask, *, scale: float | None = None, seed: int = 0, dtype: torch.dtype | str = torch.float32
) -> Constructed:
    """`limit` on `padded` sequences, one layer higher: its queries, which were biases, are a constant that head 0.0
    brings to the CLS.

    Proof sketch. The padding has an axis of its own; 0.0 asks for it with a bias and finds 1 there. The heads of layer
    1 ask with that number times theta_h, so that they are those of `limit`. Under `zero` the key or the value of the
    padding, or what 0.0 writes, takes the queries away (or leaves 1/(d + 1) of them); in no other kind does anything
    change, since the padding is the same in every run.
    """
    built = limit(task, scale=scale, seed=seed, dtype=dtype)
    model = copy.deepcopy(built.model)
    heads = range(len(task.targets))
    with torch.no_grad():
        asks = {head: model.blocks[0].attn.b_Q[head].clone() for head in heads}
        model.blocks[0].attn.b_Q[:] = 0.0
    made = with_carrier(replace(built, model=model), None, asks=asks, padded=True)
    circuits = {}
    for kind in KINDS:
        edges = read_later(lifted(task.circuit("limit", kind)))
        if kind == "zero":
            edges |= carrier_edges(task.bits, dict.fromkeys(heads, (task.bits + 1,)))
        circuits[kind] = Circuit(frozenset(edges), kind, {(1, head): task.role_names[head] for head in heads})
    return replace(made, variant="limit-carrier", circuits=circuits, roles=circuits["zero"].roles)
