"""Changes of a model that leave its function as it is: what a comparison of two models must be blind to."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.interp.model import HookedModel

Model = TypeVar("Model", bound=HookedModel)


def disguised(model: Model, *, seed: int = 0, order: Sequence[int] | None = None) -> Model:
    """A copy of `model` with the same logits and other numbers: heads exchanged, each in a new basis of its own.

    Per layer: heads in the new `order` (old indices; reversed where None). Per head: queries and keys pass through a
    random invertible matrix B and its inverse transpose, so that q . k stays; values and W_O through another and its
    inverse. B is a random rotation times scales of 0.5 to 2, drawn with `seed`. Logits are equal up to rounding. Raises
    ValueError for an order that is none, and for grouped key-value heads, which cannot be exchanged singly.
    """
    changed: Any = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for block in changed.blocks:
            attention = block.attn
            heads, rank = attention.W_Q.shape[0], attention.W_Q.shape[-1]
            if attention.W_K.shape[0] != heads:
                raise RequestError("key-value heads are grouped here: heads cannot be exchanged one by one")
            chosen = list(range(heads))[::-1] if order is None else list(order)
            if sorted(chosen) != list(range(heads)):
                raise RequestError(f"{chosen} is not an order of {heads} heads")
            for head in range(heads):
                match, carry = (_basis(rank, generator).to(attention.W_Q) for _ in range(2))
                for name, basis in (("Q", match), ("K", torch.linalg.inv(match).T), ("V", carry)):
                    for letter in ("W_", "b_"):
                        weight = getattr(attention, letter + name)
                        weight[head] = weight[head] @ basis
                attention.W_O[head] = torch.linalg.inv(carry) @ attention.W_O[head]
            for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
                weight = getattr(attention, name)
                weight[:] = weight[chosen].clone()
    return changed


def _basis(rank: int, generator: torch.Generator) -> Float[Tensor, "old new"]:
    rotation = torch.linalg.qr(torch.randn(rank, rank, generator=generator, dtype=torch.float64)).Q
    return rotation * (0.5 + 1.5 * torch.rand(rank, generator=generator, dtype=torch.float64))
