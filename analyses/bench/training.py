"""`headlab bench training`: many seeds trained together beside a loop of HookedTransformers, in one run.

Both sides start from the same weights and do the same updates: full batch, Adam, gradients clipped per model. The
peer's loop is plain torch on the whole model. Ratio: the peer's CPU time by ours, so of model-steps per second; every
step's loss of every seed is compared: in float32, where rounding grows with the steps, and in float64.
"""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from headlab.analyses.bench.patching import keep_memory
from headlab.analyses.bench.watched import watch
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.many import ManySeeds
from headlab.models.esp.recipes import EspPlan, plan
from headlab.models.esp.task import EspTask
from headlab.models.hooked import build, initialise
from headlab.models.recipe import learning_rate
from headlab.models.training import fit

PAIRS = 5


@dataclass(frozen=True)
class TrainingCase:
    """So many seeds for so many steps on one graph, two heads, by the usual recipe."""

    graph: str
    seeds: int
    steps: int
    quick_steps: int

    def plan(self, steps: int) -> EspPlan:
        """Architecture and recipe, without the measuring that a study does besides."""
        chosen_plan = plan(EspTask(read_graph(self.graph)), heads=2, method="cross-entropy", steps=steps)
        return replace(chosen_plan, recipe=replace(chosen_plan.recipe, check=0, record=1, stop=False))


CASES = (TrainingCase("complete:10", 32, 40, 10), TrainingCase("rich", 8, 10, 3))


def together(
    case: TrainingCase, chosen_plan: EspPlan, dtype: torch.dtype = torch.float32
) -> tuple[Float[Tensor, "step seed"], float]:
    """The losses of every step and seed by the table of rows, and the CPU seconds of the training itself."""
    examples = EspTask(read_graph(case.graph)).examples()
    learner = ManySeeds(
        chosen_plan.architecture,
        chosen_plan.recipe,
        examples.inputs,
        examples.targets[:, 0],
        seeds=range(case.seeds),
        dtype=dtype,
    )
    seen = watch(learner)
    start = time.process_time()
    fit(learner, chosen_plan.recipe)
    seconds = time.process_time() - start
    return torch.stack(seen), seconds


def one_by_one(
    case: TrainingCase, chosen_plan: EspPlan, dtype: torch.dtype = torch.float32
) -> tuple[Float[Tensor, "step seed"], float]:
    """The same by a loop over whole HookedTransformers in plain torch."""
    recipe = chosen_plan.recipe
    examples = EspTask(read_graph(case.graph)).examples()
    inputs, targets = examples.inputs, examples.targets[:, 0]
    losses = torch.empty(recipe.steps + 1, case.seeds, dtype=dtype)
    seconds = 0.0
    for seed in range(case.seeds):
        model = build(chosen_plan.architecture, dtype=dtype)
        assert recipe.init_scale is not None
        assert recipe.clip is not None
        initialise(model, scale=recipe.init_scale, seed=seed)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        start = time.process_time()
        optimiser = torch.optim.Adam(trained, recipe.lr, betas=recipe.betas)
        for step in range(recipe.steps + 1):
            loss = functional.cross_entropy(model(inputs)[:, -1], targets)
            losses[step, seed] = loss.detach()
            if step == recipe.steps:
                break
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, recipe.clip)
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(recipe, step)
            optimiser.step()
        seconds += time.process_time() - start
    return losses, seconds


def difference(case: TrainingCase, chosen_plan: EspPlan, dtype: torch.dtype = torch.float64) -> float:
    """The largest difference of a loss at any step, relative to the largest loss; no clock runs."""
    ours, theirs = together(case, chosen_plan, dtype)[0], one_by_one(case, chosen_plan, dtype)[0]
    return float((ours - theirs).abs().max() / theirs.abs().max())


def work(case: TrainingCase, chosen_plan: EspPlan) -> dict[str, float]:
    """Multiply-adds of the whole training: ours as torch counts them in one step; the floor three times a forward pass
    that makes keys and values of the different (position, token) pairs once, and of each sample reads its own.
    """
    task = EspTask(read_graph(case.graph))
    examples, updates = task.examples(), chosen_plan.recipe.steps
    with FlopCounterMode(display=False) as counter:
        learner = ManySeeds(
            chosen_plan.architecture,
            chosen_plan.recipe,
            examples.inputs,
            examples.targets[:, 0],
            seeds=range(case.seeds),
        )
        learner.losses(0).sum().backward()
    config, positions = chosen_plan.architecture.config, examples.inputs.shape[1]
    rows, samples = learner.visible.shape[1], learner.visible.shape[0]
    width, heads, wide = config["d_model"], config["n_heads"], config["n_heads"] * config["d_head"]
    scores = 2 * width * wide + rows * width * heads
    forward = scores + rows * width * wide + samples * (wide * (positions + width) + width * config["d_vocab"])
    return {
        "ours": counter.get_total_flops() / 2 * updates,
        "floor": float(3 * forward * case.seeds * updates),
    }


def measure(case: TrainingCase, *, quick: bool) -> dict[str, Any]:
    """One case as the design's JSON; pairs alternate which side goes first."""
    chosen_plan = case.plan(case.quick_steps if quick else case.steps)
    together(case, case.plan(2))  # both sides warm before the clock runs
    one_by_one(TrainingCase(case.graph, 1, 2, 2), case.plan(2))
    ratios: list[float] = []
    own: list[float] = []
    worst = spent = fastest = 0.0
    while len(ratios) < (1 if quick else PAIRS):
        sides = (together, one_by_one) if len(ratios) % 2 == 0 else (one_by_one, together)
        results = {side.__name__: side(case, chosen_plan) for side in sides}
        (ours, our_seconds), (theirs, their_seconds) = results["together"], results["one_by_one"]
        ratios.append(their_seconds / our_seconds)
        own.append(our_seconds)
        worst = max(worst, float((ours - theirs).abs().max() / theirs.abs().max()))
        fastest = max(fastest, case.seeds * (chosen_plan.recipe.steps + 1) / our_seconds)
        spent = our_seconds + their_seconds
        if spent > 20:
            break
    count = f"{len(ratios)} pair{'s' if len(ratios) > 1 else ''}"
    return {
        "case": f"{case.graph}, {case.seeds} seeds, two heads, {chosen_plan.recipe.steps} steps, {count}",
        "peer": "a loop of HookedTransformers",
        "ratio": {"min": min(ratios), "median": sorted(ratios)[len(ratios) // 2], "max": max(ratios)},
        "max_difference": worst,
        "max_difference_float64": difference(replace(case, seeds=2), chosen_plan),
        "work": work(case, chosen_plan),
        "seconds": sorted(own)[len(own) // 2],
        "peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "model_steps_per_second": fastest,
    }


def run(quick: bool = False) -> dict[str, Any]:
    """The JSON of `headlab bench training`; `quick` does one short pair of each case."""
    memory_setting = keep_memory()
    return {
        "name": "training",
        "threads": torch.get_num_threads(),
        "cases": [measure(case, quick=quick) for case in CASES],
        "allocator": "keeps freed memory on both sides" if memory_setting else "as the system sets it",
    }
