"""Exact patching against transformer_lens.patching on random small models: the same numbers, whatever the config."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.patching import patch_sweep
from headlab.models.hooked import Architecture, HookedTransformer, build, initialise

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformer_lens.patching as peer

Peer = Callable[..., Tensor]

# component, the axes of its cells, the peer's function.
SWEEPS: tuple[tuple[str, tuple[str, ...], Peer], ...] = (
    ("resid_pre", ("layer", "position"), peer.get_act_patch_resid_pre),
    ("resid_mid", ("layer", "position"), peer.get_act_patch_resid_mid),
    ("attn_out", ("layer", "position"), peer.get_act_patch_attn_out),
    ("mlp_out", ("layer", "position"), peer.get_act_patch_mlp_out),
    ("z", ("layer", "position", "head"), peer.get_act_patch_attn_head_out_by_pos),
    ("q", ("layer", "position", "head"), peer.get_act_patch_attn_head_q_by_pos),
    ("k", ("layer", "position", "head"), peer.get_act_patch_attn_head_k_by_pos),
    ("v", ("layer", "position", "head"), peer.get_act_patch_attn_head_v_by_pos),
    ("pattern", ("layer", "head", "destination"), peer.get_act_patch_attn_head_pattern_by_pos),
    ("pattern", ("layer", "head", "destination", "source"), peer.get_act_patch_attn_head_pattern_dest_src_pos),
    ("z", ("layer", "head"), peer.get_act_patch_attn_head_out_all_pos),
    ("q", ("layer", "head"), peer.get_act_patch_attn_head_q_all_pos),
    ("k", ("layer", "head"), peer.get_act_patch_attn_head_k_all_pos),
    ("v", ("layer", "head"), peer.get_act_patch_attn_head_v_all_pos),
    ("pattern", ("layer", "head"), peer.get_act_patch_attn_head_pattern_all_pos),
)


@dataclass(frozen=True)
class RandomCase:
    """A random small model and two runs: 1-3 layers, five norms, MLP or not, causal or bidirectional, standard or
    rotary positions, key-value heads grouped or not."""

    config: dict[str, Any]
    model: HookedTransformer
    source: Tensor
    destination: Tensor
    read: tuple[int, ...] | None
    weight: Float[Tensor, "read vocabulary"]

    def metric(self, logits: Float[Tensor, "example read vocabulary"]) -> Float[Tensor, " example"]:
        """Linear and not: what a metric can be."""
        weight = self.weight.to(logits.dtype)
        return (logits.softmax(-1) * weight).sum((-1, -2)) + (logits * weight).sum((-1, -2))

    def rows(self) -> list[int]:
        """The read positions, counted from 0."""
        count = self.source.shape[1]
        return list(range(count)) if self.read is None else [position % count for position in self.read]

    def sweeps(self) -> Iterator[tuple[str, tuple[str, ...], Peer]]:
        """The sweeps that this model has."""
        for component, by, function in SWEEPS:
            if component not in ("resid_mid", "mlp_out") or not self.config["attn_only"]:
                yield component, by, function


def random_case(seed: int, dtype: torch.dtype = torch.float64, *, norm: str | None = "any") -> RandomCase:
    """The case of `seed`: the same model and runs in every dtype. norm: one of the five, None among them, or `any`."""
    rng = random.Random(seed)
    heads, d_head, rotary = rng.choice((1, 2, 4)), rng.choice((4, 6)), rng.random() < 0.5
    chosen = rng.choice((None, "LN", "LNPre", "RMS", "RMSPre"))
    config: dict[str, Any] = {
        "n_layers": rng.choice((1, 2, 3)),
        "n_heads": heads,
        "d_model": rng.choice((8, 12)),
        "d_head": d_head,
        "n_ctx": 8,
        "d_vocab": 9,
        "attn_only": rng.random() < 0.5,
        "normalization_type": chosen if norm == "any" else norm,
        "attention_dir": rng.choice(("causal", "bidirectional")),
    }
    if rotary:
        config |= {"positional_embedding_type": "rotary", "rotary_dim": rng.choice((4, d_head))}
        config["rotary_adjacent_pairs"] = rng.random() < 0.5
    if heads > 1 and rng.random() < 0.4:
        config["n_key_value_heads"] = rng.choice([count for count in (1, 2) if count < heads])
    if not config["attn_only"]:
        config |= {"d_mlp": 10, "act_fn": rng.choice(("gelu", "relu", "silu", "gelu_new"))}
        config["gated_mlp"] = rng.random() < 0.5
    model = random_weights(build(Architecture(config), dtype=dtype), seed, scale=0.5)
    length, batch = rng.choice((1, 3, 4)), rng.choice((1, 2, 3))
    generator = torch.Generator().manual_seed(seed)
    source, destination = (torch.randint(9, (batch, length), generator=generator) for _ in range(2))
    read = rng.choice((None, (-1,), (length // 2,), (0, length - 1) if length > 1 else (0,)))
    rows = length if read is None else len(read)
    weight = torch.randn(rows, 9, generator=generator, dtype=torch.float64)
    return RandomCase(config, model, source, destination, read, weight)


def random_weights(model: HookedTransformer, seed: int, scale: float) -> HookedTransformer:
    """The model with random weights, biases and norm weights too."""
    initialise(model, scale=scale, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".b" in name or ".w" in name:
                noise = 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.add_(noise.to(parameter))
    return model


def peer_values(case: RandomCase, function: Peer) -> Tensor:
    """What transformer_lens.patching gives: the mean metric of each cell."""
    rows = case.rows()
    before = torch.get_default_dtype()
    torch.set_default_dtype(case.model.cfg.dtype)  # the peer stores its results in the default dtype
    try:
        with torch.no_grad():
            _, cache = case.model.run_with_cache(case.source)
            return function(case.model, case.destination, cache, lambda logits: case.metric(logits[:, rows]).mean())
    finally:
        torch.set_default_dtype(before)


def our_values(case: RandomCase, component: str, by: Sequence[str], engine: Any) -> tuple[Tensor, str]:
    """What `patch_sweep` gives, and the engine that gave it."""
    result = patch_sweep(
        case.model,
        case.source,
        case.destination,
        case.metric,
        component=component,
        by=by,
        read=case.read,
        engine=engine,
    )
    return result.values[0].mean(-1), result.engine


def difference(our_result: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest value (or to 1, where that is more)."""
    if our_result.shape != expected.shape:
        raise RuntimeError(f"shapes {tuple(our_result.shape)} and {tuple(expected.shape)} differ")
    return float((our_result.double() - expected.double()).abs().max()) / max(1.0, float(expected.abs().max()))


def equality(seeds: Sequence[int]) -> dict[str, float]:
    """Every sweep of every seed, both engines in float64 and the cone in float32: the largest difference from the peer.

    Without a norm activations grow, and two float32 runs part: there, how far we and the peer each are from float64.
    """
    far, ours, theirs = "float32 without a norm, from float64", "ours", "the peer"
    worst = {"float64": 0.0, "float32 with a norm": 0.0, f"{far}: {ours}": 0.0, f"{far}: {theirs}": 0.0}

    def note(key: str, value: float) -> None:
        worst[key] = max(worst[key], value)

    for seed in seeds:
        case, single = random_case(seed), random_case(seed, torch.float32)
        for component, by, function in case.sweeps():
            exact = peer_values(case, function)
            for engine in ("cone", "expand"):
                our_result, used = our_values(case, component, by, engine)
                if used != engine:
                    raise RuntimeError(f"seed {seed}: {component} ran through {used}, not {engine}")
                note("float64", difference(our_result, exact))
            our_result, _ = our_values(single, component, by, "cone")
            peers = peer_values(single, function)
            if case.config["normalization_type"] is not None:
                note("float32 with a norm", difference(our_result, peers))
            else:
                note(f"{far}: {ours}", difference(our_result, exact))
                note(f"{far}: {theirs}", difference(peers, exact))
    return worst
