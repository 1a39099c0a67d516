"""Retrieval for the commands: build, train, evaluate, and the peers that a checkpoint is held against."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headlab.analyses.options.retrieval import BuildOptions, TrainOptions
from headlab.analyses.sweep.trainings import LEARNED, Measured, Training
from headlab.analyses.systems import Progress, named, seeds_of, train_json
from headlab.interp.errors import RequestError, UnknownName
from headlab.models.checkpoints import Checkpoint, save
from headlab.models.constructed import Constructed
from headlab.models.hooked import Architecture, HookedTransformer
from headlab.models.recipe import Recipe
from headlab.models.retrieval.architecture import architecture, start
from headlab.models.retrieval.circuits import VARIANTS
from headlab.models.retrieval.constructed import construct, head_per_coordinate
from headlab.models.retrieval.evaluation import evaluate as evaluate_model
from headlab.models.retrieval.family import Family, sum_of_maxima
from headlab.models.retrieval.learner import draw_data
from headlab.models.retrieval.recipes import recipe
from headlab.models.retrieval.recipes import train as run_training
from headlab.models.retrieval.runs import train_and_save
from headlab.models.retrieval.task import RetrievalTask


def task(checkpoint: Checkpoint) -> RetrievalTask:
    """The task, its target included, that the checkpoint was made for."""
    return RetrievalTask.from_options(checkpoint.task_options)


def read_target(path: str | Path) -> Family:
    """The target that a JSON file describes (see Family.options).

    Raises MissingFile, and ValueError naming the file where it is damaged or describes no target.
    """
    try:
        description = json.loads(Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"'{path}' is not a JSON file: {error}") from None
    try:
        return Family.from_options(description)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = error.args[0] if error.args else "it is not an object"
        raise RequestError(f"'{path}' does not describe a target: {reason}") from None


def build(options: BuildOptions) -> Checkpoint:
    """Construct, evaluate and save. Raises UnknownName for another variant, RequestError for an impossible target."""
    if options.variant not in VARIANTS:
        raise UnknownName(f"no variant '{options.variant}' of retrieval: there are {', '.join(VARIANTS)}")
    own = RetrievalTask(_family(options, options.common.seed))
    construction = construct(
        own,
        options.variant,
        beta=options.beta,
        heads=options.heads,
        dtype=options.dtype,
        device=options.common.device,
    )
    checkpoint = checkpoint_of(construction, own, options.common.seed)
    return replace(checkpoint, directory=save(options.out, checkpoint))


def _family(options: BuildOptions | TrainOptions, seed: int) -> Family:
    if options.target is not None:
        return read_target(options.target)
    return sum_of_maxima(options.coordinates, options.length, size=options.size, seed=seed, vectors=options.vectors)


def checkpoint_of(construction: Constructed, own: RetrievalTask, seed: int) -> Checkpoint:
    """A constructed model as a checkpoint, evaluated."""
    evaluation = evaluate_model(construction.model, own, seed=seed, bound=construction.notes["bound"])
    return Checkpoint(
        model=construction.model,
        architecture=construction.architecture,
        task=own.name,
        task_options=own.options(),
        variant=construction.variant,
        seed=seed,
        metrics=evaluation.to_json() | {"options": dict(construction.options), "notes": dict(construction.notes)},
    )


def _design(options: TrainOptions, family: Family) -> Architecture:
    return architecture(
        family,
        family.coordinates if options.heads is None else options.heads,
        encoder=options.encoder,
        width=options.width,
        total_width=options.total_width,
        layers=options.layers,
    )


def _recipe(options: TrainOptions) -> Recipe:
    steps, lr = (1000, 1e-2) if options.optimiser == "gauss-newton" else (None, None)
    return recipe(
        options.recipe,
        steps=steps if options.steps is None else options.steps,
        lr=lr if options.lr is None else options.lr,
    )


def train(options: TrainOptions, progress: Progress | None = None) -> dict[str, Any]:
    """The JSON of `headlab train`. The target is drawn with seed 0, so that runs of any --seed share it."""
    seeds = seeds_of(options)
    own = RetrievalTask(_family(options, 0))
    runs = train_and_save(
        own,
        _design(options, own.family),
        _recipe(options),
        seeds,
        options.out,
        examples=options.examples,
        grow=options.grow,
        optimiser=options.optimiser,
        resume=options.resume,
        progress=named(progress, "steps"),
        device=options.common.device,
    )
    return train_json(options, runs, stuck=sum(run["stuck"] for run in runs["runs"]))


def training(options: TrainOptions, device: str) -> Training:
    """For a sweep: the error is the NMSE on sequences to validate on, success below 1e-3."""
    if options.optimiser != "adam":
        raise RequestError(f"a sweep trains retrieval with adam only: use headlab train for {options.optimiser}")
    family = _family(options, 0)
    design = _design(options, family)
    full = recipe(options.recipe, steps=options.steps, lr=options.lr)

    def run(seeds: Sequence[int], steps: int | None, report: Callable[[int, int], None] | None) -> list[Measured]:
        plan = full if steps is None else recipe(options.recipe, steps=steps, lr=options.lr)
        data = draw_data(family, train=options.examples)
        trained = run_training(family, design, plan, seeds, data=data, device=device, progress=report)
        best_steps = [step for each in trained.runs for step in each.best_step]
        return [
            {"error": error, "success": error < LEARNED, "steps_done": plan.steps, "nmse": error, "best_step": step}
            for error, step in zip(trained.nmse, best_steps, strict=True)
        ]

    heads = design.config["n_heads"]
    inner = 32 if options.encoder == "mlp" else family.size
    per_token = inner * (2 * heads + family.size) * (1 if options.layers == 1 else family.length * options.layers)
    work = float(full.steps * 128 * (family.length * per_token + 32 * 8 * heads))
    return Training(full.steps, work, run, records=full.record)


def evaluate(checkpoint: Checkpoint, *, seed: int = 0, count: int | None = None) -> dict[str, Any]:
    """The JSON of `headlab evaluate`: errors in the target's own units, and the theorem's bound where it speaks."""
    bound = dict(checkpoint.metrics.get("notes", {})).get("bound")
    evaluation = evaluate_model(checkpoint.model, task(checkpoint), seed=seed, count=count, bound=bound)
    return {"task": "retrieval", **evaluation.to_json()}


def constructed(checkpoint: Checkpoint) -> Constructed | None:
    """The construction that the checkpoint holds; for learned weights, one head per coordinate."""
    own, dtype = task(checkpoint), checkpoint.model.cfg.dtype
    if checkpoint.variant is not None:
        return construct(own, checkpoint.variant, dtype=dtype, **dict(checkpoint.metrics.get("options", {})))
    return head_per_coordinate(own, dtype=dtype) if checkpoint.model.cfg.n_layers == 1 else None


def untrained(checkpoint: Checkpoint, seed: int) -> HookedTransformer:
    """The checkpoint's architecture as training starts it."""
    model = checkpoint.model
    return start(checkpoint.architecture, seed=seed, device=str(model.cfg.device), dtype=model.cfg.dtype)
