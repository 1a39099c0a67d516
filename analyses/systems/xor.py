"""Sparse parity for the commands: build, train, evaluate, and the peers that a checkpoint is held against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from headlab.analyses.options.xor import BuildOptions, TrainOptions
from headlab.interp.errors import RequestError, UnknownName
from headlab.models.checkpoints import Checkpoint, save
from headlab.models.constructed import Constructed
from headlab.models.hooked import HookedTransformer
from headlab.models.xor.architecture import from_model, is_feedforward, to_model
from headlab.models.xor.constructed import VARIANT, limit
from headlab.models.xor.ensemble import draw
from headlab.models.xor.evaluation import evaluate as evaluate_model
from headlab.models.xor.feedforward import FeedForwardLearner
from headlab.models.xor.runs import Method, train_feedforward
from headlab.models.xor.runs import train as train_attention
from headlab.models.xor.task import XorTask


def task(checkpoint: Checkpoint) -> XorTask:
    """The task, bits and targets, that the checkpoint was made for."""
    return XorTask.from_options(checkpoint.task_options)


def build(options: BuildOptions) -> Checkpoint:
    """Construct, evaluate and save. Raises KeyError for another variant, ValueError for an impossible task or width."""
    if options.variant != VARIANT:
        raise UnknownName(f"no variant '{options.variant}' of xor: there is {VARIANT}")
    xor = XorTask(options.bits, options.targets)
    made = limit(
        xor,
        width=options.width,
        scale=options.scale,
        seed=options.common.seed,
        dtype=options.dtype,
        device=options.common.device,
    )
    checkpoint = checkpoint_of(made, xor, options.common.seed)
    return replace(checkpoint, directory=save(options.out, checkpoint))


def checkpoint_of(made: Constructed, xor: XorTask, seed: int) -> Checkpoint:
    """A constructed model as a checkpoint, evaluated."""
    metrics = evaluate_model(made.model, xor, seed=seed).to_json()
    return Checkpoint(
        model=made.model,
        architecture=made.architecture,
        task=xor.name,
        task_options=xor.options(),
        variant=made.variant,
        seed=seed,
        metrics=metrics | {"options": dict(made.options), "notes": dict(made.notes)},
    )


def train(options: TrainOptions, progress: Callable[[str, int, int], None] | None = None) -> dict[str, Any]:
    """The JSON of `headlab train`. Raises ValueError where heads and targets differ in number, and as the training."""
    heads = options.heads if options.heads is not None else len(options.targets or (0, 1))
    if heads < 1:
        raise RequestError(f"{heads} heads: sparse parity needs at least 1")
    targets = options.targets if options.targets is not None else tuple(range(heads))
    if len(targets) != heads:
        raise RequestError(f"{heads} heads for {len(targets)} targets: the model takes one head per target")
    if options.seeds < 1:
        raise RequestError(f"{options.seeds} seeds: train at least 1")
    xor = XorTask(options.bits, targets)
    seeds = range(options.common.seed, options.common.seed + options.seeds)
    if options.method == "feed-forward":
        found = train_feedforward(
            xor,
            options.neurons,
            seeds,
            options.out,
            steps=options.steps,
            resume=options.resume,
            device=options.common.device,
        )
    else:
        auto = "one-step" if heads == 2 else "normalised"
        method = Method(
            name=auto if options.method == "auto" else options.method,
            size=options.size,
            steps=options.steps,
            start=options.start,
            kind=options.attention,
            width=options.width,
            samples=options.samples,
        )
        report = (lambda done, total: progress("seeds", done, total)) if progress else None
        found = train_attention(
            xor,
            method,
            seeds,
            options.out,
            resume=options.resume,
            progress=report,
            device=options.common.device,
            dtype=options.dtype,
        )
    runs = [{**run, "dir": str(Path(options.out) / run["dir"])} for run in found["runs"]]
    return {
        "dir": str(options.out),
        "task": xor.name,
        "heads": found["heads"],
        "runs": runs,
        "best": str(Path(options.out) / found["best"]),
        "device": options.common.device,
    }


def evaluate(checkpoint: Checkpoint, *, seed: int = 0, count: int | None = None) -> dict[str, Any]:
    """The JSON of `headlab evaluate`: loss on samples, the exact population loss, and where the heads look."""
    return {"task": "xor", **evaluate_model(checkpoint.model, task(checkpoint), seed=seed, count=count).to_json()}


def constructed(checkpoint: Checkpoint) -> Constructed | None:
    """The limit solution on the checkpoint's own position vectors; None for a feed-forward network."""
    if is_feedforward(checkpoint.architecture):
        return None
    xor = task(checkpoint)
    positions = from_model(checkpoint.model, xor).positions[0]
    scale = dict(checkpoint.metrics.get("options", {})).get("scale") if checkpoint.variant == VARIANT else None
    return limit(xor, positions=positions, scale=scale, dtype=checkpoint.model.cfg.dtype)


def untrained(checkpoint: Checkpoint, seed: int) -> HookedTransformer:
    """A model as training starts it: new position vectors and queries, or a new network."""
    xor, recipe = task(checkpoint), dict(checkpoint.recipe or {})
    device = str(checkpoint.model.cfg.device)
    if is_feedforward(checkpoint.architecture):
        return FeedForwardLearner(xor, int(recipe["neurons"]), (seed,), batch=1, device=device).export(0)
    models = draw(
        xor,
        width=checkpoint.model.cfg.d_head,
        seeds=(seed,),
        start=recipe.get("start", "antisymmetric" if len(xor.targets) == 2 else "independent"),
        kind=recipe.get("kind", "softmax"),
    )
    return to_model(models, device=device, dtype=checkpoint.model.cfg.dtype)
