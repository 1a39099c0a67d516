"""Embeddings of continuous tokens: each encodes the sequence and appends, or marks, the token that is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from headlab.interp.errors import RequestError, UnknownName

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "square": torch.square,
}


def activation_function(name: str) -> Callable[[Tensor], Tensor]:
    """The activation called `name`. Raises UnknownName, listing the names there are."""
    if name not in ACTIVATIONS:
        raise UnknownName(f"unknown activation '{name}': choose one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


class EncodedEmbed(nn.Module):
    """Each token through one encoder, then the CLS vector `c0`: linear, or with one hidden layer of `hidden` units.

    Takes floats [batch, position, feature] and gives one position more. The encoder is x W_E + b_E, or
    activation(x W_in + b_in) W_E + b_E.
    """

    def __init__(self, cfg: Any, model: Any, *, size: int, hidden: int | None = None, activation: str = "relu") -> None:
        super().__init__()
        self.cfg = cfg
        self.activation = activation_function(activation)
        self.hidden = hidden
        inner = size
        if hidden is not None:
            self.W_in = nn.Parameter(torch.zeros(size, hidden, dtype=cfg.dtype))
            self.b_in = nn.Parameter(torch.zeros(hidden, dtype=cfg.dtype))
            inner = hidden
        self.W_E = nn.Parameter(torch.zeros(inner, cfg.d_model, dtype=cfg.dtype))
        self.b_E = nn.Parameter(torch.zeros(cfg.d_model, dtype=cfg.dtype))
        self.c0 = nn.Parameter(torch.zeros(cfg.d_model, dtype=cfg.dtype))

    def forward(self, tokens: Float[Tensor, "batch position feature"]) -> Float[Tensor, "batch position+1 model"]:
        features = tokens.to(self.W_E)
        if self.hidden is not None:
            features = self.activation(features @ self.W_in + self.b_in)
        return torch.cat([features @ self.W_E + self.b_E, self.c0.expand(len(tokens), 1, -1)], dim=1)


class QueryEmbed(nn.Module):
    """Every token through one linear encoder, x W_E + b_E; the last one, the query, is marked with the vector `c0`.

    Takes floats [batch, position, feature] and gives as many positions.
    """

    def __init__(self, cfg: Any, model: Any, *, size: int) -> None:
        super().__init__()
        self.cfg = cfg
        self.W_E = nn.Parameter(torch.zeros(size, cfg.d_model, dtype=cfg.dtype))
        self.b_E = nn.Parameter(torch.zeros(cfg.d_model, dtype=cfg.dtype))
        self.c0 = nn.Parameter(torch.zeros(cfg.d_model, dtype=cfg.dtype))

    def forward(self, tokens: Float[Tensor, "batch position feature"]) -> Float[Tensor, "batch position model"]:
        encoded = tokens.to(self.W_E) @ self.W_E + self.b_E
        return torch.cat([encoded[:, :-1], encoded[:, -1:] + self.c0], dim=1)


class PlacedEmbed(nn.Module):
    """Token t in axes t*d to (t+1)*d of the residual stream, e_t (x) x_t, and a CLS of zero; d_model is T*d."""

    def __init__(self, cfg: Any, model: Any, *, size: int) -> None:
        super().__init__()
        self.cfg = cfg
        self.length = cfg.n_ctx - 1
        if cfg.d_model != self.length * size:
            raise RequestError(f"d_model is {cfg.d_model}, not {self.length} tokens of {size} features each")

    @property
    def W_E(self) -> Float[Tensor, "feature model"]:
        """Feature k of token t is axis t*d + k of the residual stream."""
        return torch.eye(self.cfg.d_model, dtype=self.cfg.dtype, device=self.cfg.device)

    def forward(self, tokens: Float[Tensor, "batch position feature"]) -> Float[Tensor, "batch position+1 model"]:
        places = torch.eye(self.length, dtype=self.cfg.dtype, device=tokens.device)
        placed = tokens.to(self.cfg.dtype)[:, :, None] * places[..., None]  # [batch, position, place, feature]
        return F.pad(placed.flatten(2), (0, 0, 0, 1))
