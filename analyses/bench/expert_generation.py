"""Generation as an expert would write it by hand for this model: fused projections, keys and values kept."""

from __future__ import annotations

from typing import Any, cast

import torch
from jaxtyping import Int
from torch import Tensor

from headlab.models.hooked import HookedTransformer
from headlab.models.tree.task import TreeTask
from headlab.models.tree.tokens import BACK, FWD


@torch.no_grad()
def generate(
    model: HookedTransformer, task: TreeTask, prompts: Int[Tensor, "example position 3"], steps: int
) -> Int[Tensor, "example step"]:
    """Greedy labels of a one-layer model on pair tokens, with a cache of the size that is needed."""
    attention, embed, unembed = model.blocks[0].attn, cast("Any", model.embed), model.unembed
    heads, d_model, width = attention.W_Q.shape
    scale = model.cfg.attn_scale if model.cfg.use_attn_scale else 1.0
    into = torch.cat(
        [w.permute(1, 0, 2).reshape(d_model, -1) for w in (attention.W_Q, attention.W_K, attention.W_V)], 1
    )
    into_bias = torch.cat([b.reshape(-1) for b in (attention.b_Q, attention.b_K, attention.b_V)])
    out = attention.W_O.reshape(heads * width, d_model)
    count, size = prompts.shape[:2]
    keys = torch.empty(count, heads, size + steps, width, dtype=into.dtype)
    values = torch.empty_like(keys)
    forward = torch.zeros(count, dtype=torch.bool)
    tokens, used, written = prompts, 0, []
    for _ in range(steps):
        kind, a, b = tokens.unbind(-1)
        residual = embed.W_T[kind] + embed.W_A[a] + embed.W_B[b]
        q, k, v = (residual @ into + into_bias).view(count, -1, 3, heads, width).permute(2, 0, 3, 1, 4)
        end = used + tokens.shape[1]
        keys[:, :, used:end], values[:, :, used:end], used = k, v, end
        scores = q[:, :, -1:] @ keys[:, :, :end].transpose(-1, -2) / scale
        z = scores.softmax(-1) @ values[:, :, :end]
        last = residual[:, -1] + z[:, :, 0].reshape(count, -1) @ out + attention.b_O
        label = (last @ unembed.W_U + unembed.b_U).argmax(-1)
        written.append(label)
        kind = torch.where(forward, FWD, BACK)
        before = torch.where(forward, task.tokens.nul, tokens[:, -1, 1])
        tokens = torch.stack([kind, label, before], -1)[:, None]
        forward = forward | (label == task.tokens.turn)
    return torch.stack(written, 1)
