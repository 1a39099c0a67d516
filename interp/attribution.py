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
from headlab.interp.model import HookedModel, activations, head_weights, run, untouched

FINAL_SCALE = "ln_final.hook_scale"

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
    logits: the model's own value of the direction; `total` equals it up to rounding.
    query: the position that was read. Units: logits, times the direction's own.
    """

    heads: Float[Tensor, "example layer head source"]
    biases: Float[Tensor, "example layer"]
    mlps: Float[Tensor, "example layer"]
    embed: Float[Tensor, " example"]
    positional: Float[Tensor, " example"]
    constant: Float[Tensor, " example"]
    logits: Float[Tensor, " example"]
    query: Int[Tensor, " example"]

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
    model: HookedModel, inputs: Tensor, directions: Directions, *, position: int | Int[Tensor, " read"] = -1
) -> DirectLogitAttribution:
    """Split a direction of the logits at `position` into the terms that write it (Elhage et al. 2021).

    directions: weights over the vocabulary per example; or one token per example (its logit); or two tokens per
    example (the first one's logit minus the second's). position: one for all examples, or one per example.

    The read-out (final norm with its scale frozen, unembedding) is taken as the model applies it, replaced parts
    included, and must then be linear. Raises ValueError where it is not, where the direction does not fit the logits,
    or where the model adds to the residual stream what is none of these terms; IndexError for a position or token
    that does not exist.
    """
    layers, attn_only = model.cfg.n_layers, bool(model.cfg.attn_only)
    final = f"blocks.{layers - 1}.hook_resid_post"
    names = ["blocks.0.hook_resid_pre", final]
    names += [FINAL_SCALE] if FINAL_SCALE in model.hook_dict else []
    positional = model.cfg.positional_embedding_type == "standard" and "hook_pos_embed" in model.hook_dict
    names += ["hook_pos_embed"] if positional else []
    for layer in range(layers):
        names += [f"blocks.{layer}.attn.hook_v", f"blocks.{layer}.attn.hook_pattern", f"blocks.{layer}.hook_attn_out"]
        names += [] if attn_only else [f"blocks.{layer}.hook_mlp_out"]
    with untouched(model):
        logits, kept = activations(model, inputs, names)
        query = _queries(position, logits)
        weights = _direction_weights(directions, logits)
        residual, scale = kept[final], kept.get(FINAL_SCALE)
        gradient, constant = _read_out(model, inputs, weights, query, residual, final, scale)
        rows = torch.arange(len(query), device=logits.device)
        along = _wide(gradient)

        def term(name: str) -> Float[Tensor, " example"]:
            return (_wide(kept[name]).expand(len(rows), -1, -1)[rows, query] * along).sum(-1)

        heads, biases, mlps = [], [], []
        for layer in range(layers):
            head, bias = _attention_terms(model, layer, kept, rows, query, along)
            attention = term(f"blocks.{layer}.hook_attn_out")
            if not _close(head.sum((1, 2)) + bias, attention, _size(head) + _size(attention)):
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
            logits=(_wide(logits[rows, query]) * _wide(weights)).sum(-1),
            query=query,
        )
        magnitude = _size(start) + sum(_size(part) for part in (*heads, *biases, *mlps))
        if not _close(result.total, result.logits, magnitude):
            raise RequestError(
                "the embedding, the heads and the MLPs do not add up to the logits: something else writes to this "
                "model's residual stream, so direct attribution is not defined for it"
            )
    return result


def _wide(values: Tensor) -> Tensor:
    return values if values.dtype == torch.float64 else values.float()


def _size(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


def _close(found: Tensor, expected: Tensor, magnitude: float) -> bool:
    tolerance = {torch.float64: 1e-9, torch.float32: 1e-4}.get(expected.dtype, 3e-2)
    return _size(found - expected) <= tolerance * (magnitude + 1e-6)


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
    model: HookedModel, layer: int, kept: dict[str, Tensor], rows: Tensor, query: Tensor, along: Tensor
) -> tuple[Float[Tensor, "example head source"], Float[Tensor, " example"]]:
    weights = head_weights(model, layer)
    pattern = _wide(kept[f"blocks.{layer}.attn.hook_pattern"])[rows, :, query]
    values = _wide(kept[f"blocks.{layer}.attn.hook_v"])
    groups = pattern.shape[1] // values.shape[2]
    values = repeat(values, "example source kv d_head -> example source (kv group) d_head", group=groups)
    written = einsum(_wide(weights.W_O), along, "head d_head model, example model -> example head d_head")
    moved = einsum(values, written, "example source head d_head, example head d_head -> example head source")
    return pattern * moved, along @ _wide(weights.b_O)


def _read_out(
    model: HookedModel,
    inputs: Tensor,
    weights: Tensor,
    query: Tensor,
    residual: Tensor,
    final: str,
    scale: Tensor | None,
) -> tuple[Float[Tensor, "example model"], Float[Tensor, " example"]]:
    """The direction in the residual stream, and the constant, of a read-out that must be affine in the residual."""
    rows = torch.arange(len(query), device=residual.device)
    hooks: dict[str, Any] = {}
    if scale is not None:
        hooks[FINAL_SCALE] = lambda value, hook: scale

    def value(at: Tensor) -> Float[Tensor, " example"]:
        def put(activation: Tensor, hook: Any) -> Tensor:
            return at

        logits = run(model, inputs, {**hooks, final: put})
        return (_wide(logits[rows, query]) * _wide(weights)).sum(-1)

    with torch.enable_grad():
        leaf = residual.clone().requires_grad_(True)
        here = value(leaf)
        (gradient,) = torch.autograd.grad(here.sum(), leaf)
    here = here.detach()
    own = gradient[rows, query]
    constant = here - (_wide(own) * _wide(residual[rows, query])).sum(-1)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(residual.shape, generator=generator, dtype=torch.float64).to(residual)
    spread = residual.float().square().mean().sqrt().to(residual)
    for other in (-residual, noise * spread):
        predicted = constant + (_wide(own) * _wide(other[rows, query])).sum(-1)
        if not _close(predicted, value(other), _size(here) + _size(predicted)):
            raise RequestError(
                "the read-out is not linear in the final residual at the position that is read, so its logits do not "
                "split into a sum over heads: use patching or ablation for this model"
            )
    return own, constant
