"""Whether a layer's heads compute what their weights alone say, and how queries and keys become scores."""

from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import OutOfRange, RequestError
from headlab.interp.model import HeadWeights, HookedModel, activations, model_device, run, untouched
from headlab.interp.norms import norm_of, precise, tolerance

Offset = int | Literal["content"]

_BEYOND_ROWS = ("alibi", "shortformer", "relative_positional_bias")
_PROBE = 1e-2  # the length of a probing query or key: small, so that no clip and no cap acts


def require_scores_of_rows(model: HookedModel, layer: int, offset: Offset | None) -> bool:
    """Whether the model has rotary positions, whose scores depend on `offset` too.

    Raises:
        RequestError: For scores of something else than rows and offset; for a missing or a needless offset.
        OutOfRange: For an offset outside the context.
    """
    cfg = model.cfg
    positions = getattr(cfg, "positional_embedding_type", "standard")
    attention = model.blocks[layer].attn  # type: ignore[attr-defined]
    normed = getattr(attention, "q_norm", None)
    weight = getattr(normed, "w", getattr(normed, "weight", None))
    reasons = {
        f"{positions} positions": positions in _BEYOND_ROWS,
        "log-n attention": getattr(cfg, "use_logn_attn", False),
        "dynamic rotary scaling": getattr(cfg, "use_dynamic_ntk_rope", False),
        "queries normalised over all heads": isinstance(weight, Tensor) and weight.shape[-1] != int(cfg.d_head),
    }
    for reason, holds in reasons.items():
        if holds:
            raise RequestError(f"a QK circuit needs scores that come from the rows alone; this model has {reason}")
    rotary = positions == "rotary"
    if rotary and offset is None:
        raise RequestError(
            "this model has rotary positions, so its scores depend on how far the key stands before the query: give "
            "offset, a number of positions, or offset='content' for the scores without rotation"
        )
    if not rotary and offset is not None:
        raise RequestError(f"offset is {offset!r}, and this model has {positions} positions: leave it out")
    if isinstance(offset, int) and not 0 <= offset < int(cfg.n_ctx):
        raise OutOfRange(f"the offset {offset} is outside the context: give 0 to {int(cfg.n_ctx) - 1}")
    return rotary


def clip_of(model: HookedModel) -> float | None:
    """The bound to which the model clips queries, keys and values; None where it does not."""
    wrapped = getattr(getattr(model, "original_model", None), "config", None)
    clip = getattr(model.cfg, "clip_qkv", None) or getattr(wrapped, "clip_qkv", None)
    return None if clip is None else float(clip)


def rotation(attention: Any, like: Tensor, position: int) -> Float[Tensor, "d_head d_head"]:
    """What a HookedTransformer multiplies a query or key (a row vector) by at `position`."""
    basis = torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)
    return attention.apply_rotary(basis[:, None, None], position)[:, 0, 0]


def measured_scores(
    model: HookedModel, layer: int, offset: int
) -> tuple[Float[Tensor, "d_head d_head"] | None, Float[Tensor, "d_head d_head"] | None, float]:
    """How a bridge turns queries at position `offset` and keys at position 0 (None: not at all), and what it divides
    their product by: basis vectors are put in their place, and read again where the scores are computed.

    Raises RequestError for a bridge that does not show what it computes.
    """
    stem = f"blocks.{layer}.attn.hook_"
    parameter = next(model.parameters())  # type: ignore[attr-defined]
    rotary = getattr(model.cfg, "positional_embedding_type", "standard") == "rotary"
    if rotary and f"{stem}rot_q" not in model.hook_dict:
        raise RequestError("this bridge has no hook behind the rotation of queries and keys: its scores are not known")
    basis = _PROBE * torch.eye(int(model.cfg.d_head), dtype=parameter.dtype, device=parameter.device)
    normed = "_normed" if f"{stem}q_normed" in model.hook_dict else ""
    cache: dict[str, Tensor] = {}

    def put(value: Tensor, hook: Any) -> Tensor:
        return basis[:, None, None].expand_as(value).clone()

    def keep(value: Tensor, hook: Any) -> None:
        cache[hook.name.removeprefix(stem)] = value.detach().clone()

    reads = ["attn_scores", "pattern", *(("rot_q", "rot_k") if rotary else ())]
    hooks = [(f"{stem}{name}{normed}", put) for name in "qk"] + [(f"{stem}{name}", keep) for name in reads]
    tokens = torch.zeros(len(basis), offset + 1, dtype=torch.long, device=basis.device)
    with untouched(model):
        run(model, tokens, hooks)
    turned = [cache[name][:, at, 0] for name, at in (("rot_q", offset), ("rot_k", 0))] if rotary else [basis, basis]
    if torch.equal(cache["attn_scores"], cache["pattern"]):  # a native bridge fires the hook after the softmax
        scale = getattr(getattr(model.blocks[layer].attn, "original_component", None), "scale", None)  # type: ignore[attr-defined]
        if not isinstance(scale, float):
            raise RequestError("this bridge shows scores after the softmax only: what it divides them by is not known")
    else:
        products, scores = (turned[0] * turned[1]).sum(-1), cache["attn_scores"][:, 0, offset, 0]
        scale = float(products.square().sum() / (products * scores).sum())
    return (turned[0] / _PROBE, turned[1] / _PROBE, scale) if rotary else (None, None, scale)


def require_plain_heads(model: HookedModel, layer: int, weights: HeadWeights, ports: str = "v") -> None:
    """Raise RequestError unless, on a few tokens, the heads of `layer` read the residual stream through ln1 alone at
    `ports` (some of q, k, v), and, where v is among them, write z W_O to it.

    A model whose embedding takes no tokens is one of this project's own: its blocks are the library's, and pass.
    """
    if not type(getattr(model, "embed", None)).__module__.startswith("transformer_lens."):
        return
    stem = f"blocks.{layer}."
    names = [f"{stem}hook_resid_pre", *(f"{stem}attn.hook_{port}" for port in ports)]
    names += [f"{stem}attn.hook_z", f"{stem}hook_attn_out"] if "v" in ports else []
    tokens = torch.arange(min(3, int(model.cfg.n_ctx)), device=model_device(model))[None] % int(model.cfg.d_vocab)
    with untouched(model):
        cache = activations(model, tokens, names)[1]

    def require(product: Tensor, name: str, what: str) -> None:
        product, expected = precise(product, cache[stem + name])
        error = float((product - expected).abs().max())
        if error > tolerance(model, cache[stem + name].dtype) * (1.0 + float(expected.abs().max())):
            raise RequestError(f"{what} in layer {layer}, so its heads are more than a map of rows by their weights")

    norm = norm_of(model, getattr(model.blocks[layer], "ln1", None))  # type: ignore[attr-defined]
    rows = cache[stem + "hook_resid_pre"] if norm is None else norm(cache[stem + "hook_resid_pre"])
    for port in ports:
        W, b = (getattr(weights, f"{letter}_{port.upper()}") for letter in "Wb")
        rows, W, b = precise(rows, W, b)
        product = torch.einsum("epm,hmd->ephd", rows, W) + b
        group = product.shape[2] // cache[f"{stem}attn.hook_{port}"].shape[2]
        require(product[:, :, ::group], f"attn.hook_{port}", f"{port} is not the projection of the first norm's output")
    if "v" in ports:
        product = torch.einsum("ephd,hdm->epm", *precise(cache[f"{stem}attn.hook_z"], weights.W_O))
        require(product + weights.b_O.to(product), "hook_attn_out", "a norm or a factor stands behind the heads")
