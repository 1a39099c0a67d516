"""Endpoint selection for the commands: build, train, evaluate, and the peers that a checkpoint is held against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from headlab.analyses.options.esp import BuildOptions, TrainOptions
from headlab.analyses.sweep.trainings import Measured, Training
from headlab.analyses.systems import Progress, named, seeds_of, train_json
from headlab.models.checkpoints import Checkpoint, save
from headlab.models.constructed import Constructed
from headlab.models.esp.constructed import construct
from headlab.models.esp.evaluation import evaluate as evaluate_model
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.recipes import automatic, plan
from headlab.models.esp.runs import train_and_save
from headlab.models.esp.task import EspTask
from headlab.models.esp.training import train as run_training
from headlab.models.hooked import HookedTransformer, initialise
from headlab.models.hooked import build as build_model

INIT_SCALE = 0.2  # times 1 / sqrt(d_model): the initialiser of the recipes


def task(checkpoint: Checkpoint) -> EspTask:
    """The task, graph and labels included, that the checkpoint was made for."""
    return EspTask.from_options(checkpoint.task_options)


def build(options: BuildOptions) -> Checkpoint:
    """Construct, evaluate and save. Raises RequestError or UnknownName where graph and variant do not go together."""
    esp = EspTask(read_graph(options.graph, memory=options.memory), options.induction)
    construction = construct(
        esp, options.variant, tied=options.tied, sink=options.sink, dtype=options.dtype, device=options.common.device
    )
    checkpoint = checkpoint_of(construction, esp)
    return replace(checkpoint, directory=save(options.out, checkpoint))


def train(options: TrainOptions, progress: Progress | None = None) -> dict[str, Any]:
    """The JSON of `headlab train`: one checkpoint a seed, the best the one with the fewest errors."""
    runs = train_and_save(
        EspTask(read_graph(options.graph, memory=options.memory), options.induction),
        seeds_of(options),
        options.out,
        heads=options.heads,
        method=options.method,
        steps=options.steps,
        resume=options.resume,
        progress=named(progress, "training"),
        device=options.common.device,
    )
    return train_json(options, runs, method=runs["method"], graph=runs["graph"])


def training(options: TrainOptions, device: str) -> Training:
    """For a sweep: the error is the share of samples answered wrongly, success none of them."""
    esp = EspTask(read_graph(options.graph, memory=options.memory), options.induction)
    method = options.method
    if method == "auto":
        method = automatic(options.heads, esp.graph.cycle() is not None)
    chosen = plan(esp, heads=options.heads, method=method, steps=options.steps)

    def run(seeds: Sequence[int], steps: int | None, report: Callable[[int, int], None] | None) -> list[Measured]:
        trained = run_training(
            esp,
            heads=options.heads,
            method=method,
            seeds=seeds,
            steps=steps or options.steps,
            device=device,
            progress=report,
        )
        return [
            {
                "error": one.errors / (2 * esp.m),
                "success": one.errors == 0,
                "steps_done": trained.run.step,
                "errors": one.errors,
                "accuracy": one.accuracy,
                "best_step": one.step,
                "solved": one.solved,
            }
            for one in trained.models
        ]

    recipe, width = chosen.recipe, chosen.architecture.config["d_model"]
    per_step = 2 * esp.m * (3 * options.heads + esp.n) * width + (2 * esp.n + 3) * 4 * width * width
    return Training(recipe.steps, float(recipe.steps * per_step), run, stops=recipe.stop)


def checkpoint_of(construction: Constructed, esp: EspTask) -> Checkpoint:
    """A constructed model as a checkpoint, evaluated."""
    return Checkpoint(
        model=construction.model,
        architecture=construction.architecture,
        task=esp.name,
        task_options=esp.options(),
        variant=construction.variant,
        metrics=evaluate_model(construction.model, esp).to_json() | {"options": dict(construction.options)},
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
