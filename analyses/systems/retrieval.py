"""Retrieval for the commands: build, train, evaluate, and the peers that a checkpoint is held against."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from headlab.analyses.options.retrieval import BuildOptions, TrainOptions
from headlab.interp.errors import RequestError, UnknownName
from headlab.models.checkpoints import Checkpoint, save
from headlab.models.constructed import Constructed
from headlab.models.hooked import HookedTransformer
from headlab.models.retrieval.architecture import architecture, start
from headlab.models.retrieval.circuits import VARIANTS
from headlab.models.retrieval.constructed import construct, head_per_coordinate
from headlab.models.retrieval.evaluation import evaluate as evaluate_model
from headlab.models.retrieval.family import Family, sum_of_maxima
from headlab.models.retrieval.recipes import recipe
from headlab.models.retrieval.runs import train_and_save
from headlab.models.retrieval.task import RetrievalTask


def task(checkpoint: Checkpoint) -> RetrievalTask:
    """The task, its target included, that the checkpoint was made for."""
    return RetrievalTask.from_options(checkpoint.task_options)


def read_target(path: str | Path) -> Family:
    """The target that a JSON file describes (see Family.options).

    Raises FileNotFoundError, and ValueError naming the file where it is damaged or describes no target.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"'{path}' is no JSON file: {error}") from None
    try:
        return Family.from_options(found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        said = error.args[0] if error.args else "it is no object"
        raise RequestError(f"'{path}' describes no target: {said}") from None


def build(options: BuildOptions) -> Checkpoint:
    """Construct, evaluate and save. Raises KeyError for another variant, ValueError for an impossible target."""
    if options.variant not in VARIANTS:
        raise UnknownName(f"no variant '{options.variant}' of retrieval: there are {', '.join(VARIANTS)}")
    own = RetrievalTask(_family(options, options.common.seed))
    made = construct(
        own,
        options.variant,
        beta=options.beta,
        heads=options.heads,
        dtype=options.dtype,
        device=options.common.device,
    )
    checkpoint = checkpoint_of(made, own, options.common.seed)
    return replace(checkpoint, directory=save(options.out, checkpoint))


def _family(options: BuildOptions | TrainOptions, seed: int) -> Family:
    if options.target is not None:
        return read_target(options.target)
    return sum_of_maxima(options.coordinates, options.length, size=options.size, seed=seed, vectors=options.vectors)


def checkpoint_of(made: Constructed, own: RetrievalTask, seed: int) -> Checkpoint:
    """A constructed model as a checkpoint, evaluated."""
    found = evaluate_model(made.model, own, seed=seed, bound=made.notes["bound"])
    return Checkpoint(
        model=made.model,
        architecture=made.architecture,
        task=own.name,
        task_options=own.options(),
        variant=made.variant,
        seed=seed,
        metrics=found.to_json() | {"options": dict(made.options), "notes": dict(made.notes)},
    )


def train(options: TrainOptions, progress: Callable[[str, int, int], None] | None = None) -> dict[str, Any]:
    """The JSON of `headlab train`. The target is drawn with seed 0, so that runs of any --seed share it."""
    if options.seeds < 1:
        raise RequestError(f"{options.seeds} seeds: train at least 1")
    own = RetrievalTask(_family(options, 0))
    heads = own.family.coordinates if options.heads is None else options.heads
    design = architecture(
        own.family,
        heads,
        encoder=options.encoder,
        width=options.width,
        total_width=options.total_width,
        layers=options.layers,
    )
    report = (lambda done, total: progress("steps", done, total)) if progress else None
    found = train_and_save(
        own,
        design,
        recipe(options.recipe, steps=options.steps, lr=options.lr),
        range(options.common.seed, options.common.seed + options.seeds),
        options.out,
        examples=options.examples,
        grow=options.grow,
        resume=options.resume,
        progress=report,
        device=options.common.device,
    )
    return {
        "dir": str(options.out),
        "task": own.name,
        "heads": heads,
        "runs": [{**run, "dir": str(Path(options.out) / run["dir"])} for run in found["runs"]],
        "best": str(Path(options.out) / found["best"]),
        "stuck": sum(run["stuck"] for run in found["runs"]),
        "device": options.common.device,
    }


def evaluate(checkpoint: Checkpoint, *, seed: int = 0, count: int | None = None) -> dict[str, Any]:
    """The JSON of `headlab evaluate`: errors in the target's own units, and the theorem's bound where it speaks."""
    bound = dict(checkpoint.metrics.get("notes", {})).get("bound")
    found = evaluate_model(checkpoint.model, task(checkpoint), seed=seed, count=count, bound=bound)
    return {"task": "retrieval", **found.to_json()}


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
