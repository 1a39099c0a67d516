"""From named directions to a HookedTransformer: what all constructions for endpoint selection share.

No layer norm, attention scale 1, biases 0, so that a logit is a sum of attention weights times inner products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.models.basis import Basis, Direction
from headlab.models.constructed import Constructed
from headlab.models.esp.circuits import KINDS, true_circuit
from headlab.models.esp.task import EspTask
from headlab.models.hooked import Architecture, build


@dataclass(frozen=True)
class AssembledHead:
    """One head's maps in transformer-lens' orientation, float64: residual -> query, key, value; value -> residual."""

    W_Q: Float[Tensor, "model d_head"]
    W_K: Float[Tensor, "model d_head"]
    W_V: Float[Tensor, "model d_head"]
    W_O: Float[Tensor, "d_head model"]


def architecture(task: EspTask, *, heads: int, d_model: int, d_head: int, tied: bool) -> Architecture:
    """One attention-only layer without norm and without attention scale; tied or untied, b_U frozen at 0."""
    config = {
        "n_layers": 1,
        "n_heads": heads,
        "d_model": d_model,
        "d_head": d_head,
        "n_ctx": len(task.positions),
        "d_vocab": task.n + 3,
        "attn_only": True,
        "normalization_type": None,
        "use_attn_scale": False,
    }
    parts = {"unembed": {"part": "TiedUnembed"}} if tied else {}
    return Architecture(config, parts, frozen=("unembed.b_U",))


@dataclass(frozen=True)
class Weights:
    """All weights of a one-layer construction, float64; unembed is None where it is the embedding's transpose."""

    embed: Float[Tensor, "token model"]
    position: Float[Tensor, "position model"]
    unembed: Float[Tensor, "model token"] | None
    heads: list[AssembledHead]


def weights(
    residual: Basis,
    tokens: list[Direction],
    positions: list[Direction],
    vertices: list[Direction],
    heads: list[AssembledHead],
    tied: bool,
) -> Weights:
    """Directions become tables; untied, the unembedding reads the vertices and gives all other tokens logit 0."""
    silent = [residual.zero] * (len(tokens) - len(vertices))
    unembed = None if tied else residual.rows([*vertices, *silent]).T
    return Weights(residual.rows(tokens), residual.rows(positions), unembed, heads)


def assemble(
    task: EspTask, variant: str, weights: Weights, *, tied: bool, dtype: torch.dtype | str, device: str, **truth: Any
) -> Constructed:
    """The HookedTransformer of these weights with what is true of it; `truth` holds further fields of Constructed."""
    d_model, d_head = weights.heads[0].W_Q.shape
    plan = architecture(task, heads=len(weights.heads), d_model=d_model, d_head=d_head, tied=tied)
    model = build(plan, device=device, dtype=dtype)
    state = {"embed.W_E": weights.embed, "pos_embed.W_pos": weights.position}
    if weights.unembed is not None:
        state["unembed.W_U"] = weights.unembed
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        state[f"blocks.0.attn.{name}"] = torch.stack([getattr(head, name) for head in weights.heads])
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in state.items():
            parameters[name].copy_(value)
    circuits = {kind: true_circuit(variant, kind, induction=task.induction) for kind in KINDS}
    return Constructed(model, plan, variant, circuits, dict(circuits["zero"].roles), **truth)
