"""The transformers of the head-count studies on real data: pre-norm encoder layers that see the whole sequence.

Two read-outs. `class_reader` appends a CLS and reads classes there (a small ViT); `place_reader` marks the last token
as the query and gives every other token one score (which passage answers it).
"""

from __future__ import annotations

import math
from typing import Any

import torch

from headlab.interp.errors import RequestError
from headlab.models.hooked import Architecture, HookedTransformer, build, initialise


def class_reader(
    *,
    size: int,
    length: int,
    classes: int,
    heads: int,
    width: int = 16,
    total_width: int | None = None,
    layers: int = 4,
    expansion: int = 2,
) -> Architecture:
    """`length` tokens of `size` numbers, learned positions, a CLS at the end whose logits are the classes.

    Widths as in `widths`; expansion: hidden units of an MLP over d_model. Raises ValueError for a count below 1.
    """
    _require(size=size, length=length, classes=classes, layers=layers, expansion=expansion)
    model, head = widths(heads, width, total_width)
    return Architecture(
        config=_config(heads, model, head, layers, expansion) | {"n_ctx": length + 1, "d_vocab_out": classes},
        parts={"embed": {"part": "EncodedEmbed", "size": size}, "pos_embed": {"part": "FixedPositions"}},
    )


def place_reader(
    *,
    size: int,
    length: int,
    heads: int,
    width: int = 16,
    total_width: int | None = None,
    layers: int = 2,
    expansion: int = 2,
) -> Architecture:
    """`length` candidates of `size` numbers and a query after them; every position gets one score, without positions.

    The model is blind to the order of the candidates. Raises ValueError for a count below 1.
    """
    _require(size=size, length=length, layers=layers, expansion=expansion)
    model, head = widths(heads, width, total_width)
    return Architecture(
        config=_config(heads, model, head, layers, expansion) | {"n_ctx": length + 1, "d_vocab_out": 1},
        parts={"embed": {"part": "QueryEmbed", "size": size}, "pos_embed": {"part": "NoPosition"}},
    )


def widths(heads: int, width: int, total_width: int | None) -> tuple[int, int]:
    """(d_model, d_head): `width` numbers a head, or `total_width` shared among the heads.

    Where the heads do not divide the total, d_model stays the total and d_head is rounded, so that all heads together
    have a few numbers more or fewer than d_model. Raises ValueError for a count below 1 or fewer numbers than heads.
    """
    _require(heads=heads, width=width)
    if total_width is None:
        return heads * width, width
    if total_width < heads:
        raise RequestError(f"a total width of {total_width} is too small for {heads} heads: each needs at least 1")
    return total_width, max(1, round(total_width / heads))


def start(
    design: Architecture, *, seed: int, device: str = "cpu", dtype: torch.dtype | str = torch.float32
) -> HookedTransformer:
    """A model as training starts it: weights N(0, 1 / fan-in), positions and marks N(0, 1/4), biases 0, norms 1.

    What a layer adds to the residual stream is 1 / sqrt(2 layers) smaller; the read-out starts at a tenth. The draw
    depends on the seed and the architecture only.
    """
    model = build(design, device=device, dtype=dtype)
    initialise(model, scale=1.0, seed=seed)
    added = 1 / math.sqrt(2 * design.config["n_layers"])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            last = name.rsplit(".", 1)[-1]
            if last in ("W_pos", "c0"):
                parameter.mul_(0.5)
            elif last == "W_O":
                parameter.mul_(added / math.sqrt(parameter.shape[0] * parameter.shape[1]))
            elif last == "W_out":
                parameter.mul_(added / math.sqrt(parameter.shape[0]))
            elif last == "W_U":
                parameter.mul_(0.1 / math.sqrt(parameter.shape[0]))
            elif last.startswith("W_"):
                parameter.mul_(1 / math.sqrt(parameter.shape[-2]))
    return model


def _config(heads: int, model: int, head: int, layers: int, expansion: int) -> dict[str, Any]:
    return {
        "n_layers": layers,
        "n_heads": heads,
        "d_model": model,
        "d_head": head,
        "d_mlp": expansion * model,
        "act_fn": "relu",
        "d_vocab": 1,
        "normalization_type": "LN",
        "attention_dir": "bidirectional",
    }


def _require(**counts: int) -> None:
    for name, value in counts.items():
        if value < 1:
            raise RequestError(f"{name} = {value}: it must be at least 1")
