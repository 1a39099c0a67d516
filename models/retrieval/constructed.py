"""Retrieval written down: one head per coordinate, and one head that memorises the sequence.

Head per coordinate. The encoder writes f_i(x_t) to an axis of its own, head i scores -beta f_i + G r_i(t), where r_i
marks S_i, and its value is f_i, so that the CLS receives z~_i = sum_t softmax_t f_i, which exceeds z_i by at most
W0((|S_i| - 1) / e) / beta, plus what leaks past the gate. The read-out is F0 itself.

Memorise. Token t is placed in axes of its own; attention is uniform, so that T times it carries the whole sequence to
the CLS, and the read-out is the exact ReLU tournament.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from headlab.interp.errors import RequestError, UnknownName
from headlab.models.constructed import Constructed
from headlab.models.hooked import Architecture, build
from headlab.models.retrieval.architecture import config
from headlab.models.retrieval.bounds import gate_leak, require_beta, retrieval_error
from headlab.models.retrieval.circuits import MEMORISE, PER_COORDINATE, VARIANTS, kinds, true_circuit
from headlab.models.retrieval.family import Family
from headlab.models.retrieval.task import RetrievalTask
from headlab.models.retrieval.tournament import ReluNetwork, tournament

LEAK = 40.0  # nats by which the gate exceeds beta times the spread of f: e^-40 of the attention leaks, times T - |S|


def construct(
    task: RetrievalTask,
    variant: str = PER_COORDINATE,
    *,
    beta: float = 1000.0,
    heads: int | None = None,
    dtype: torch.dtype | str = torch.float32,
    device: str = "cpu",
) -> Constructed:
    """The construction `variant`. Raises KeyError, listing those there are, for another; errors as for each."""
    if variant == PER_COORDINATE:
        return head_per_coordinate(task, beta=beta, heads=heads, dtype=dtype, device=device)
    if variant == MEMORISE:
        if heads not in (None, 1):
            raise RequestError(f"{heads} heads: the construction that memorises has 1")
        return memorise(task, dtype=dtype, device=device)
    raise UnknownName(f"no variant '{variant}' of retrieval: there are {', '.join(VARIANTS)}")


def head_per_coordinate(
    task: RetrievalTask,
    *,
    beta: float = 1000.0,
    heads: int | None = None,
    dtype: torch.dtype | str = torch.float32,
    device: str = "cpu",
) -> Constructed:
    """Head i retrieves coordinate i, at softmax scale `beta`; `heads` below D gives the control.

    Without its head a coordinate reads its mean over the task's distribution, so that what is missing is information
    and no offset; the bound is then None. More heads than coordinates stay silent.
    notes: `beta`, `bound` (on |f - H| over sequences on which |f_i| <= `radius`; `radius` is None where F0 is linear
    and none is needed), `coordinate_bounds`, `gate`, `leak`, `spread`. The bounds are those of exact arithmetic.
    Raises ValueError for a beta that is not positive and finite, or no head.
    """
    family = task.family
    require_beta(beta)
    count = family.coordinates
    heads = count if heads is None else heads
    if heads < 1:
        raise RequestError(f"{heads} heads: a model has at least 1")
    gated = not family.is_whole
    spread = _spread(family)
    gate = beta * spread + LEAK if gated else 0.0
    axes = {"f": 0, "gate": count, "cls": 2 * count if gated else count}
    axes["z"] = axes["cls"] + 1
    design = _per_coordinate_architecture(family, heads, axes["z"], axes["z"] + count)
    model: Any = build(design, device=device, dtype=dtype)
    attention = model.blocks[0].attn
    vectors = torch.tensor(family.vectors, dtype=torch.float64)
    with torch.no_grad():
        if family.kind == "projection":
            model.embed.W_E[:, :count] = -vectors.T.to(model.embed.W_E)
        else:
            for i, centre in enumerate(vectors):
                own = slice(i * family.size, (i + 1) * family.size)
                model.embed.W_in[:, own] = torch.eye(family.size)
                model.embed.b_in[own] = -centre.to(model.embed.b_in)
                model.embed.W_E[own, i] = 1 / family.size
        model.embed.c0[axes["cls"]] = 1.0
        if heads < count:
            means = family.minima(task.draw(4096, 0)).double().mean(dim=0)
            model.embed.c0[axes["z"] + heads :] = means[heads:].to(model.embed.c0)
        for head in range(min(heads, count)):
            attention.W_Q[head, axes["cls"], 0] = 1.0
            attention.W_K[head, head, 0] = -beta
            attention.W_V[head, head, 0] = 1.0
            attention.W_O[head, 0, axes["z"] + head] = 1.0
            if gated:
                attention.W_K[head, axes["gate"] + head, 0] = gate
                model.pos_embed.W_pos[list(family.position_sets[head]), axes["gate"] + head] = 1.0
    complete = heads >= count
    leaks = [gate_leak(family.length - len(own), gate, beta, spread) for own in family.position_sets]
    errors = [
        retrieval_error(len(own), beta) + leak * spread for own, leak in zip(family.position_sets, leaks, strict=True)
    ]
    radius = None if family.outer.is_linear else spread
    bound = family.outer.lipschitz(spread) * max(errors) if complete else None
    return Constructed(
        model=model,
        architecture=design,
        variant=PER_COORDINATE,
        circuits={
            kind: true_circuit(family, PER_COORDINATE, kind, heads=heads) for kind in kinds(family, PER_COORDINATE)
        },
        roles={(0, head): task.role_names[head] for head in range(min(heads, count))},
        options={"beta": beta, "heads": heads},
        notes={
            "beta": beta,
            "bound": bound,
            "radius": radius,
            "coordinate_bounds": errors[:heads],
            "gate": gate,
            "leak": max(leaks),
            "spread": spread,
        },
    )


def memorise(task: RetrievalTask, *, dtype: torch.dtype | str = torch.float32, device: str = "cpu") -> Constructed:
    """One head of width T * d whose uniform attention carries the whole sequence, and an exact ReLU network behind it.

    notes: `bound`, 0 but for rounding; `parameters` of the network that are not 0; `depth`, its hidden layers.
    Raises ValueError where f is not a projection or F0 is not linear: a ReLU network is then not exact.
    """
    family = task.family
    if family.kind != "projection" or not family.outer.is_linear:
        raise RequestError(
            "the ReLU network that memorises is exact for projections under a linear F0 only: "
            "use head-per-coordinate for this target"
        )
    network, constant = _network(family)
    width = family.length * family.size
    design = Architecture(
        config=config(family, 1, width, width, scaled=False),
        parts={
            "embed": {"part": "PlacedEmbed", "size": family.size},
            "pos_embed": {"part": "FixedPositions"},
            "blocks.0.attn": {"part": "BlindClsAttention"},
            "unembed": {"part": "NetworkUnembed", "hidden": network.hidden, "activation": "relu"},
        },
    )
    model: Any = build(design, device=device, dtype=dtype)
    attention = model.blocks[0].attn
    with torch.no_grad():
        attention.W_V[0] = family.length * torch.eye(width)
        attention.W_O[0] = torch.eye(width)
        for layer, weight in enumerate(network.weights):
            getattr(model.unembed, f"W_{layer}").copy_(weight)
        getattr(model.unembed, f"b_{len(network.weights) - 1}").fill_(constant)
    return Constructed(
        model=model,
        architecture=design,
        variant=MEMORISE,
        circuits={kind: true_circuit(family, MEMORISE, kind) for kind in kinds(family, MEMORISE)},
        options={},
        notes={"bound": 0.0, "parameters": network.parameters, "depth": len(network.hidden)},
    )


def _per_coordinate_architecture(family: Family, heads: int, first: int, d_model: int) -> Architecture:
    embed: dict[str, Any] = {"part": "EncodedEmbed", "size": family.size}
    if family.kind == "distance":
        embed |= {"hidden": family.coordinates * family.size, "activation": "square"}
    return Architecture(
        config=config(family, heads, 1, d_model, scaled=False),
        parts={
            "embed": embed,
            "pos_embed": {"part": "FixedPositions"},
            "blocks.0.attn": {"part": "BlindClsAttention"},
            "unembed": {"part": "PolynomialUnembed", "first": first, **family.outer.options()},
        },
    )


def _spread(family: Family) -> float:
    """The range of f: 1 on [0, 1]^d; for Gaussian tokens 16 standard deviations of the longest a_i."""
    if family.kind == "distance":
        return 1.0
    return 16 * max(math.hypot(*row) for row in family.vectors)


def _network(family: Family) -> tuple[ReluNetwork, float]:
    groups = []
    for row, own in zip(family.vectors, family.position_sets, strict=True):
        values = torch.zeros(len(own), family.length, family.size, dtype=torch.float64)
        values[torch.arange(len(own)), list(own)] = -torch.tensor(row, dtype=torch.float64)
        groups.append(values.flatten(1))
    combine = [0.0] * family.coordinates
    constant = 0.0
    for value, powers in zip(family.outer.coefficients, family.outer.exponents, strict=True):
        if any(powers):
            combine[powers.index(1)] += value
        else:
            constant += value
    return tournament(groups, combine), constant
