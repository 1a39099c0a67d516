"""Direct logit attribution: what each head, from each source position, adds to a direction of the logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from einops import einsum, repeat
from jaxtyping import Float, Int
from torch import Tensor

from headlab.interp.errors import OutOfRange, RequestError
from headlab.interp.head_arithmetic import clip_of
from headlab.interp.model import HookedModel, Mask, activations, head_weights, untouched
from headlab.interp.norms import norm_of, precise, tolerance

Directions = (
    Float[Tensor, "example vocabulary"]
    | Int[Tensor, " example"]
    | tuple[Int[Tensor, " example"], Int[Tensor, " example"]]
)


@dataclass(frozen=True)
class DirectLogitAttribution:
    """The terms that add up to a logit direction, read at one position of each example.

    heads: A[query, source] * v[source] W_O along the direction, final-norm scale frozen at its value in this run.
    biases, mlps: a layer's attention bias and MLP output; zero where the model has none.
    embed, positional: the token and the position embedding at the position that is read.
    constant: what the read-out adds whatever the residual is (the final norm's bias, the unembedding's).
    logits: the value of the direction by the final residual; `total` equals it up to rounding. It is the model's own,
    before a cap of the logits where there is one.
    query: the position that was read. Units: logits, times the direction's own.
    notes: what must be known of these numbers, e.g. that the model caps its logits.
    """

    heads: Float[Tensor, "example layer head source"]
    biases: Float[Tensor, "example layer"]
    mlps: Float[Tensor, "example layer"]
    embed: Float[Tensor, " example"]
    positional: Float[Tensor, " example"]
    constant: Float[Tensor, " example"]
    logits: Float[Tensor, " example"]
    query: Int[Tensor, " example"]
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> Float[Tensor, " example"]:
        """The sum of all terms: the logit direction, reconstructed."""
        layers = self.heads.sum((1, 2, 3)) + self.biases.sum(1) + self.mlps.sum(1)
        return layers + self.embed + self.positional + self.constant

    @property
    def by_head(self) -> Float[Tensor, "example layer head"]:
        """What each head adds, over all source positions."""
        return self.heads.sum(-1)

    def by_factor(self, levels: Int[Tensor, " example"]) -> dict[int, Float[Tensor, "layer head source"]]:
        """The mean over the examples of each level, level -> heads' terms. Raises ValueError for another length."""
        if len(levels) != len(self.heads):
            raise RequestError(f"{len(levels)} levels for {len(self.heads)} examples: give one level per example")
        return {int(level): self.heads[levels == level].mean(0) for level in levels.unique()}

    def to_frame(self) -> pd.DataFrame:
        """One row per example and term: example, component, layer, head, source, attribution.

        component: `head`, `attention bias`, `mlp`, `embed`, `position embed`, `constant`. Layer, head and source are
        missing where a term has none.
        """
        example, layer, head, source = torch.meshgrid(*(torch.arange(n) for n in self.heads.shape), indexing="ij")
        parts = [
            pd.DataFrame(
                {
                    "example": example.flatten().numpy(),
                    "component": "head",
                    "layer": layer.flatten().numpy(),
                    "head": head.flatten().numpy(),
                    "source": source.flatten().numpy(),
                    "attribution": self.heads.flatten().cpu().numpy(),
                }
            )
        ]
        for name, values in (("attention bias", self.biases), ("mlp", self.mlps)):
            example, layer = torch.meshgrid(*(torch.arange(n) for n in values.shape), indexing="ij")
            parts.append(
                pd.DataFrame(
                    {
                        "example": example.flatten().numpy(),
                        "component": name,
                        "layer": layer.flatten().numpy(),
                        "attribution": values.flatten().cpu().numpy(),
                    }
                )
            )
        for name, values in (
            ("embed", self.embed),
            ("position embed", self.positional),
            ("constant", self.constant),
        ):
            parts.append(
                pd.DataFrame({"example": range(len(values)), "component": name, "attribution": values.cpu().numpy()})
            )
        frame = pd.concat(parts, ignore_index=True)
        return frame.astype({"layer": "Int64", "head": "Int64", "source": "Int64"})


def direct_logit_attribution(
    model: HookedModel,
    inputs: Tensor,
    directions: Directions,
    *,
    position: int | Int[Tensor, " read"] = -1,
    attention_mask: Mask | None = None,
) -> DirectLogitAttribution:
    """Split a direction of the logits at one position into the terms that write it (Elhage et al. 2021).

    The final norm is taken with its scale frozen at this run's, the unembedding as the model applies it, a replaced one
    included; it must be linear. Computed in float32 or better.

    Args:
        model: The model.
        inputs: What it reads, first axis `example`.
        directions: Weights over the vocabulary for each example; or one token for each (its logit); or two tokens for
            each (the first one's logit minus the second's).
        position: The position that is read, one for all examples or one for each.
        attention_mask: 1 where a token counts, 0 where it is padding.

    Raises:
        RequestError: Where the unembedding is not linear, the direction does not fit the logits, or something else than
            these terms writes to the residual stream.
        OutOfRange: For a position or token that does not exist.
    """
    layers, attn_only = model.cfg.n_layers, bool(model.cfg.attn_only)
    final = f"blocks.{layers - 1}.hook_resid_post"
    names = ["blocks.0.hook_resid_pre", final]
    positional = model.cfg.positional_embedding_type == "standard" and "hook_pos_embed" in model.hook_dict
    names += ["hook_pos_embed"] if positional else []
    for layer in range(layers):
        names += [f"blocks.{layer}.attn.hook_v", f"blocks.{layer}.attn.hook_pattern", f"blocks.{layer}.hook_attn_out"]
        names += [] if attn_only else [f"blocks.{layer}.hook_mlp_out"]
    with untouched(model):
        logits, cache = activations(model, inputs, names, attention_mask=attention_mask)
        query = _queries(position, logits)
        weights = precise(_direction_weights(directions, logits))[0]
        rows = torch.arange(len(query), device=logits.device)
        along, constant, value, notes = _unembedded(model, cache[final], weights, logits, rows, query)

        def term(name: str) -> Float[Tensor, " example"]:
            return (precise(cache[name])[0].expand(len(rows), -1, -1)[rows, query] * along).sum(-1)

        def close(found: Tensor, expected: Tensor, magnitude: float, dtype: torch.dtype) -> bool:
            return _size(found - expected) <= tolerance(model, dtype) * (magnitude + 1e-6)

        heads, biases, mlps = [], [], []
        for layer in range(layers):
            head, bias = _attention_terms(model, layer, cache, rows, query, along)
            attention = term(f"blocks.{layer}.hook_attn_out")
            size = _size(along) * _size(cache[f"blocks.{layer}.hook_attn_out"]) * along.shape[-1] ** 0.5
            if not close(head.sum((1, 2)) + bias, attention, _size(head) + size, logits.dtype):
                raise RequestError(
                    f"the heads of layer {layer} do not add up to its attention output (a norm after the attention, "
                    "or another output map than W_O): direct attribution by head is not defined for this model"
                )
            heads.append(head)
            biases.append(bias)
            mlps.append(torch.zeros_like(bias) if attn_only else term(f"blocks.{layer}.hook_mlp_out"))
        start = term("blocks.0.hook_resid_pre")
        position_term = term("hook_pos_embed") if positional else torch.zeros_like(start)
        result = DirectLogitAttribution(
            heads=torch.stack(heads, 1),
            biases=torch.stack(biases, 1),
            mlps=torch.stack(mlps, 1),
            embed=start - position_term,
            positional=position_term,
            constant=constant,
            logits=value,
            query=query,
            notes=notes,
        )
        magnitude = _size(start) + sum(_size(part) for part in (*heads, *biases, *mlps))
        magnitude += _size(along) * _size(cache[final]) * along.shape[-1] ** 0.5
        if not close(result.total, result.logits, magnitude, logits.dtype):
            raise RequestError(
                "the embedding, the heads and the MLPs do not add up to the logits: something else writes to this "
                "model's residual stream, so direct attribution is not defined for it"
            )
    return result


def _size(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


def _queries(position: int | Tensor, logits: Tensor) -> Int[Tensor, " example"]:
    examples, positions = logits.shape[:2]
    query = torch.as_tensor(position, device=logits.device)
    if query.ndim and len(query) != examples:
        raise RequestError(f"{len(query)} positions for {examples} examples: give one position, or one per example")
    if bool(((query < -positions) | (query >= positions)).any()):
        raise OutOfRange(f"position {position} does not exist: the model has positions 0 to {positions - 1}")
    return (query % positions).expand(examples)


def _direction_weights(directions: Directions, logits: Tensor) -> Float[Tensor, "example vocabulary"]:
    examples, vocabulary = logits.shape[0], logits.shape[-1]
    tokens = directions if isinstance(directions, tuple) else (directions,)
    if isinstance(directions, Tensor) and directions.is_floating_point():
        if directions.shape != (examples, vocabulary):
            raise RequestError(
                f"the directions have shape {tuple(directions.shape)}: give [example, vocabulary] = "
                f"({examples}, {vocabulary})"
            )
        return directions.to(logits)
    for ids in tokens:
        if len(ids) != examples:
            raise RequestError(f"{len(ids)} tokens for {examples} examples: give one token per example")
        if bool(((ids < 0) | (ids >= vocabulary)).any()):
            raise OutOfRange(f"a token lies outside the vocabulary: ids go from 0 to {vocabulary - 1}")
    rows = torch.arange(examples, device=logits.device)
    weights = torch.zeros(examples, vocabulary, device=logits.device, dtype=logits.dtype)
    for sign, ids in zip((1.0, -1.0), tokens):
        weights[rows, ids.to(logits.device)] += sign
    return weights


def _attention_terms(
    model: HookedModel, layer: int, cache: dict[str, Tensor], rows: Tensor, query: Tensor, along: Tensor
) -> tuple[Float[Tensor, "example head source"], Float[Tensor, " example"]]:
    weights = head_weights(model, layer)
    pattern, values, W_O, b_O = precise(
        cache[f"blocks.{layer}.attn.hook_pattern"],
        cache[f"blocks.{layer}.attn.hook_v"],
        weights.W_O,
        weights.b_O,
    )
    clip = clip_of(model)
    values = values if clip is None else values.clamp(-clip, clip)
    groups = pattern.shape[1] // values.shape[2]
    values = repeat(values, "example source kv d_head -> example source (kv group) d_head", group=groups)
    written = einsum(W_O, along, "head d_head model, example model -> example head d_head")
    moved = einsum(values, written, "example source head d_head, example head d_head -> example head source")
    return pattern[rows, :, query] * moved, along @ b_O


def _unembedded(
    model: HookedModel, residual: Tensor, weights: Tensor, logits: Tensor, rows: Tensor, query: Tensor
) -> tuple[Float[Tensor, "example model"], Float[Tensor, " example"], Float[Tensor, " example"], tuple[str, ...]]:
    """The direction in the residual stream, what is added whatever the residual is, the direction's value, and notes.

    Raises RequestError for an unembedding that is not affine in the residual at the position that is read.
    """
    cap = float(getattr(model.cfg, "output_logits_soft_cap", -1.0) or -1.0)
    norm = norm_of(model, getattr(model, "ln_final", None))
    residual = precise(residual)[0]
    scale = None if norm is None else norm.scale(residual)

    def unembedded(at: Tensor) -> Float[Tensor, "example vocabulary"]:
        at = at if norm is None or scale is None else norm.frozen(at, scale)
        unembed: Any = model.unembed  # type: ignore[attr-defined]
        W_U = getattr(unembed, "W_U", None)
        if logits.dtype in (torch.float16, torch.bfloat16) and isinstance(W_U, Tensor) and W_U.ndim == 2:
            b_U = getattr(unembed, "b_U", None)
            return at[rows, query] @ W_U.to(at) + (0 if b_U is None else b_U.to(at))
        return precise(unembed(at.to(logits.dtype)))[0][rows, query]

    with torch.enable_grad():
        leaf = residual.clone().requires_grad_(True)
        here = unembedded(leaf)
        value = (here * weights).sum(-1)
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
    here, value, along = here.detach(), value.detach(), gradient[rows, query]
    constant = value - (along * residual[rows, query]).sum(-1)
    allowed = tolerance(model, logits.dtype)
    noise = torch.randn(residual.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(residual)
    for other in (-residual, noise * residual.square().mean().sqrt()):
        predicted = constant + (along * other[rows, query]).sum(-1)
        found = (unembedded(other) * weights).sum(-1)
        if _size(predicted - found) > allowed * (_size(here) + _size(predicted) + 1e-6):
            raise RequestError(
                "the unembedding is not linear in the final residual at the position that is read, so its logits do "
                "not split into a sum over heads: use patching or ablation for this model"
            )
    capped = cap * torch.tanh(here / cap) if cap > 0 else here
    if _size(capped - precise(logits)[0][rows, query]) > allowed * (_size(here) + _size(residual) + 1e-6):
        raise RequestError(
            "the logits are not the unembedding of the final norm (a scale behind it, or another norm), so they do not "
            "split into a sum over heads: use patching or ablation for this model"
        )
    notes = (f"the model caps its logits at {cap:g}: these are the logits before the cap",) if cap > 0 else ()
    return along, constant, value, notes
