"""Changes of a model's weights that leave its function as it is: what every score and comparison must be blind to."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.interp.model import HookedModel

Model = TypeVar("Model", bound=HookedModel)


def disguised(model: Model, *, seed: int = 0, order: Sequence[int] | None = None) -> Model:
    """A copy with the same logits up to rounding and other numbers: heads exchanged, each in a new basis of its own.

    Queries and keys of a head pass through a random invertible matrix B and its inverse transpose, so that q . k
    stays; values and W_O through another and its inverse. B is a random rotation times scales of 0.5 to 2.

    Args:
        model: A model whose heads have keys and values of their own.
        seed: Of the bases.
        order: The heads of every layer in their new order, by their old indices; reversed by default.

    Raises:
        RequestError: For an order that is not one of the heads, and for grouped key-value heads, which cannot be
            exchanged singly.
    """
    with _changed(model, seed) as (changed, generator):
        for block in changed.blocks:
            attention = block.attn
            heads, rank = attention.W_Q.shape[0], attention.W_Q.shape[-1]
            if getattr(attention, "_W_K", attention.W_K).shape[0] != heads:  # of grouped heads, W_K is a copy
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


def shift_value_bias(model: Model, size: float, *, seed: int = 0) -> Model:
    """A copy in which a random vector of this size is added to each head's b_V, and what it writes taken off b_O.

    Rows of attention that sum to 1 pass a bias of the values on whatever they attend to.

    Args:
        model: A model with softmax attention in every row that is read.
        size: Standard deviation of the added entries.
        seed: Of the draw.
    """
    with _changed(model, seed) as (changed, generator):
        for block in changed.blocks:
            bias = getattr(block.attn, "_b_V", block.attn.b_V)  # of grouped heads, b_V is a copy
            shift = _draw(bias, size, generator)
            bias.add_(shift)
            repeats = block.attn.W_O.shape[0] // len(shift)
            block.attn.b_O -= torch.einsum("hd,hdm->m", shift.repeat_interleave(repeats, 0), block.attn.W_O)
    return changed


def shift_key_bias(model: Model, size: float, *, seed: int = 0) -> Model:
    """A copy in which a random vector of this size is added to each head's b_K: it shifts all scores of a query alike.

    Raises:
        RequestError: For rotary positions, which turn the bias differently at every key.
    """
    if getattr(model.cfg, "positional_embedding_type", None) == "rotary":
        raise RequestError("under rotary positions a bias of the keys depends on the key: it does change the function")
    with _changed(model, seed) as (changed, generator):
        for block in changed.blocks:
            bias = getattr(block.attn, "_b_K", block.attn.b_K)
            bias.add_(_draw(bias, size, generator))
    return changed


def shift_written_mean(model: Model, size: float, *, seed: int = 0) -> Model:
    """A copy whose heads also write the same random number to every coordinate of the residual stream.

    Raises:
        RequestError: Where some reader of the residual stream does not take its mean off first.
    """
    if model.cfg.normalization_type not in ("LN", "LNPre") or getattr(model.cfg, "final_rms", False):
        raise RequestError("the mean of the residual stream is read: only a LayerNorm before every reader takes it off")
    with _changed(model, seed) as (changed, generator):
        for block in changed.blocks:
            block.attn.W_O += _draw(block.attn.W_O[..., :1], size, generator)
    return changed


def fold_norms(model: Model) -> Model:
    """A copy in which weight and bias of every norm stand in the matrices that read it; the norms keep 1 and 0.

    Raises:
        RequestError: For norms without weights, and where the unembedding has no matrix of its own.
    """
    if model.cfg.normalization_type not in ("LN", "RMS"):
        raise RequestError(f"norms of type {model.cfg.normalization_type} have no weights that could be folded")
    if "W_U" not in dict(model.unembed.named_parameters()):  # type: ignore[attr-defined]
        raise RequestError("the unembedding has no matrix of its own into which the final norm could be folded")
    with _changed(model, 0) as (changed, _):
        for block in changed.blocks:
            attention = block.attn
            readers = [(getattr(attention, f"W_{name}"), getattr(attention, f"b_{name}")) for name in "QKV"]
            _fold(block.ln1, readers)
            if hasattr(block, "ln2"):
                _fold(block.ln2, [(block.mlp.W_in, block.mlp.b_in)])
        _fold(changed.ln_final, [(changed.unembed.W_U, changed.unembed.b_U)])
    return changed


def shift_logits(model: Model, size: float, *, seed: int = 0) -> Model:
    """A copy that adds to all logits of a position one and the same number: probabilities and differences stay.

    Raises:
        RequestError: Where the unembedding has no matrix of its own.
    """
    if "W_U" not in dict(model.unembed.named_parameters()):  # type: ignore[attr-defined]
        raise RequestError("the unembedding has no matrix of its own: one direction cannot be added to all logits")
    with _changed(model, seed) as (changed, generator):
        changed.unembed.W_U += _draw(changed.unembed.W_U[:, :1], size, generator)
    return changed


@contextmanager
def _changed(model: HookedModel, seed: int) -> Iterator[tuple[Any, torch.Generator]]:
    with torch.no_grad():
        yield copy.deepcopy(model), torch.Generator().manual_seed(seed)


def _fold(norm: Any, readers: list[tuple[Tensor, Tensor]]) -> None:
    for weight, bias in readers:
        if hasattr(norm, "b"):
            bias += norm.b @ weight
        weight *= norm.w[:, None]
    norm.w.fill_(1.0)
    if hasattr(norm, "b"):
        norm.b.fill_(0.0)


def _draw(like: Tensor, size: float, generator: torch.Generator) -> Tensor:
    return size * torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like)


def _basis(rank: int, generator: torch.Generator) -> Float[Tensor, "old new"]:
    rotation = torch.linalg.qr(torch.randn(rank, rank, generator=generator, dtype=torch.float64)).Q
    return rotation * (0.5 + 1.5 * torch.rand(rank, generator=generator, dtype=torch.float64))
