"""A head's weights as circuits between tokens: what attracts its attention (QK), and what it then writes (OV).

Rows are residual vectors before the layer, for instance a token's embedding at a position: `residual_rows` reads them
off the model, so that any embedding of a task's own has them.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.interp.model import HookedModel, activations, head_weights, untouched

_BEYOND_ROWS = ("rotary", "alibi", "shortformer", "relative_positional_bias")


def residual_rows(model: HookedModel, inputs: Shaped[Tensor, "example ..."]) -> Float[Tensor, "example position model"]:
    """The residual stream before the first layer: every token as the model embeds it where it stands."""
    device = next(model.parameters()).device  # type: ignore[attr-defined]
    with untouched(model):
        _, held = activations(model, inputs.to(device), ["blocks.0.hook_resid_pre"])
    return held["blocks.0.hook_resid_pre"]


def qk_circuit(
    model: HookedModel,
    layer: int,
    queries: Float[Tensor, "query model"],
    keys: Float[Tensor, "key model"],
    *,
    normalise: bool = True,
) -> Float[Tensor, "head query key"]:
    """Attention scores before mask and softmax, for every head of `layer`, from each query row to each key row.

    Rows pass the layer's norm first (unless not `normalise`); biases and the attention scale are in. Key-value heads
    are expanded. Computed in float32 or better. Raises ValueError for a model whose scores do not come from the rows
    alone (rotary or relative positions, normalised queries and keys, capped scores).
    """
    weights, cfg = head_weights(model, layer), model.cfg
    positions = getattr(cfg, "positional_embedding_type", "standard")
    reasons = {
        f"{positions} positions": positions in _BEYOND_ROWS,
        "normalised queries and keys": getattr(cfg, "use_qk_norm", False),
        "capped attention scores": getattr(cfg, "attn_scores_soft_cap", -1.0) > 0,
    }
    for reason, holds in reasons.items():
        if holds:
            raise RequestError(f"a QK circuit needs scores that come from the rows alone; this model has {reason}")
    attention = model.blocks[layer].attn  # type: ignore[attr-defined]
    if normalise:
        queries, keys = (_into_layer(model, layer, rows) for rows in (queries, keys))
    queries, keys, W_Q, W_K, b_Q, b_K = _precise(queries, keys, weights.W_Q, weights.W_K, weights.b_Q, weights.b_K)
    q = torch.einsum("qm,hmr->hqr", queries, W_Q) + b_Q.unsqueeze(1)
    k = torch.einsum("km,hmr->hkr", keys, W_K) + b_K.unsqueeze(1)
    return q @ k.mT / float(getattr(attention, "attn_scale", 1.0))


def ov_circuit(
    model: HookedModel,
    layer: int,
    rows: Float[Tensor, "row model"],
    *,
    normalise: bool = True,
) -> Float[Tensor, "head row vocabulary"]:
    """The logits that each head of `layer` adds when it attends to a row alone.

    Rows pass the layer's norm first (unless not `normalise`); the final norm is frozen: it centres and weighs what it
    would, and divides by 1. b_V is in, b_O and b_U are not. Computed in float32 or better. Raises ValueError where the
    model has no unembedding matrix W_U.
    """
    written, W_U = _precise(written_rows(model, layer, rows, normalise=normalise), unembedding(model))
    return written @ W_U


def written_rows(
    model: HookedModel,
    layer: int,
    rows: Float[Tensor, "row model"],
    *,
    normalise: bool = True,
) -> Float[Tensor, "head row model"]:
    """What each head of `layer` writes to the residual stream when it attends to a row alone, without b_O."""
    weights = head_weights(model, layer)
    if normalise:
        rows = _into_layer(model, layer, rows)
    rows, W_V, W_O, b_V = _precise(rows, weights.W_V, weights.W_O, weights.b_V)
    return (torch.einsum("tm,hmr->htr", rows, W_V) + b_V.unsqueeze(1)) @ W_O


def unembedding(model: HookedModel) -> Float[Tensor, "model vocabulary"]:
    """W_U behind the final norm frozen at scale 1: centred over the model axis and weighed as that norm does.

    Raises ValueError where the model has no such matrix.
    """
    W_U = getattr(model.unembed, "W_U", None)  # type: ignore[attr-defined]
    if not isinstance(W_U, Tensor) or W_U.ndim != 2:
        raise RequestError("the model has no unembedding matrix W_U, so its heads' outputs have no logits of their own")
    (W_U,) = _precise(W_U.detach())
    kind, weight, _ = _norm(model, getattr(model, "ln_final", None))
    if weight is not None:
        W_U = W_U * weight.to(W_U).unsqueeze(1)
    return W_U - W_U.mean(0) if kind == "LN" else W_U


def normalise_rows(
    model: HookedModel, norm: torch.nn.Module | None, rows: Float[Tensor, "*row model"]
) -> Float[Tensor, "*row model"]:
    """Rows as one of the model's norms gives them, in float32 or better; unchanged where there is no norm."""
    kind, weight, bias = _norm(model, norm)
    (rows,) = _precise(rows)
    if kind is None:
        return rows
    if kind == "LN":
        rows = rows - rows.mean(-1, keepdim=True)
    rows = rows / (rows.pow(2).mean(-1, keepdim=True) + model.cfg.eps).sqrt()
    if weight is not None:
        rows = rows * weight.to(rows)
    return rows if bias is None else rows + bias.to(rows)


def singular(
    left: Float[Tensor, "*any row rank"], right: Float[Tensor, "*any rank column"]
) -> tuple[Float[Tensor, "*any row value"], Float[Tensor, "*any value"], Float[Tensor, "*any column value"]]:
    """U, S, V with U diag(S) V^T = left @ right, from the two thin factors; singular values descend.

    For a head's OV circuit left = W_V and right = W_O; for QK left = W_Q and right = W_K^T. V holds right singular
    vectors as columns. Computed in float32 or better.
    """
    left, right = _precise(left, right)
    one, other = torch.linalg.qr(left), torch.linalg.qr(right.mT)
    U, S, Vh = torch.linalg.svd(one.R @ other.R.mT, full_matrices=False)
    return one.Q @ U, S, other.Q @ Vh.mT


def _into_layer(model: HookedModel, layer: int, rows: Tensor) -> Tensor:
    return normalise_rows(model, getattr(model.blocks[layer], "ln1", None), rows)  # type: ignore[attr-defined]


def _norm(model: HookedModel, norm: Any) -> tuple[str | None, Tensor | None, Tensor | None]:
    """`LN`, `RMS` or None, with weight and bias where the norm has them."""
    name = getattr(model.cfg, "normalization_type", None)
    if name is None or norm is None or isinstance(norm, torch.nn.Identity):
        return None, None, None
    kind = "RMS" if name.startswith("RMS") else "LN"
    weight, bias = getattr(norm, "w", None), getattr(norm, "b", None)
    return kind, None if weight is None else weight.detach(), None if bias is None else bias.detach()


def _precise(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in one dtype, float32 or wider, on the device of the first."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return tuple(tensor.to(dtype=dtype, device=tensors[0].device) for tensor in tensors)
