"""Endpoint selection in which a first-layer head carries the constant that both heads ask with."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from headlab.interp.circuits import Circuit
from headlab.models.carrier import carrier_edges, lifted, with_carrier
from headlab.models.constructed import Constructed
from headlab.models.esp.circuits import true_circuit
from headlab.models.esp.task import EspTask
from headlab.models.esp.two_heads import ETA, two_head

KINDS = ("zero", "positional_mean", "resample")
QUERY = 3


def carrier(task: EspTask, *, sink: float = 8.0, dtype: torch.dtype | str = torch.float32) -> Constructed:
    """`two_head` one layer higher; head 0.0 brings to '#' what both heads ask with.

    Proof sketch. 0.0 asks at '#' with the axis `query`, which '#' alone has, and finds '#' itself: every other token
    scores 0. It writes 1 to a new axis, which the heads of layer 1 read in the place of `query`, so that they are those
    of `two_head`. Under `zero` the query, key or value of 0.0, or what it writes, takes away all queries of layer 1;
    the embedding's own edges into these carry nothing. In no other kind does anything change: '#' is '#' in every run.
    Raises ValueError for a task in the induction form.
    """
    if task.induction:
        raise ValueError("the carrier is written for (u, v, i, #): take a task without the induction form")
    built = two_head(task, sink=sink, dtype=dtype)
    model = copy.deepcopy(built.model)
    axis = model.cfg.d_model - 1  # `query`
    with torch.no_grad():
        asks = {head: ETA * model.blocks[0].attn.W_Q[head, axis].clone() for head in (0, 1)}
        model.blocks[0].attn.W_Q[:, axis] = 0.0
    direction = torch.zeros(model.cfg.d_model, dtype=model.cfg.dtype)
    direction[axis] = 1 / ETA
    made = with_carrier(replace(built, model=model), direction, query=direction, asks=asks)
    circuits = {}
    for kind in KINDS:
        edges = lifted(true_circuit("two-head", kind))
        if kind == "zero":
            edges = {edge for edge in edges if edge.port != "q"}
            edges |= carrier_edges(QUERY, dict.fromkeys((0, 1), (QUERY,)), query=(QUERY,))
        circuits[kind] = Circuit(frozenset(edges), kind, {(1, 0): "endpoint 1", (1, 1): "endpoint 2"})
    return replace(made, variant="two-head-carrier", circuits=circuits, roles=circuits["zero"].roles)
