"""A head's weights as circuits between tokens: what attracts its attention (QK), and what it then writes (OV).

Rows are residual vectors before the layer, for instance a token's embedding at a position: `residual_rows` reads them
off the model, so that any embedding of a task's own has them. Everything is computed in float32 or better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from headlab.interp.errors import OutOfRange, RequestError
from headlab.interp.head_arithmetic import (
    Offset,
    clip_of,
    measured_scores,
    require_plain_heads,
    require_scores_of_rows,
    rotation,
)
from headlab.interp.model import HeadWeights, HookedModel, activations, head_weights, model_device, untouched
from headlab.interp.norms import norm_of, precise

CHUNK = 1 << 24  # numbers in one block of logits or scores: 64 MB in float32


def residual_rows(model: HookedModel, inputs: Shaped[Tensor, "example ..."]) -> Float[Tensor, "example position model"]:
    """The residual stream before the first layer: every token as the model embeds it where it stands."""
    with untouched(model):
        _, cache = activations(model, inputs.to(model_device(model)), ["blocks.0.hook_resid_pre"])
    return cache["blocks.0.hook_resid_pre"]


def qk_circuit(
    model: HookedModel,
    layer: int,
    queries: Float[Tensor, "query model"],
    keys: Float[Tensor, "key model"],
    *,
    heads: Sequence[int] | None = None,
    offset: Offset | None = None,
    normalise: bool = True,
) -> Float[Tensor, "head query key"]:
    """Attention scores before mask and softmax, from each query row to each key row.

    Args:
        model: The model.
        layer: Its layer, from 0.
        queries: Residual vectors that ask.
        keys: Residual vectors that are attended to.
        heads: Which heads, in this order; default all of the layer. Key-value heads are expanded to query heads.
        offset: On a model with rotary positions, how many positions the key stands before the query; or `content`, the
            scores with the rotation left out. Required there, and an error elsewhere.
        normalise: Whether the rows pass the layer's norm first.

    Returns:
        Scores as `hook_attn_scores` holds them: biases, attention scale, clipping, norms of queries and keys and the
        soft cap are in.

    Raises:
        RequestError: For scores that do not come from the rows and the offset alone (ALiBi, relative positions,
            log-n attention), and for a layer that does not read the residual stream through its first norm.
        OutOfRange: For a layer or head that does not exist, and an offset outside the context.
    """
    bridge = hasattr(model, "original_model")
    weights, attention = head_weights(model, layer), _attention(model, layer)
    chosen = _heads(weights, heads)
    rotary = require_scores_of_rows(model, layer, offset)
    require_plain_heads(model, layer, weights, "qk")
    W_Q, W_K, b_Q, b_K = (each[chosen] for each in (weights.W_Q, weights.W_K, weights.b_Q, weights.b_K))
    q, k = _project(model, layer, queries, W_Q, b_Q, normalise), _project(model, layer, keys, W_K, b_K, normalise)
    for name in ("q_norm", "k_norm"):
        norm = norm_of(model, getattr(attention, name, None), int(weights.W_Q.shape[-1]))
        if norm is not None:
            q, k = (norm(q), k) if name == "q_norm" else (q, norm(k))
    scale = float(getattr(attention, "attn_scale", 1.0))
    if bridge:
        turn_q, turn_k, scale = measured_scores(model, layer, 0 if offset in (None, "content") else int(offset))
    elif rotary and offset != "content":
        turn_q, turn_k = (rotation(attention, weights.W_Q, int(position)) for position in (offset or 0, 0))
    else:
        turn_q = turn_k = None
    if offset != "content" and turn_q is not None and turn_k is not None:
        q, k = q @ turn_q.to(q), k @ turn_k.to(k)
    scores = q @ k.mT / scale
    cap = float(getattr(model.cfg, "attn_scores_soft_cap", -1.0) or -1.0)
    return cap * torch.tanh(scores / cap) if cap > 0 else scores


def ov_circuit(
    model: HookedModel,
    layer: int,
    rows: Float[Tensor, "row model"],
    *,
    heads: Sequence[int] | None = None,
    normalise: bool = True,
) -> Float[Tensor, "head row vocabulary"]:
    """The logits that each head adds when it attends to a row alone.

    The final norm is frozen: it centres and weighs what it would, and divides by 1. b_V is in, b_O and b_U are not;
    under a cap of the logits they are those before it. For a whole vocabulary of rows use `top_tokens`, which holds no
    matrix of vocabulary x vocabulary.

    Args:
        model: The model.
        layer: Its layer, from 0.
        rows: Residual vectors.
        heads: Which heads, in this order; default all of the layer.
        normalise: Whether the rows pass the layer's norm first.

    Raises:
        RequestError: For a model without an unembedding matrix W_U, a layer whose heads' outputs pass a norm before the
            residual stream, and a result of more than 4 GiB.
        OutOfRange: For a layer or head that does not exist.
    """
    W_U = unembedding(model)
    written = written_rows(model, layer, rows, heads=heads, normalise=normalise)
    written, W_U = precise(written, W_U)
    size = written.shape[0] * written.shape[1] * W_U.shape[1] * written.element_size()
    if size > 2**32:
        raise RequestError(
            f"logits of {written.shape[0]} heads, {written.shape[1]} rows and {W_U.shape[1]} tokens take "
            f"{size / 2**30:.0f} GiB: choose heads or rows, or use top_tokens and copying_score"
        )
    return written @ W_U


@dataclass(frozen=True, eq=False)
class TopTokens:
    """The tokens whose logits a head raises most when it attends to a row alone.

    layer, heads: of which heads, in the order of the first axis. logits: as `ov_circuit` gives them, descending.
    """

    layer: int
    heads: tuple[int, ...]
    tokens: Int[Tensor, "head row rank"]
    logits: Float[Tensor, "head row rank"]


def top_tokens(
    model: HookedModel,
    layer: int,
    rows: Float[Tensor, "row model"],
    *,
    k: int = 10,
    heads: Sequence[int] | None = None,
    normalise: bool = True,
) -> TopTokens:
    """The `k` largest logits of `ov_circuit` for each head and row, in blocks of at most 64 MB.

    Arguments and errors as for `ov_circuit`; OutOfRange too for a `k` outside 1 to the vocabulary's size.
    """
    W_U = unembedding(model)
    if not 1 <= k <= W_U.shape[1]:
        raise OutOfRange(f"k is {k}: the model has {W_U.shape[1]} tokens")
    written = written_rows(model, layer, rows, heads=heads, normalise=normalise)
    written, W_U = precise(written, W_U)
    rows_at_once = max(1, CHUNK // W_U.shape[1])
    found = [(part @ W_U).topk(k, -1) for head in written for part in head.split(rows_at_once)]
    shape = (*written.shape[:2], k)
    return TopTokens(
        layer=layer,
        heads=tuple(_heads(head_weights(model, layer), heads)),
        tokens=torch.cat([part.indices for part in found]).view(shape),
        logits=torch.cat([part.values for part in found]).view(shape),
    )


def copying_score(
    model: HookedModel,
    layer: int,
    rows: Float[Tensor, "token model"],
    *,
    heads: Sequence[int] | None = None,
    normalise: bool = True,
) -> Float[Tensor, " head"]:
    """Whether a head raises the token that it attends to: sum(Re lambda) / sum(|lambda|), in [-1, 1].

    lambda are the eigenvalues of the head's OV circuit from tokens to logits (Elhage et al. 2021), a matrix of
    vocabulary x vocabulary. Its eigenvalues that are not zero are those of the d_head x d_head product in cyclic order,
    W_O W_U R W_V, which alone is formed. A head that copies has 1, one that suppresses what it reads -1, one that moves
    tokens to unrelated ones about 0; one whose circuit is zero has 0. b_V is left out.

    Args:
        rows: What stands before the layer for each token of the vocabulary, in order; for instance `W_E`.

    Other arguments and errors as for `ov_circuit`; RequestError too for another number of rows than tokens.
    """
    weights, W_U = head_weights(model, layer), unembedding(model)
    if len(rows) != W_U.shape[1]:
        raise RequestError(f"{len(rows)} rows for {W_U.shape[1]} tokens: give one row per token, in order")
    require_plain_heads(model, layer, weights)
    if clip_of(model) is not None:
        raise RequestError("this model clips its values, so its OV circuit is not a matrix: use top_tokens")
    chosen = _heads(weights, heads)
    rows, W_U, W_V, W_O = precise(_into_layer(model, layer, rows, normalise), W_U, weights.W_V, weights.W_O)
    moved = W_U @ rows  # model x model
    eigenvalues = torch.linalg.eigvals(W_O[chosen] @ moved @ W_V[chosen])
    size = eigenvalues.abs().sum(-1)
    return torch.where(size > 0, eigenvalues.real.sum(-1) / size.clamp_min(torch.finfo(size.dtype).tiny), 0.0)


def written_rows(
    model: HookedModel,
    layer: int,
    rows: Float[Tensor, "row model"],
    *,
    heads: Sequence[int] | None = None,
    normalise: bool = True,
) -> Float[Tensor, "head row model"]:
    """What each head of `layer` writes to the residual stream when it attends to a row alone, without b_O.

    Arguments and errors as for `ov_circuit`.
    """
    weights = head_weights(model, layer)
    chosen = _heads(weights, heads)
    require_plain_heads(model, layer, weights)
    values = _project(model, layer, rows, weights.W_V[chosen], weights.b_V[chosen], normalise)
    values, W_O = precise(values, weights.W_O[chosen])
    return values @ W_O


def unembedding(model: HookedModel) -> Float[Tensor, "model vocabulary"]:
    """W_U behind the final norm frozen at scale 1: centred over the model axis and weighed as that norm does.

    Raises RequestError where the model has no such matrix.
    """
    W_U = getattr(model.unembed, "W_U", None)  # type: ignore[attr-defined]
    if not isinstance(W_U, Tensor) or W_U.ndim != 2:
        raise RequestError("the model has no unembedding matrix W_U, so its heads' outputs have no logits of their own")
    norm = norm_of(model, getattr(model, "ln_final", None))
    return precise(W_U.detach())[0] if norm is None else norm.folded(W_U.detach())


def normalise_rows(
    model: HookedModel, norm: torch.nn.Module | None, rows: Float[Tensor, "*row model"]
) -> Float[Tensor, "*row model"]:
    """Rows as one of the model's norms gives them, in float32 or better; unchanged where there is no norm."""
    found = norm_of(model, norm)
    return precise(rows)[0] if found is None else found(rows)


def singular(
    left: Float[Tensor, "*any row rank"], right: Float[Tensor, "*any rank column"]
) -> tuple[Float[Tensor, "*any row value"], Float[Tensor, "*any value"], Float[Tensor, "*any column value"]]:
    """U, S, V with U diag(S) V^T = left @ right, from the two thin factors; singular values descend.

    For a head's OV circuit left = W_V and right = W_O; for QK left = W_Q and right = W_K^T. V holds right singular
    vectors as columns.
    """
    left, right = precise(left, right)
    one, other = torch.linalg.qr(left), torch.linalg.qr(right.mT)
    U, S, Vh = torch.linalg.svd(one.R @ other.R.mT, full_matrices=False)
    return one.Q @ U, S, other.Q @ Vh.mT


def _attention(model: HookedModel, layer: int) -> Any:
    return model.blocks[layer].attn  # type: ignore[attr-defined]


def _heads(weights: HeadWeights, heads: Sequence[int] | None) -> list[int]:
    count = weights.W_Q.shape[0]
    chosen = list(range(count)) if heads is None else [int(head) for head in heads]
    for head in chosen:
        if not 0 <= head < count:
            raise OutOfRange(f"head {head} does not exist: the layer has heads 0 to {count - 1}")
    if not chosen:
        raise RequestError("no head was given: leave `heads` out for all")
    return chosen


def _into_layer(model: HookedModel, layer: int, rows: Tensor, normalise: bool) -> Tensor:
    norm = getattr(model.blocks[layer], "ln1", None)  # type: ignore[attr-defined]
    return normalise_rows(model, norm, rows) if normalise else rows


def _project(
    model: HookedModel, layer: int, rows: Tensor, W: Tensor, b: Tensor, normalise: bool
) -> Float[Tensor, "head row d_head"]:
    """Queries, keys or values of the rows, clipped where the model clips them."""
    rows, W, b = precise(_into_layer(model, layer, rows, normalise), W, b)
    made = torch.einsum("rm,hmd->hrd", rows, W) + b.unsqueeze(1)
    clip = clip_of(model)
    return made if clip is None else made.clamp(-clip, clip)
