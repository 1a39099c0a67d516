"""`headlab bench patching`: exact patching beside transformer_lens.patching, in one run, results compared.

The peer's time is that of its own recipe: cache the source run, then one forward pass per cell. Ours is that of
`patch_sweep`, both runs included. The allocator keeps freed memory for both: glibc's page faults would double either.
"""

from __future__ import annotations

import ctypes
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from headlab.analyses.bench.edges import edges_case
from headlab.analyses.bench.equality import SWEEPS, equality, peer
from headlab.interp.patching import patch_sweep
from headlab.models.hooked import Architecture, HookedTransformer, build, initialise

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
    worst, work, seconds, own = 0.0, 0, 0.0, []
    for pair in range(pairs):
        start = time.process_time()
        expected, scale = _peer(case, model, runs, metric, layers)
        theirs = (time.process_time() - start) * scale
        start = time.process_time()
        result = patch_sweep(
            model, runs[0], runs[1], metric, component=case.component, by=case.by, layers=layers, read=(-1,)
        )
        ours = time.process_time() - start
        own.append(ours)
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
    description = f"{case.name}, T={case.length} B={case.batch}, read last, float32, {done}"
    if case.sample is not None:
        description += f"; the peer on {len(expected)} of {effects.numel()} cells, its time scaled up"
    floor = least_work(model, layers, case) if case.component == "z" else None
    return {
        "case": description,
        "peer": "transformer_lens.patching",
        "ratio": {"min": min(ratios), "median": float(np.median(ratios)), "max": max(ratios)},
        "max_difference": worst,
        "work": None if floor is None else {"ours": work, "floor": floor},
        "seconds": float(np.median(own)),
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
    memory_setting = keep_memory()
    shown, peer.tqdm = peer.tqdm, lambda rows, **options: rows
    try:
        count = 20 if quick else 200
        worst = equality(range(count))  # before the clock runs: both sides are warm
        pairs = 1 if quick else 5
        cases = [measure(case, pairs) for case in CASES if case.quick or not quick]
        cases.append(edges_case(1 if quick else 5, sample=50 if quick else 200))
    finally:
        peer.tqdm = shown
    return {
        "name": "patching",
        "threads": torch.get_num_threads(),
        "cases": cases,
        "equality": {"configs": count, **worst},
        "allocator": "keeps freed memory on both sides" if memory_setting else "as the system sets it",
    }
