"""`headlab bench generation`: emitting a path token by token, beside a full forward pass for every token.

The peer runs HookedTransformer on the whole sequence so far and takes the last argmax. Both start from the same prompt
and write whole paths. The expert keeps keys and values too. `max_difference` counts the tokens in which they differ.
Process time, one thread, same run.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from headlab.analyses.bench import expert_generation as expert
from headlab.analyses.bench.expert import against_expert
from headlab.interp.model import untouched
from headlab.models.hooked import HookedTransformer
from headlab.models.tree.constructed import construct
from headlab.models.tree.generation import generate
from headlab.models.tree.source import TreeSource
from headlab.models.tree.task import TreeTask
from headlab.models.tree.tokens import BACK, FWD

PAIRS, LONG = 5, 20.0  # five pairs where a pair takes under 20 s, else one


def run(quick: bool = False) -> dict[str, Any]:
    """The JSON of `headlab bench generation`. quick: one pair, at depth 50 and 200 with one tree each."""
    cases = [(50, 1), (200, 1)] if quick else [(10, 16), (50, 4), (200, 1), (200, 4)]
    return {
        "name": "generation",
        "threads": torch.get_num_threads(),
        "cases": [measure(depth, trees, pairs=1 if quick else PAIRS) for depth, trees in cases],
    }


def measure(depth: int, trees: int, *, pairs: int = PAIRS) -> dict[str, Any]:
    """One case: `trees` random trees of that depth, the two-head construction with labels in 64 dimensions."""
    task = TreeTask(TreeSource(depths=(depth,), labels=512, split="none"))
    model = construct(task, "forward", label_width=66).model
    prompts = task.examples(count=trees).inputs[:, : task.layout.goal + 1]
    steps = task.layout.predictions

    def theirs() -> Tensor:
        return full_forwards(model, task, prompts, steps)

    def ours() -> Tensor:
        return generate(model, task, prompts, most=steps).labels

    peer_time, peer = _timed(theirs)
    times = [(peer_time, *_timed(ours))]
    while len(times) < pairs and peer_time < LONG:
        times.append((_timed(theirs)[0], *_timed(ours)))
    ratios = [other / own for other, own, _ in times]
    different = max(int((labels != peer).sum()) for _, _, labels in times)
    return {
        "case": f"depth {depth}, {trees} tree(s), {steps} tokens after {prompts.shape[1]}; {len(times)} pair(s), "
        f"{np.median([own for _, own, _ in times]):.2f} s ours",
        "peer": "a full HookedTransformer forward per token",
        "ratio": {"min": min(ratios), "median": float(np.median(ratios)), "max": max(ratios)},
        "expert": against_expert(
            expert.generate,
            lambda: expert.generate(model, task, prompts, steps),
            ours,
            lambda one, other: float((one != other).sum()),
            pairs=pairs,
        ),
        "max_difference": float(different),
        "work": work(ours, model, prompts, steps),
        "seconds": float(np.median([own for _, own, _ in times])),
        "peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def full_forwards(
    model: HookedTransformer, task: TreeTask, prompts: Int[Tensor, "example position 3"], steps: int
) -> Int[Tensor, "example step"]:
    """The peer: greedy labels, each from a forward pass over everything so far."""
    sequence, written = prompts, []
    forward = torch.zeros(len(prompts), dtype=torch.bool)
    with untouched(model):
        for _ in range(steps):
            label = model(sequence)[:, -1].argmax(-1)
            written.append(label)
            kind = torch.where(forward, FWD, BACK)
            before = torch.where(forward, task.tokens.nul, sequence[:, -1, 1])
            token = torch.stack([kind, label, before], dim=-1)
            forward = forward | (label == task.tokens.turn)
            sequence = torch.cat([sequence, token[:, None]], dim=1)
    return torch.stack(written, dim=1)


def work(make: Callable[[], Tensor], model: HookedTransformer, prompts: Tensor, steps: int) -> dict[str, float]:
    """Multiply-adds of ours as torch counts them, and the floor: every position's keys and values once, every query on
    the keys that it sees, and an answer where one is read.
    """
    with FlopCounterMode(display=False) as counter:
        make()
    cfg, (trees, size) = model.cfg, prompts.shape[:2]
    wide = cfg.n_heads * cfg.d_head
    keys = (size + steps - 1) * 2 * cfg.d_model * wide
    asked = steps * 2 * cfg.d_model * wide  # queries in, outputs out
    seen = sum(2 * wide * (size + step) for step in range(steps))
    read = steps * cfg.d_model * cfg.d_vocab_out
    return {"ours": counter.get_total_flops() / 2, "floor": float(trees * (keys + asked + seen + read))}


def _timed(make: Callable[[], Tensor]) -> tuple[float, Tensor]:
    started = time.process_time()
    outputs = make()
    return time.process_time() - started, outputs
