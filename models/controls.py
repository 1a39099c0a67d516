"""Controls for the instruments: models that divide no work, as right as the original or as loud."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from headlab.interp.errors import RequestError
from headlab.models.hooked import Architecture, HookedTransformer, build


def repeated(model: HookedTransformer, architecture: Architecture, copies: int = 2) -> HookedTransformer:
    """A model whose layers hold every head of `model` several times, each copy writing its share of what it wrote.

    Its logits are the original's up to rounding, and any two copies do the same. Copies of one head share every role;
    copies of heads that divide the roles still divide them, redundantly.

    Args:
        model: The original.
        architecture: Its own.
        copies: How many of each head, at least 2.

    Raises:
        RequestError: For fewer than two copies.
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


def scaled(model: HookedTransformer, factor: float) -> HookedTransformer:
    """A copy whose trainable weights, norm weights apart, are `factor` times as large."""
    return _changed(model, lambda name, weight: weight if name.endswith(".w") else factor * weight)


def shuffled(model: HookedTransformer, seed: int) -> HookedTransformer:
    """A copy in which the entries of every trainable tensor stand in random order: the sizes stay, nothing else."""
    generator = torch.Generator().manual_seed(seed)

    def change(name: str, weight: torch.Tensor) -> torch.Tensor:
        return weight.flatten()[torch.randperm(weight.numel(), generator=generator).to(weight.device)].view_as(weight)

    return _changed(model, change)


def rotated(model: HookedTransformer, seed: int) -> HookedTransformer:
    """A copy in which each head has a random rotation between its queries and keys, and between its values and W_O.

    Every weight matrix keeps its singular values; what a head attends to and what it writes are at random.
    """
    changed, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for block in changed.blocks:
            attention: Any = block.attn
            for weights in ((attention.W_Q, attention.b_Q), (attention.W_V, attention.b_V)):
                rank = weights[0].shape[-1]
                draw = torch.randn(weights[0].shape[0], rank, rank, generator=generator, dtype=torch.float64)
                turn = torch.linalg.qr(draw).Q.to(weights[0])
                weights[0].copy_(weights[0] @ turn)
                weights[1].copy_((weights[1].unsqueeze(1) @ turn).squeeze(1))
    return changed


def with_heads_of(model: HookedTransformer, other: HookedTransformer) -> HookedTransformer:
    """A copy of `model` with the attention weights of `other`, a model of the same architecture: another seed's heads.

    Raises:
        RequestError: Where the two have weights of different shapes.
    """
    heads = {name: weight for name, weight in other.named_parameters() if ".attn." in name}
    for name, weight in model.named_parameters():
        if name in heads and heads[name].shape != weight.shape:
            raise RequestError(f"'{name}' has another shape in the two models: they are not of one architecture")
    changed = copy.deepcopy(model)
    with torch.no_grad():
        for name, weight in changed.named_parameters():
            if name in heads:
                weight.copy_(heads[name])
    return changed


Models = Callable[[int], HookedTransformer] | Sequence[HookedTransformer]


def undivided(
    model: HookedTransformer, untrained: Callable[[int], HookedTransformer], others: Sequence[HookedTransformer] = ()
) -> dict[str, Models]:
    """Sources of models that divide no work, by name, as headlab.interp.roles.chance takes them.

    Args:
        model: The model that is scored.
        untrained: Seed -> its architecture as the recipe initialises it.
        others: The same training under other seeds, where they exist: their heads, in the model's own residual
            stream, are the hardest source of all.
    """
    sources: dict[str, Models] = {
        "recipe initialisation": untrained,
        "initialisation x5": lambda seed: scaled(untrained(seed), 5.0),
        "initialisation x20": lambda seed: scaled(untrained(seed), 20.0),
        "shuffled weights": lambda seed: shuffled(model, seed),
        "rotated heads": lambda seed: rotated(model, seed),
    }
    if others:
        sources["another seed's heads"] = [with_heads_of(model, other) for other in others]
    return sources


def _changed(model: HookedTransformer, change: Callable[[str, torch.Tensor], torch.Tensor]) -> HookedTransformer:
    changed = copy.deepcopy(model)
    with torch.no_grad():
        for name, weight in sorted(changed.named_parameters()):
            if weight.requires_grad:
                weight.copy_(change(name, weight))
    return changed
