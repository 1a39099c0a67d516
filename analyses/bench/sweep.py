"""`headlab bench sweep`: endpoint selection to 100 %, as a sweep trains it, beside single HookedTransformers.

Two heads on the complete digraph of 10 vertices. Ours is one unit of a sweep: so many seeds together, from building to
evaluated weights, evaluation and recording included. The peer trains one HookedTransformer after the other in plain
torch, from the same weights by the same recipe, and stops as the recipe does; the second case stops it at its first
step without an error, which the recipe goes beyond. Both must end without an error, and reach that at the same step.
"""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from headlab.analyses.bench.patching import keep_memory
from headlab.analyses.sweep.configuration import Configuration, Unit
from headlab.analyses.sweep.work import work
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.many import RIGHT
from headlab.models.esp.recipes import plan
from headlab.models.esp.task import EspTask, margins
from headlab.models.hooked import build, initialise
from headlab.models.recipe import learning_rate

GRAPH, TOGETHER = "complete:10", 32


@dataclass(frozen=True)
class Alone:
    """A peer's training of one seed: CPU seconds to its first step without an error, and to where the recipe stops."""

    solved: int | None
    to_solved: float
    to_end: float


def alone(graph: str, seed: int) -> Alone:
    """Train one HookedTransformer in plain torch, full batch, errors counted at every step."""
    task = EspTask(read_graph(graph))
    chosen_plan, examples = plan(task, heads=2, method="cross-entropy"), task.examples()
    recipe, inputs, targets = chosen_plan.recipe, examples.inputs, examples.targets[:, 0]
    assert recipe.init_scale is not None
    assert recipe.clip is not None
    start = time.process_time()
    model = build(chosen_plan.architecture)
    initialise(model, scale=recipe.init_scale, seed=seed)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.Adam(trained, recipe.lr, betas=recipe.betas)
    solved, to_solved = None, 0.0
    for step in range(recipe.steps + 1):
        logits = model(inputs)[:, -1]
        if solved is None and not bool((margins(logits.detach(), targets) <= RIGHT).any()):
            solved, to_solved = step, time.process_time() - start
        if step == recipe.steps or (solved is not None and step >= solved + recipe.settle):
            break
        optimiser.zero_grad()
        functional.cross_entropy(logits, targets).backward()
        torch.nn.utils.clip_grad_norm_(trained, recipe.clip)
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(recipe, step)
        optimiser.step()
    end = time.process_time() - start
    return Alone(solved, to_solved or end, end)


def run(quick: bool = False, *, graph: str = GRAPH, together: int = TOGETHER) -> dict[str, Any]:
    """The JSON of `headlab bench sweep`; `quick` trains 2 seeds alone instead of 5. One pair, and it says so."""
    memory_setting = keep_memory()
    unit = Unit(Configuration.of("esp", {"graph": graph, "heads": 2}), tuple(range(together)))
    work(Unit(unit.configuration, (0, 1)), "cpu", None)  # both sides warm before the clock runs
    alone(graph, 0)
    outcome = work(unit, "cpu", None)
    singles = [alone(graph, seed) for seed in range(2 if quick else 5)]
    if (
        outcome.failed
        or any(row["errors"] for row in outcome.measured.values())
        or any(s.solved is None for s in singles)
    ):
        raise RuntimeError("a training did not end without an error: nothing to compare")
    ours = outcome.cpu / together
    apart = max(abs(outcome.measured[seed]["solved"] - (one.solved or 0)) for seed, one in enumerate(singles))
    shared = {
        "max_difference": float(apart),
        "work": None,
        "peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "seconds": ours,
    }
    steps = next(iter(outcome.measured.values()))["steps_done"]
    case = f"{graph}, two heads, to 100 %, {together} seeds together, {steps} steps, {ours:.3f} s of CPU a run, 1 pair"
    peers = (
        (f"a loop of HookedTransformers, the same recipe, {len(singles)} seeds", [one.to_end for one in singles]),
        (f"the same, stopped at the first step without an error, {len(singles)} seeds", [o.to_solved for o in singles]),
    )
    return {
        "name": "sweep",
        "threads": torch.get_num_threads(),
        "cases": [{"case": case, "peer": peer, "ratio": _ratio(times, ours), **shared} for peer, times in peers],
        "max_difference_is": "steps between first having no error together and alone",
        "allocator": "keeps freed memory on both sides" if memory_setting else "as the system sets it",
    }


def _ratio(times: list[float], ours: float) -> dict[str, float]:
    return {"min": min(times) / ours, "median": float(np.median(times)) / ours, "max": max(times) / ours}
