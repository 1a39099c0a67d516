"""The parts of a HookedTransformer that a task replaces: embeddings, read-outs, attention.

Each part keeps the attribute names of the part it stands in for (`W_E`, `W_U`, `b_U`, ...), so that hooks, caching
and `state_dict` work as ever.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.components import Attention
from transformer_lens.hook_points import HookPoint


class TiedUnembed(nn.Module):
    """An unembedding that IS the embedding's transpose: one tensor, one gradient, one optimiser state.

    `b_U` is frozen at 0, which keeps a one-head model inside the class of the ESP theorem.
    """

    def __init__(self, cfg: Any, model: Any) -> None:
        super().__init__()
        self.cfg = cfg
        # A tuple hides the embedding from the module tree (its weights are saved once) yet deepcopy still follows it.
        self._embed = (model.embed,)
        self.b_U = nn.Parameter(torch.zeros(cfg.d_vocab_out, dtype=cfg.dtype), requires_grad=False)
        self.hook_in = HookPoint()
        self.hook_out = HookPoint()

    @property
    def W_U(self) -> Float[Tensor, "model vocabulary"]:
        return self._embed[0].W_E.T

    def forward(self, residual: Float[Tensor, "batch position model"]) -> Float[Tensor, "batch position vocabulary"]:
        return self.hook_out(self.hook_in(residual) @ self.W_U + self.b_U)


class BlindClsAttention(Attention):
    """Causal attention whose last position does not read itself: a summary token that sees only the sequence."""

    def _make_causal_mask(
        self, query_ctx_length: int, key_ctx_length: int, past_kv_pos_offset: int, device: torch.device
    ) -> Tensor:
        mask = super()._make_causal_mask(query_ctx_length, key_ctx_length, past_kv_pos_offset, device).clone()
        mask[..., -1, -1] = False
        return mask


# What a checkpoint may name as a part: slot names are those of HookedTransformer's own attributes.
PARTS: dict[str, type[nn.Module]] = {
    "TiedUnembed": TiedUnembed,
    "BlindClsAttention": BlindClsAttention,
}
