"""One block as the cone computes it: weights laid out for matrix products, and what it held in the unpatched run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from headlab.interp.model import HookedModel


class Block:
    """One block's weights, laid out for matrix products: heads joined, keys beside values. Each is made when used."""

    def __init__(self, block: Any, cfg: Any) -> None:
        self._block = block
        self._stem = "_" if hasattr(block.attn, "_W_K") and not cfg.ungroup_grouped_query_attention else ""
        self.attention = block.attn
        self.mlp = None if cfg.attn_only else block.mlp
        self.scale = 1.0 / float(block.attn.attn_scale)
        self.rotary = cfg.positional_embedding_type == "rotary"
        self.kv = block.attn.W_Q.shape[0]
        if cfg.n_key_value_heads is not None and self._stem:
            self.kv = int(cfg.n_key_value_heads)

    def _weight(self, name: str) -> Tensor:
        return getattr(self.attention, (self._stem if name[-1] in "KV" else "") + name).detach()

    @cached_property
    def W_Q(self) -> Float[Tensor, "model head_d_head"]:
        return rearrange(self._weight("W_Q"), "h m d -> m (h d)").contiguous()

    @cached_property
    def b_Q(self) -> Float[Tensor, " head_d_head"]:
        return self._weight("b_Q").flatten()

    @cached_property
    def W_KV(self) -> Float[Tensor, "model kv_head_d_head"]:
        return rearrange(torch.cat([self._weight("W_K"), self._weight("W_V")]), "h m d -> m (h d)").contiguous()

    @cached_property
    def b_KV(self) -> Float[Tensor, " kv_head_d_head"]:
        return torch.cat([self._weight("b_K"), self._weight("b_V")]).flatten()

    @cached_property
    def W_O(self) -> Float[Tensor, "head_d_head model"]:
        return self._weight("W_O").flatten(0, 1)

    @cached_property
    def b_O(self) -> Float[Tensor, " model"]:
        return self._weight("b_O")

    @cached_property
    def norm1(self) -> Norm | None:
        """The norm before attention."""
        return norm_of(self._block.ln1)

    @cached_property
    def norm2(self) -> Norm | None:
        """The norm before the MLP."""
        return None if self.mlp is None else norm_of(self._block.ln2)

    @cached_property
    def mlp_size(self) -> int:
        """Multiply-adds of the MLP for one residual row."""
        return 0 if self.mlp is None else sum(p.numel() for p in self.mlp.parameters() if p.ndim > 1)


@dataclass(frozen=True, eq=False)
class Held:
    """One layer of the unpatched run. `group` counts the query heads that share a key-value head; q and k are
    rotated where the model rotates them."""

    resid_pre: Float[Tensor, "example position model"]
    q: Float[Tensor, "example kv group position d_head"]
    k: Float[Tensor, "example kv position d_head"]
    v: Float[Tensor, "example kv position d_head"]
    scores: Float[Tensor, "example kv group query key"]

    @cached_property
    def blocked(self) -> Bool[Tensor, "query key"]:
        """Where a query cannot see a key."""
        return self.scores[0, 0, 0] == -torch.inf

    @cached_property
    def sees_nothing(self) -> bool:
        """Whether some query sees no key at all."""
        return bool(self.blocked.all(-1).any())

    def softmax(self, scores: Tensor) -> Tensor:
        """Softmax over keys; 0 where a query sees none."""
        pattern = scores.softmax(-1)
        return pattern.nan_to_num_(0.0) if self.sees_nothing else pattern

    @cached_property
    def pattern(self) -> Float[Tensor, "example kv group query key"]:
        """The attention pattern."""
        return self.softmax(self.scores)

    @cached_property
    def z(self) -> Float[Tensor, "example kv group position d_head"]:
        """What each head's values sum to."""
        return self.pattern @ self.v[:, :, None]


def hooks_needed(model: HookedModel, layers: Sequence[int]) -> list[str]:
    """The activations that a Cone over blocks `layers` keeps of the unpatched run."""
    rotary = model.cfg.positional_embedding_type == "rotary"
    parts = ("attn.hook_rot_q", "attn.hook_rot_k") if rotary else ("attn.hook_q", "attn.hook_k")
    parts = ("hook_resid_pre", *parts, "attn.hook_v", "attn.hook_attn_scores")
    return [f"blocks.{layer}.{part}" for layer in layers for part in parts]


@dataclass(frozen=True, eq=False)
class Norm:
    """A norm over the last axis, read off its module (a model's final norm may be of another kind than its blocks').

    Args:
        centres: whether the mean is subtracted first (LayerNorm), or not (RMSNorm).
        weight, bias: applied after the division; None where the norm has none.
        eps: added to the mean square before the root.
    """

    centres: bool
    weight: Float[Tensor, " model"] | None
    bias: Float[Tensor, " model"] | None
    eps: float

    def __call__(self, x: Float[Tensor, "*row model"]) -> Float[Tensor, "*row model"]:
        """The normalised rows."""
        if self.centres:
            return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return x if self.weight is None else x * self.weight


def norm_of(module: Any) -> Norm | None:
    """The arithmetic of a norm module of the library, without its hooks; None where it is the identity."""
    kind = type(module).__name__
    if module is None or kind == "Identity":
        return None
    weight, bias = (getattr(module, name, None) for name in "wb")
    return Norm(
        kind.startswith("LayerNorm"),
        None if weight is None else weight.detach(),
        None if bias is None else bias.detach(),
        float(module.eps),
    )


def normalised(norm: Norm | None, x: Float[Tensor, "*row model"]) -> Float[Tensor, "*row model"]:
    """The rows after the norm; as they are where there is none."""
    return x if norm is None else norm(x)
