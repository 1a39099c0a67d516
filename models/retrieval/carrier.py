"""Retrieval in which a first-layer head carries the constant that every head asks with."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from headlab.interp.circuits import START, Circuit, Edge
from headlab.models.carrier import carrier_edges, lifted, read_later, with_carrier
from headlab.models.constructed import Constructed
from headlab.models.retrieval.circuits import PER_COORDINATE
from headlab.models.retrieval.constructed import head_per_coordinate
from headlab.models.retrieval.task import RetrievalTask

KINDS = ("zero", "positional_mean", "resample")


def zero_edges(task: RetrievalTask, mean: Circuit) -> frozenset[Edge]:
    """The circuit of `head_per_coordinate` under `zero`: that under the mean, and each head's query at the CLS, which
    is the same in every run. Keys and values outside S_i carry nothing: the gate keeps them out, at zero too."""
    heads = {edge.source for edge in mean.edges if edge.source.kind == "head"}
    return mean.edges | {Edge(START, head, "q", task.cls) for head in heads}


def carrier(task: RetrievalTask, *, beta: float = 200.0, dtype: torch.dtype | str = torch.float32) -> Constructed:
    """`head_per_coordinate` on `padded` sequences, one layer higher: head 0.0 brings the CLS what all heads ask with.

    Proof sketch. The padding has an axis of its own; 0.0 asks for it with a bias and finds 1 there, which replaces the
    axis `cls` in the queries of layer 1. Under `zero` the key or the value of the padding, or what 0.0 writes, takes
    these queries away (or leaves 1/(T + 1) of them: a softer minimum); in no other kind does anything change.
    """
    built = head_per_coordinate(task, beta=beta, dtype=dtype)
    model = copy.deepcopy(built.model)
    heads = range(task.family.coordinates)
    with torch.no_grad():
        asks = {head: model.blocks[0].attn.W_Q[head].sum(0) for head in heads}
        model.blocks[0].attn.W_Q[:] = 0.0
    made = with_carrier(replace(built, model=model), None, asks=asks, padded=True)
    circuits = {}
    for kind in KINDS:
        edges = read_later(lifted(built.circuits["positional_mean" if kind == "zero" else kind]))
        if kind == "zero":
            edges |= carrier_edges(task.cls, dict.fromkeys(heads, (task.cls + 1,)))
        circuits[kind] = Circuit(frozenset(edges), kind, {(1, head): task.role_names[head] for head in heads})
    return replace(made, variant=f"{PER_COORDINATE}-carrier", circuits=circuits, roles=circuits["zero"].roles)
