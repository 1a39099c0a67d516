"""`headlab bench patching`: exact patching beside transformer_lens.patching, in one run, results compared.

The peer's time is that of its own recipe: cache the source run, then one forward pass per cell. Ours is that of
`patch_sweep`, both runs included. The allocator keeps freed memory for both: glibc's page faults would double either.
"""

from __future__ import annotations

import ctypes
import random
import resource
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from analyses.bench_edges import edges_case
from interp.patching import patch_sweep
from models.hooked import Architecture, HookedTransformer, build, initialise

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

# For the peer on part of the cells: how it writes one, axes in the order of SWEEPS.
SETTERS = {
    "z": peer.layer_pos_head_vector_patch_setter,
    "pattern": peer.layer_head_dest_src_pos_pattern_patch_setter,
}

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def keep_memory() -> bool:
    """Tell glibc to keep freed memory, for both sides alike; False where the C library has no such switch."""
    try:
        libc = ctypes.CDLL("libc.so.6")
        return bool(libc.mallopt(M_MMAP_THRESHOLD, 1 << 30) and libc.mallopt(M_TRIM_THRESHOLD, 1 << 30))
    except (OSError, AttributeError):
        return False


# ---- equality on random configs ------------------------------------------------------------------------------------


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


def difference(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest value (or to 1, where that is more)."""
    if found.shape != expected.shape:
        raise RuntimeError(f"shapes {tuple(found.shape)} and {tuple(expected.shape)} differ")
    return float((found.double() - expected.double()).abs().max()) / max(1.0, float(expected.abs().max()))


def equality(seeds: Sequence[int]) -> dict[str, float]:
    """Every sweep of every seed, both engines in float64 and the cone in float32: the largest difference from the peer;
    without a norm in float32, how much further from float64 we are than the peer is."""
    worst = {"float64": 0.0, "float32 with a norm": 0.0, "float32 without, ours over the peer's": 0.0}
    for seed in seeds:
        case, single = random_case(seed), random_case(seed, torch.float32)
        normed = case.config["normalization_type"] is not None
        own, theirs = 0.0, 0.0
        for component, by, function in case.sweeps():
            exact = peer_values(case, function)
            for engine in ("cone", "expand"):
                found, used = our_values(case, component, by, engine)
                if used != engine:
                    raise RuntimeError(f"seed {seed}: {component} ran through {used}, not {engine}")
                worst["float64"] = max(worst["float64"], difference(found, exact))
            found, _ = our_values(single, component, by, "cone")
            peers = peer_values(single, function)
            if normed:
                worst["float32 with a norm"] = max(worst["float32 with a norm"], difference(found, peers))
            else:
                own, theirs = max(own, difference(found, exact)), max(theirs, difference(peers, exact))
        if theirs:
            key = "float32 without, ours over the peer's"
            worst[key] = max(worst[key], own / max(theirs, 1e-7))
    return worst


# ---- speed ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SpeedCase:
    """A model, runs and a sweep. sample: how many cells a layer the peer runs, None for all; its time is scaled up."""

    name: str
    config: dict[str, Any]
    length: int
    batch: int
    component: str
    by: tuple[str, ...]
    layers: tuple[int, ...] | None = None
    sample: int | None = None
    quick: bool = True


_FOUR = {"n_layers": 4, "n_heads": 4, "d_model": 64, "d_head": 16, "d_mlp": 256, "act_fn": "gelu", "d_vocab": 64}
_ONE = {"n_layers": 1, "n_heads": 8, "d_model": 256, "d_head": 32, "attn_only": True, "d_vocab": 64}
_GPT2 = {"n_layers": 12, "n_heads": 12, "d_model": 768, "d_head": 64, "d_mlp": 3072, "act_fn": "gelu_new"}
_Z = ("layer", "position", "head")

CASES = (
    SpeedCase("1 layer 8 heads d=256, z by position and head", _ONE, 64, 8, "z", _Z),
    SpeedCase("4 layers 4 heads d=64 with MLP, z by position and head", _FOUR, 32, 8, "z", _Z),
    SpeedCase("4 layers 4 heads d=64 with MLP, z by position and head", _FOUR, 32, 1, "z", _Z),
    SpeedCase(
        "1 layer 8 heads d=256, pattern map destination x source",
        _ONE,
        64,
        8,
        "pattern",
        ("layer", "head", "destination", "source"),
        sample=1024,
    ),
    SpeedCase(
        "12 layers 12 heads d=768 (GPT-2 small's shape, 50257 tokens), z, layers 0 3 6 9",
        {**_GPT2, "d_vocab": 50257},
        32,
        1,
        "z",
        _Z,
        layers=(0, 3, 6, 9),
        sample=4,
        quick=False,
    ),
)


def measure(case: SpeedCase, pairs: int) -> dict[str, Any]:
    """The record of one case. The first pair of a run that takes over 20 s is the only one, and the name says so."""
    config = {"normalization_type": "LN", "attn_only": False, "n_ctx": case.length, **case.config}
    model = build(Architecture(config))
    initialise(model, scale=0.8 / config["d_model"] ** 0.5, seed=0)
    generator = torch.Generator().manual_seed(1)
    runs = torch.randint(config["d_vocab"], (2, case.batch, case.length), generator=generator)
    right, wrong = torch.randint(config["d_vocab"], (2, case.batch), generator=generator)
    rows = torch.arange(case.batch)

    def metric(logits: Tensor) -> Tensor:
        return logits[rows, -1, right] - logits[rows, -1, wrong]

    layers = tuple(range(config["n_layers"])) if case.layers is None else case.layers
    ratios: list[float] = []
    worst, work, seconds = 0.0, 0, 0.0
    for pair in range(pairs):
        start = time.process_time()
        expected, scale = _peer(case, model, runs, metric, layers)
        theirs = (time.process_time() - start) * scale
        start = time.process_time()
        result = patch_sweep(
            model, runs[0], runs[1], metric, component=case.component, by=case.by, layers=layers, read=(-1,)
        )
        ours = time.process_time() - start
        if result.engine != "cone":
            raise RuntimeError(f"the cone did not run: {result.notes}")
        effects = result.values[0].mean(-1)
        largest = max(abs(value) for value in expected.values())
        worst = max(worst, *(abs(float(effects[cell]) - value) / largest for cell, value in expected.items()))
        ratios.append(theirs / ours)
        work, seconds = result.work or 0, theirs / scale + ours
        if seconds > 20 and pair == 0:
            break
    done = f"{len(ratios)} pair{'s' if len(ratios) > 1 else ''}"
    told = f"{case.name}, T={case.length} B={case.batch}, read last, float32, {done}"
    if case.sample is not None:
        told += f"; the peer on {len(expected)} of {effects.numel()} cells, its time scaled up"
    floor = least_work(model, layers, case) if case.component == "z" else None
    return {
        "case": told,
        "peer": "transformer_lens.patching",
        "ratio": {"min": min(ratios), "median": float(np.median(ratios)), "max": max(ratios)},
        "max_difference": worst,
        "work": None if floor is None else {"ours": work, "floor": floor},
        "peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _peer(
    case: SpeedCase, model: HookedTransformer, runs: Tensor, metric: Callable[[Tensor], Tensor], layers: Sequence[int]
) -> tuple[dict[tuple[int, ...], float], float]:
    """Values of the peer by index into our result, and what its time must be multiplied by to stand for every cell."""
    function = {(component, by): function for component, by, function in SWEEPS}[(case.component, case.by)]
    with torch.no_grad():
        _, cache = model.run_with_cache(runs[0])
        if case.sample is None:
            values = function(model, runs[1], cache, lambda logits: metric(logits).mean())
            return dict(np.ndenumerate(values.double().numpy())), 1.0
        sizes = {"position": case.length, "head": model.cfg.n_heads}
        shape = [sizes.get(axis, case.length) for axis in case.by[1:]]
        rng = np.random.default_rng(0)
        chosen = [
            (layer, *(int(along) for along in np.unravel_index(cell, shape)))
            for layer in layers
            for cell in rng.choice(np.prod(shape), case.sample, replace=False)
        ]
        values = peer.generic_activation_patch(
            model,
            runs[1],
            cache,
            lambda logits: metric(logits).mean(),
            SETTERS[case.component],
            case.component,
            index_df=pd.DataFrame(chosen, columns=list(case.by)),
        )
        index = [(layers.index(layer), *along) for layer, *along in chosen]
        return dict(zip(index, values.tolist())), float(np.prod(shape)) / case.sample


def least_work(model: HookedTransformer, layers: Sequence[int], case: SpeedCase) -> int:
    """Multiply-adds of the z cells that act, each alone and dense: only rows that change, only keys that are seen, in
    the last block only the last position, which is the one that is read."""
    cfg = model.cfg
    width, heads, last = cfg.d_model, cfg.n_heads * cfg.d_head, case.length - 1
    mlp = 0 if cfg.attn_only else sum(p.numel() for p in model.blocks[0].mlp.parameters() if p.ndim > 1)
    unembed = width * cfg.d_vocab
    total = 0
    for layer in layers:
        for position in range(case.length):
            if layer == cfg.n_layers - 1 and position != last:
                continue
            cell, rows = cfg.d_head * width + mlp, case.length - position
            seen = sum(range(position + 1, case.length + 1))
            for above in range(layer + 1, cfg.n_layers):
                first, final = above == layer + 1, above == cfg.n_layers - 1
                changed = 1 if first else rows
                asked = (1 if position == last else 0) if first and final else (1 if final else changed)
                cell += changed * 2 * width * heads + asked * width * heads
                if final:
                    scores, values = (1 if first and position != last else case.length), case.length
                    if not first:
                        scores = case.length
                    cell += (scores + values) * heads + width * heads + mlp
                else:
                    scores = (position + 1) + (rows - 1) if first else seen
                    cell += (scores + seen) * heads + rows * (width * heads + mlp)
            total += (cell + unembed) * cfg.n_heads * case.batch
    return total


def run(quick: bool = False) -> dict[str, Any]:
    """The JSON of `headlab bench patching`; `quick` leaves out the cases whose peer takes minutes."""
    kept = keep_memory()
    shown, peer.tqdm = peer.tqdm, lambda rows, **options: rows
    try:
        count = 20 if quick else 200
        worst = equality(range(count))  # before the clock runs: both sides are warm
        cases = [measure(case, 1 if quick else 5) for case in CASES if case.quick or not quick]
        cases.append(edges_case(1 if quick else 5, sample=50 if quick else 200))
    finally:
        peer.tqdm = shown
    return {
        "name": "patching",
        "threads": torch.get_num_threads(),
        "cases": cases,
        "equality": {"configs": count, **worst},
        "allocator": "keeps freed memory on both sides" if kept else "as the system sets it",
    }
