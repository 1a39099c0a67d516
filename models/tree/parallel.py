"""Many seeds of one transformer at once, computed only where it is read.

The logits equal those of HookedTransformer. What makes it fast: a pair token is a sum of table rows, so the first
layer's queries, keys and values are gathered from projected tables instead of multiplied token by token; and the
last layer asks only at the positions that are read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

Weights = Mapping[str, Float[Tensor, "seed ..."]]


def logits_at(
    weights: Weights,
    config: Mapping[str, Any],
    tokens: Int[Tensor, "seed example position *pair"],
    read: Int[Tensor, "seed example read"],
) -> Float[Tensor, "seed example read vocabulary"]:
    """The logits at the positions `read` of each seed's own examples; at -1 they are those of position 0.

    weights: HookedTransformer's parameter names -> stacked over seeds. config: the architecture's. Attention-only
    layers without norm, as headlab.models.tree.architecture makes them.
    """
    read = read.clamp(min=0)
    table, index = _table(weights, tokens)
    layers, scale = config["n_layers"], math.sqrt(config["d_head"]) if config["use_attn_scale"] else 1.0
    everywhere = torch.arange(tokens.shape[2]).expand(tokens.shape[:3])
    residual = None
    for layer in range(layers):
        last = layer == layers - 1
        asked = read if last else everywhere
        own = {name: weights[f"blocks.{layer}.attn.{name}"] for name in ATTENTION}
        if residual is None:
            q, k, v = _project_table(table, index, own, asked)
            residual = _look_up(table, _at(index, asked))
        else:
            here = _at(residual, asked) if last else residual
            q, (k, v) = _project(here, own, "Q"), (_project(residual, own, name) for name in "KV")
            residual = here
        residual = residual + _attend(q, k, v, own, asked, scale)
    unembed = weights["unembed.W_U"], weights["unembed.b_U"]
    return torch.einsum("sbrm,smv->sbrv", residual, unembed[0]) + unembed[1][:, None, None]


ATTENTION = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O")


def _table(weights: Weights, tokens: Tensor) -> tuple[Float[Tensor, "seed row model"], Int[Tensor, "seed ex pos part"]]:
    """All embedding rows, and which of them sum to each token."""
    if tokens.ndim == 4:
        tables = [weights[f"embed.W_{slot}"] for slot in "TAB"]
        offsets = torch.tensor([0, tables[0].shape[1], tables[0].shape[1] + tables[1].shape[1]])
        return torch.cat(tables, dim=1), tokens + offsets
    embed, place = weights["embed.W_E"], weights["pos_embed.W_pos"]
    places = torch.arange(tokens.shape[-1]) + embed.shape[1]
    return torch.cat([embed, place], dim=1), torch.stack([tokens, places.expand_as(tokens)], dim=-1)


def _at(
    values: Float[Tensor, "seed ex pos d"] | Int[Tensor, "seed ex pos d"], where: Int[Tensor, "seed ex read"]
) -> Float[Tensor, "seed ex read d"] | Int[Tensor, "seed ex read d"]:
    return values.gather(2, where[..., None].expand(*where.shape, values.shape[-1]))


def _look_up(table: Float[Tensor, "seed row d"], index: Int[Tensor, "seed ex pos part"]) -> Tensor:
    seeds, rows, _ = table.shape
    offset = torch.arange(seeds).view(-1, 1, 1, 1) * rows
    flat = (index + offset).reshape(-1, index.shape[-1])
    return functional.embedding_bag(flat, table.reshape(seeds * rows, -1), mode="sum").view(*index.shape[:3], -1)


def _project(x: Tensor, own: Weights, name: str) -> Float[Tensor, "seed ex pos head d_head"]:
    product = torch.einsum("sbpm,shmd->sbphd", x, own[f"W_{name}"])
    return product + own[f"b_{name}"][:, None, None]


def _project_table(
    table: Float[Tensor, "seed row model"], index: Int[Tensor, "seed ex pos part"], own: Weights, asked: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    heads = own["W_K"].shape[1]
    both = torch.cat([own["W_K"], own["W_V"]], dim=1)
    kv = torch.bmm(table, rearrange(both, "s h m d -> s m (h d)"))
    k, v = rearrange(_look_up(kv, index), "s b p (kv h d) -> kv s b p h d", kv=2, h=heads)
    q = torch.bmm(table, rearrange(own["W_Q"], "s h m d -> s m (h d)"))
    q = rearrange(_look_up(q, _at(index, asked)), "s b p (h d) -> s b p h d", h=heads)
    return tuple(x + own[f"b_{name}"][:, None, None] for name, x in zip("QKV", (q, k, v)))  # type: ignore[return-value]


def _attend(q: Tensor, k: Tensor, v: Tensor, own: Weights, asked: Tensor, scale: float) -> Tensor:
    q, k, v = (rearrange(x, "s b p h d -> s b h p d") for x in (q, k, v))
    future = torch.arange(k.shape[3]) > asked[:, :, None, :, None]
    scores = (torch.matmul(q, k.transpose(-1, -2)) / scale).masked_fill(future, -torch.inf)
    z = torch.matmul(scores.softmax(-1), v)
    return torch.einsum("sbhpd,shdm->sbpm", z, own["W_O"]) + own["b_O"][:, None, None]


def is_plain_attention(model: Any) -> bool:
    """Whether `logits_at` covers the model: attention-only layers without norm, on this task's embeddings, float32
    up.
    """
    cfg = model.cfg
    return (
        bool(cfg.attn_only)
        and cfg.normalization_type is None
        and cfg.n_key_value_heads in (None, cfg.n_heads)
        and cfg.attention_dir == "causal"
        and cfg.positional_embedding_type == "standard"
        and cfg.dtype in (torch.float32, torch.float64)
        and {name for name, _ in model.named_parameters() if name.startswith(("embed.", "pos_embed."))}
        in ({"embed.W_T", "embed.W_A", "embed.W_B"}, {"embed.W_E", "pos_embed.W_pos"})
    )
