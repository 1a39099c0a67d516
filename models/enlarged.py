"""A model with room for more: the same function in a wider, longer or deeper architecture, new weights all 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from headlab.models.hooked import Architecture, HookedTransformer, build


def enlarged(
    model: HookedTransformer,
    architecture: Architecture,
    *,
    heads: int = 0,
    width: int = 0,
    head_width: int = 0,
    positions: int = 0,
    before: int = 0,
    after: int = 0,
    neurons: int = 0,
    norm: str | None = None,
    parts: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[HookedTransformer, Architecture]:
    """A copy of `model` whose old weights fill the first rows and columns of larger tensors; what is new is 0.

    New heads and layers of zeros write nothing, and nothing reads or writes the new axes, so the logits stay as they
    are (up to rounding), unless `norm` is given, which changes what every layer reads.

    Args:
        model: a model without MLPs.
        architecture: the model's own.
        heads, width, head_width, positions: how many heads a layer, axes of the residual stream, axes of each head's
            own space, and positions there are more.
        before, after: empty layers put before and after the model's own.
        neurons: of a ReLU MLP in every layer; 0 for none.
        norm: `normalization_type` of the new architecture, e.g. `RMSPre`.
        parts: parts that replace the architecture's own by slot, or None.

    Returns:
        The model and its architecture.

    Raises:
        ValueError: for a wider head where scores are divided by the root of its width.
    """
    config, layers = dict(architecture.config), architecture.config["n_layers"]
    if head_width and config.get("use_attn_scale", True):
        raise ValueError("scores are divided by the root of the head's width: a wider head would change them")
    sizes = {"n_heads": heads, "d_model": width, "d_head": head_width, "n_ctx": positions, "n_layers": before + after}
    config |= {name: config[name] + more for name, more in sizes.items()}
    if neurons:
        config |= {"attn_only": False, "d_mlp": neurons, "act_fn": "relu"}
    if norm is not None:
        config["normalization_type"] = norm
    slots = {**architecture.parts, **(parts or {})}
    attention = slots.pop("blocks.0.attn", None)
    kept = {name: dict(part) for name, part in slots.items() if not name.startswith("blocks.")}
    if attention is not None:
        kept |= {f"blocks.{layer}.attn": dict(attention) for layer in range(layers + before + after)}
    design = replace(architecture, config=config, parts=kept)
    made = build(design, device=str(model.cfg.device), dtype=model.cfg.dtype)
    new = dict(made.named_parameters())
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.startswith("blocks."):
                _, layer, rest = name.split(".", 2)
                name = f"blocks.{int(layer) + before}.{rest}"
            new[name][tuple(slice(0, size) for size in value.shape)] = value.detach()
    return made, design
