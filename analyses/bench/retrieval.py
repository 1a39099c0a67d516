"""`headlab bench retrieval`: seeds trained together, the CLS query folded into the keys, beside a loop of
HookedTransformers, in one run.

Both sides start from the same weights, draw the same batches and do the same updates; the peer's loop is plain torch on
the whole model. Ratio: the peer's CPU time by ours, so of model-steps per second; the losses of every step and seed are
compared, in float32, where rounding grows with the steps.
"""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from headlab.analyses.bench.patching import keep_memory
from headlab.analyses.bench.watched import watch
from headlab.models.hooked import Architecture
from headlab.models.recipe import Recipe, learning_rate
from headlab.models.retrieval.architecture import architecture, start
from headlab.models.retrieval.family import sum_of_maxima
from headlab.models.retrieval.learner import RetrievalData, RetrievalLearner, draw_data
from headlab.models.retrieval.recipes import recipe
from headlab.models.training import fit

PAIRS = 5


@dataclass(frozen=True)
class RetrievalCase:
    """Four heads for four coordinates: so many seeds for so many steps on sequences of one length."""

    length: int
    encoder: str
    seeds: int
    steps: int
    quick_steps: int

    def made(self) -> tuple[Architecture, RetrievalData]:
        """The architecture, and data of the usual size but for the validation, which no step sees."""
        family = sum_of_maxima(4, self.length)
        return architecture(family, 4, encoder=self.encoder), draw_data(family, train=2000, validation=2)


CASES = (
    RetrievalCase(8, "linear", 8, 60, 15),
    RetrievalCase(128, "linear", 8, 20, 4),
    RetrievalCase(8, "mlp", 8, 60, 15),
    RetrievalCase(128, "mlp", 8, 20, 4),
)


def together(
    design: Architecture, data: RetrievalData, plan: Recipe, seeds: int
) -> tuple[Float[Tensor, "step seed"], float]:
    """The losses of every step and seed, trained together, and the CPU seconds of the training itself."""
    learner = RetrievalLearner(design, data, seeds=range(seeds), batch=plan.batch or len(data.train))
    seen = watch(learner)
    begun = time.process_time()
    fit(learner, plan)
    return torch.stack(seen), time.process_time() - begun


def one_by_one(
    design: Architecture, data: RetrievalData, plan: Recipe, seeds: int
) -> tuple[Float[Tensor, "step seed"], float]:
    """The same by a loop over whole HookedTransformers in plain torch."""
    targets = (data.targets - data.mean) / data.sd
    losses, seconds = torch.empty(plan.steps + 1, seeds), 0.0
    for seed in range(seeds):
        model = start(design, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        groups = [
            {"params": [parameter], "scale": _scale(plan, name)}
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        ]
        begun = time.process_time()
        optimiser = torch.optim.Adam(groups, plan.lr, betas=plan.betas)
        for step in range(plan.steps + 1):
            rows = torch.randint(len(targets), (plan.batch or len(targets),), generator=generator)
            loss = (model(data.train[rows])[:, -1, 0] - targets[rows]).square().mean()
            losses[step, seed] = loss.detach()
            if step == plan.steps:
                break
            optimiser.zero_grad()
            loss.backward()
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(plan, step) * group["scale"]
            optimiser.step()
        seconds += time.process_time() - begun
    return losses, seconds


def _scale(plan: Recipe, name: str) -> float:
    return next((factor for pattern, factor in plan.lr_scales.items() if fnmatchcase(name, pattern)), 1.0)


def difference(case: RetrievalCase, steps: int) -> float:
    """The largest difference of a loss at any step, relative to the largest loss; no clock runs."""
    design, data = case.made()
    plan = recipe(steps=steps)
    ours, theirs = (side(design, data, plan, case.seeds)[0] for side in (together, one_by_one))
    return float((ours - theirs).abs().max() / theirs.abs().max())


def work(case: RetrievalCase, design: Architecture, data: RetrievalData, plan: Recipe) -> dict[str, float]:
    """Multiply-adds of the whole training: ours as torch counts them in one step; the floor a forward pass that encodes
    each token once, scores it, pools the features of each head and reads the sums out, and backward the same once for
    what is multiplied and once for the weights, but for tokens, which need no gradient.
    """
    batch = plan.batch or len(data.train)
    with FlopCounterMode(display=False) as counter:
        learner = RetrievalLearner(design, data, seeds=range(case.seeds), batch=batch)
        learner.losses(0).sum().backward()
    config, size = design.config, data.train.shape[2]
    inner = size if case.encoder == "linear" else int(design.parts["embed"]["hidden"])
    encode = 0 if case.encoder == "linear" else size * inner
    heads, width, hidden = config["n_heads"], config["d_model"], int(design.parts["unembed"]["hidden"][0])
    mix = (2 if case.encoder == "linear" else 3) * 2 * heads * inner
    token, example = 2 * encode + mix, 3 * (heads * inner * width + width * hidden + hidden)
    return {
        "ours": counter.get_total_flops() / 2 * plan.steps,
        "floor": float(batch * (case.length * token + example) * case.seeds * plan.steps),
    }


def measure(case: RetrievalCase, *, quick: bool) -> dict[str, Any]:
    """One case as the design's JSON; pairs alternate which side goes first."""
    design, data = case.made()
    plan = recipe(steps=case.quick_steps if quick else case.steps)
    for side in (together, one_by_one):  # both sides warm before the clock runs
        side(design, data, recipe(steps=2), 1)
    ratios: list[float] = []
    own: list[float] = []
    worst = fastest = 0.0
    while len(ratios) < (1 if quick else PAIRS):
        sides = (together, one_by_one) if len(ratios) % 2 == 0 else (one_by_one, together)
        results = {side.__name__: side(design, data, plan, case.seeds) for side in sides}
        (ours, our_seconds), (theirs, their_seconds) = results["together"], results["one_by_one"]
        ratios.append(their_seconds / our_seconds)
        own.append(our_seconds)
        worst = max(worst, float((ours - theirs).abs().max() / theirs.abs().max()))
        fastest = max(fastest, case.seeds * (plan.steps + 1) / our_seconds)
        if our_seconds + their_seconds > 20:
            break
    encoder = "linear encoder" if case.encoder == "linear" else "encoder with a hidden layer"
    pairs = f"{len(ratios)} pair{'s' if len(ratios) > 1 else ''}"
    return {
        "case": f"T={case.length}, {encoder}, four heads, {case.seeds} seeds, batch {plan.batch}, {plan.steps} steps, "
        f"{pairs}",
        "peer": "a loop of HookedTransformers",
        "ratio": {"min": min(ratios), "median": sorted(ratios)[len(ratios) // 2], "max": max(ratios)},
        "max_difference": worst,
        "work": work(case, design, data, plan),
        "seconds": sorted(own)[len(own) // 2],
        "peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "model_steps_per_second": fastest,
    }


def run(quick: bool = False) -> dict[str, Any]:
    """The JSON of `headlab bench retrieval`; `quick` does one short pair of each case."""
    memory_setting = keep_memory()
    return {
        "name": "retrieval",
        "threads": torch.get_num_threads(),
        "cases": [measure(case, quick=quick) for case in CASES],
        "allocator": "keeps freed memory on both sides" if memory_setting else "as the system sets it",
    }
