"""How attention weights come from attention scores: softmax, and the two maps that are compared with it."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import UnknownName

ATTENTION_MAPS = ("softmax", "linear", "erf", "normalised-linear", "normalised-erf")


def require_attention_map(name: str) -> None:
    """Raise UnknownName, listing the maps there are, where `name` is none of them."""
    if name not in ATTENTION_MAPS:
        raise UnknownName(f"unknown attention '{name}': choose one of {', '.join(ATTENTION_MAPS)}")


def attention_map(scores: Float[Tensor, "... key"], name: str) -> Float[Tensor, "... key"]:
    """Attention weights from `scores`; a score of minus infinity is a masked key and gets weight 0.

    `softmax`; `linear`, the score itself; `erf`, its error function. The normalised ones are divided by the sum of
    their absolute values over the keys, so that they too are weights of total size 1. A row with every key masked is 0.
    Raises UnknownName for an unknown name.
    """
    require_attention_map(name)
    masked = torch.isneginf(scores)
    if name == "softmax":
        return torch.softmax(scores, dim=-1).masked_fill(masked.all(dim=-1, keepdim=True), 0.0)
    raw = scores.masked_fill(masked, 0.0)
    if name.endswith("erf"):
        raw = torch.erf(raw)
    if name.startswith("normalised"):
        total = raw.abs().sum(dim=-1, keepdim=True)
        raw = raw / torch.where(total > 0, total, torch.ones_like(total))
    return raw
