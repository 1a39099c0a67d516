"""Endpoint selection for the commands: build, train, evaluate, and the peers that a checkpoint is held against."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from headlab.analyses.options.esp import BuildOptions, TrainOptions
from headlab.interp.errors import RequestError
from headlab.models.bundle import require_writable
from headlab.models.checkpoints import RUNS, Checkpoint, load_runs, load_training, save, save_runs, save_training
from headlab.models.constructed import Constructed
from headlab.models.esp.constructed import construct
from headlab.models.esp.evaluation import evaluate as evaluate_model
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.recipes import automatic
from headlab.models.esp.task import EspTask
from headlab.models.esp.training import train as run_training
from headlab.models.hooked import HookedTransformer, initialise
from headlab.models.hooked import build as build_model

INIT_SCALE = 0.2  # times 1 / sqrt(d_model): the initialiser of the recipes


def task(checkpoint: Checkpoint) -> EspTask:
    """The task, graph and labels included, that the checkpoint was made for."""
    return EspTask.from_options(checkpoint.task_options)


def build(options: BuildOptions) -> Checkpoint:
    """Construct, evaluate and save. Raises ValueError or KeyError where graph and variant do not go together."""
    esp = EspTask(read_graph(options.graph, memory=options.memory), options.induction)
    made = construct(
        esp, options.variant, tied=options.tied, sink=options.sink, dtype=options.dtype, device=options.common.device
    )
    checkpoint = checkpoint_of(made, esp)
    return replace(checkpoint, directory=save(options.out, checkpoint))


def train(options: TrainOptions, progress: Callable[[str, int, int], None] | None = None) -> dict[str, Any]:
    """The JSON of `headlab train`: one checkpoint a seed, the best the one with the fewest errors.

    An interrupted training leaves its state in `out`; `resume` goes on from there, to the result of an unbroken one,
    or returns the finished runs where they are those asked for. Raises ValueError where `out` holds another training.
    """
    esp = EspTask(read_graph(options.graph, memory=options.memory), options.induction)
    if options.seeds < 1:
        raise RequestError(f"training needs at least one seed, not {options.seeds}")
    method = options.method
    if method == "auto":
        method = automatic(options.heads, esp.graph.cycle() is not None)
    seeds = list(range(options.common.seed, options.common.seed + options.seeds))
    asked = {
        "task": esp.name,
        "graph": esp.graph.to_json(),
        "induction": esp.induction,
        "heads": options.heads,
        "method": method,
        "seeds": seeds,
        "steps": options.steps,
    }
    state = None
    unfinished = options.out / "unfinished"
    if options.resume:
        if (options.out / RUNS).is_file():
            return _finished(options.out, asked)
        if unfinished.is_dir():
            state = load_training(unfinished)
    else:
        require_writable(unfinished)
    found = run_training(
        esp,
        heads=options.heads,
        method=method,
        seeds=seeds,
        steps=options.steps,
        device=options.common.device,
        state=state,
        progress=None if progress is None else lambda done, total: progress("training", done, total),
        on_record=lambda step, now: save_training(unfinished, now()) and None,
    )
    runs = []
    for index, one in enumerate(found.models):
        directory = save(options.out / f"seed-{one.seed}", found.checkpoint(index))
        runs.append(
            {
                "seed": one.seed,
                "dir": str(directory),
                "steps": one.step,
                "solved": one.solved,
                "errors": one.errors,
                "accuracy": one.accuracy,
            }
        )
    best = next(run["dir"] for run in runs if run["seed"] == found.best.seed)
    save_runs(options.out, runs, best, asked=asked)
    shutil.rmtree(unfinished, ignore_errors=True)
    return _answer(options.out, asked, runs, best)


def _answer(out: Path, asked: dict[str, Any], runs: list[dict[str, Any]], best: str) -> dict[str, Any]:
    return {
        "dir": str(out),
        "task": "esp",
        "heads": asked["heads"],
        "method": asked["method"],
        "graph": asked["graph"]["name"],
        "runs": runs,
        "best": best,
    }


def _finished(out: Path, asked: dict[str, Any]) -> dict[str, Any]:
    held = load_runs(out)
    if held.get("asked") != asked:
        raise RequestError(f"'{out}' holds another training: choose another --out, or ask for the same runs")
    return _answer(out, asked, held["runs"], held["best"])


def checkpoint_of(made: Constructed, esp: EspTask) -> Checkpoint:
    """A constructed model as a checkpoint, evaluated."""
    return Checkpoint(
        model=made.model,
        architecture=made.architecture,
        task=esp.name,
        task_options=esp.options(),
        variant=made.variant,
        metrics=evaluate_model(made.model, esp).to_json() | {"options": dict(made.options)},
    )


def evaluate(checkpoint: Checkpoint, *, seed: int = 0, count: int | None = None) -> dict[str, Any]:
    """The JSON of `headlab evaluate`: all 2m samples; `seed` and `count` have no part, since they can be listed."""
    return {"task": "esp", **evaluate_model(checkpoint.model, task(checkpoint)).to_json()}


def constructed(checkpoint: Checkpoint) -> Constructed | None:
    """The construction that the checkpoint holds, or, for learned weights, the one they are compared with.

    One head: the construction that gives up a minimum feedback arc set; two: the two-head one; else None.
    """
    esp = task(checkpoint)
    options = dict(checkpoint.metrics.get("options", {}))
    if checkpoint.variant is not None:
        return construct(esp, checkpoint.variant, **options)
    variant = {1: "one-head", 2: "two-head"}.get(checkpoint.model.cfg.n_heads)
    if variant is None or (variant == "one-head" and esp.induction):
        return None
    return construct(esp, variant, tied="unembed" in checkpoint.architecture.parts)


def untrained(checkpoint: Checkpoint, seed: int) -> HookedTransformer:
    """The checkpoint's architecture as the recipes' initialiser leaves it."""
    model = build_model(checkpoint.architecture, device=str(checkpoint.model.cfg.device))
    scale = (checkpoint.recipe or {}).get("init_scale") or INIT_SCALE / model.cfg.d_model**0.5
    initialise(model, scale=scale, seed=seed)
    return model
