"""The transformers of retrieval: an encoder that appends a CLS, attention that is blind to it there, a read-out.

F(c0 + sum over heads and tokens of attention times value): c0 is the residual stream at the CLS, so that nothing has
to be taken away from a HookedTransformer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch

from headlab.interp.errors import RequestError
from headlab.models.hooked import Architecture, HookedTransformer, build
from headlab.models.retrieval.family import Family

Encoder = Literal["linear", "mlp"]
ENCODERS: tuple[str, ...] = ("linear", "mlp")
FROZEN = ("pos_embed.*", "blocks.*.attn.b_*")


def architecture(
    family: Family,
    heads: int,
    *,
    encoder: Encoder | str = "linear",
    width: int = 8,
    total_width: int | None = None,
    layers: int = 1,
    hidden: int = 32,
    readout: int = 32,
) -> Architecture:
    """A model to train: `heads` heads a layer, each of `width` n numbers, d_model = heads * n.

    total_width: d_model for a fixed total instead, n = total_width / heads. encoder: `linear` or `mlp`, a hidden layer
    of `hidden` ReLUs. The read-out has one hidden layer of `readout` GELUs. Positions are embedded where some S_i is
    not the whole sequence, else they are all alike. Raises ValueError for a count below 1, or a total width that the
    heads do not divide.
    """
    for name, value in (("heads", heads), ("width", width), ("layers", layers), ("hidden", hidden)):
        if value < 1:
            raise RequestError(f"{name} = {value}: it must be at least 1")
    if readout < 1:
        raise RequestError(f"readout = {readout}: the read-out needs at least 1 hidden unit")
    if encoder not in ENCODERS:
        raise RequestError(f"unknown encoder '{encoder}': choose {' or '.join(ENCODERS)}")
    if total_width is not None:
        if total_width < heads or total_width % heads:
            near = max(heads, heads * round(total_width / heads))
            raise RequestError(f"{heads} heads do not divide a total width of {total_width}: use {near}")
        width = total_width // heads
    embed: dict[str, Any] = {"part": "EncodedEmbed", "size": family.size}
    if encoder == "mlp":
        embed |= {"hidden": hidden, "activation": "relu"}
    return Architecture(
        config=config(family, heads, width, heads * width, layers=layers),
        parts={
            "embed": embed,
            "pos_embed": {"part": "FixedPositions"},
            **{f"blocks.{layer}.attn": {"part": "BlindClsAttention"} for layer in range(layers)},
            "unembed": {"part": "NetworkUnembed", "hidden": [readout], "activation": "gelu"},
        },
        frozen=FROZEN if family.is_whole else FROZEN[1:],
    )


def config(
    family: Family, heads: int, width: int, d_model: int, *, layers: int = 1, scaled: bool = True
) -> dict[str, Any]:
    """The fields of HookedTransformerConfig that the models of retrieval share; scaled: scores over sqrt(n)."""
    return {
        "n_layers": layers,
        "n_heads": heads,
        "d_model": d_model,
        "d_head": width,
        "n_ctx": family.length + 1,
        "d_vocab": 1,
        "d_vocab_out": 1,
        "attn_only": True,
        "normalization_type": None,
        "use_attn_scale": scaled,
    }


def start(
    design: Architecture, *, seed: int, device: str = "cpu", dtype: torch.dtype | str = torch.float32
) -> HookedTransformer:
    """A model as training starts it: weights N(0, 1 / fan-in), c0 N(0, 1), biases 0. No global generator moves.

    The draw depends on the seed and the architecture only.
    """
    model = build(design, device=device, dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            last = name.rsplit(".", 1)[-1]
            if not parameter.requires_grad or last.startswith("b_"):
                continue
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_((drawn / math.sqrt(_fan_in(last, parameter))).to(parameter))
    return model


def _fan_in(name: str, parameter: torch.Tensor) -> int:
    if name in ("c0", "W_pos"):
        return 1
    if name == "W_O":
        return parameter.shape[0] * parameter.shape[1]
    return parameter.shape[-2]


def summary(design: Architecture) -> Mapping[str, Any]:
    """What distinguishes an architecture here: heads, width, d_model, layers, encoder."""
    embed = design.parts["embed"]
    return {
        "heads": design.config["n_heads"],
        "width": design.config["d_head"],
        "d_model": design.config["d_model"],
        "layers": design.config["n_layers"],
        "encoder": "mlp" if embed.get("hidden") else "linear",
    }
