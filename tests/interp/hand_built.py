"""Small models for the instrument tests: random ones of many kinds, and endpoint selection written by hand."""

from typing import Any

import torch

from headlab.models.hooked import Architecture, HookedTransformer, build, initialise


def random_model(*, seed: int = 0, scale: float = 0.5, dtype: torch.dtype = torch.float64, **config: Any):
    """A random HookedTransformer: 2 layers, 2 heads, d_model 8, d_head 4, 5 positions, 7 tokens, unless stated."""
    options: dict[str, Any] = {
        "n_layers": 2,
        "n_heads": 2,
        "d_model": 8,
        "d_head": 4,
        "n_ctx": 5,
        "d_vocab": 7,
        "attn_only": True,
        "normalization_type": None,
        **config,
    }
    if not options["attn_only"]:
        options = {"d_mlp": 12, "act_fn": "gelu", **options}
    model = build(Architecture(options), dtype=dtype)
    initialise(model, scale=scale, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".b" in name or name.endswith("_U") or ".w" in name:
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.add_((0.3 * noise).to(parameter))
    return model


def tokens(count: int, *, seed: int = 0, positions: int = 5, vocabulary: int = 7) -> torch.Tensor:
    """Random tokens [example, position]."""
    return torch.randint(vocabulary, (count, positions), generator=torch.Generator().manual_seed(seed))


def two_heads(n: int = 5, M: float = 8.0, dtype: torch.dtype = torch.float64) -> HookedTransformer:
    """Endpoint selection with two heads: the wrong selector's position is a sink of strength M and zero value."""
    y, z, q, width, eta = n, n + 1, n + 2, n + 3, 0.1
    config = {
        "n_layers": 1,
        "n_heads": 2,
        "d_model": width,
        "d_head": n,
        "n_ctx": 4,
        "d_vocab": n + 3,
        "attn_only": True,
        "normalization_type": None,
        "use_attn_scale": False,
    }
    model = build(Architecture(config), dtype=dtype)
    weights = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    embed, positions = weights["embed.W_E"], weights["pos_embed.W_pos"]
    embed[:n, :n] = torch.eye(n)
    embed[n, y], embed[n, z], embed[n + 1, y], embed[n + 1, z] = -1.0, 1.0, 1.0, -1.0
    embed[n + 2, q] = eta
    positions[0, z], positions[1, y] = -1.0, -1.0
    for head, key in enumerate((y, z)):
        weights["blocks.0.attn.W_Q"][head, q, 0] = 1 / eta
        weights["blocks.0.attn.W_K"][head, key, 0] = M
        weights["blocks.0.attn.W_V"][head, :n] = torch.eye(n)
        weights["blocks.0.attn.W_O"][head, :, :n] = torch.eye(n)
    weights["unembed.W_U"][:n, :n] = torch.eye(n)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
    return model


def arcs(n: int = 5) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """All samples (u, v, selector, #) of the complete digraph, the target, the other endpoint, the selector 0 or 1."""
    rows = [(u, v, n + i, n + 2) for u in range(n) for v in range(n) if u != v for i in range(2)]
    inputs = torch.tensor(rows)
    selector = inputs[:, 2] - n
    target = inputs[torch.arange(len(rows)), selector]
    other = inputs[torch.arange(len(rows)), 1 - selector]
    return inputs, target, other, selector
