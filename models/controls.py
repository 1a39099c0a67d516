"""Controls for the instruments: models that are as right as the original and divide no work."""

from __future__ import annotations

from dataclasses import replace

import torch

from headlab.interp.errors import RequestError
from headlab.models.hooked import Architecture, HookedTransformer, build


def repeated(model: HookedTransformer, architecture: Architecture, copies: int = 2) -> HookedTransformer:
    """A model whose layers hold every head of `model` `copies` times, each copy writing 1/copies of what it wrote.

    Its logits are the original's up to rounding, and any two copies do the same: an accurate model in which copies
    share every role. `architecture` is the model's own. Raises ValueError for fewer than two copies.
    """
    if copies < 2:
        raise RequestError(f"{copies} copies of each head: a control that divides no work needs at least 2")
    config = {**architecture.config, "n_heads": copies * model.cfg.n_heads}
    widened = build(replace(architecture, config=config), device=str(model.cfg.device), dtype=model.cfg.dtype)
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in widened.named_parameters():
            value = own[name].detach()
            last = name.rsplit(".", 1)[-1]
            if ".attn." in name and last != "b_O":
                value = value.repeat(copies, *[1] * (value.ndim - 1))
                value = value / copies if last == "W_O" else value
            parameter.copy_(value)
    return widened
