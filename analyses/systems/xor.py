"""Sparse parity for the commands: build, train, evaluate, and the peers that a checkpoint is held against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from headlab.analyses.options.xor import BuildOptions, TrainOptions
from headlab.analyses.sweep.trainings import LEARNED, Measured, Training
from headlab.analyses.systems import Progress, named, seeds_of, train_json
from headlab.interp.errors import RequestError, UnknownName
from headlab.models.checkpoints import Checkpoint, save
from headlab.models.constructed import Constructed
from headlab.models.hooked import HookedTransformer
from headlab.models.training import fit
from headlab.models.xor import feedforward
from headlab.models.xor.architecture import from_model, is_feedforward, to_model
from headlab.models.xor.constructed import VARIANT, limit
from headlab.models.xor.ensemble import draw
from headlab.models.xor.evaluation import evaluate as evaluate_model
from headlab.models.xor.feedforward import FeedForwardLearner
from headlab.models.xor.method import Method
from headlab.models.xor.method import run as descend
from headlab.models.xor.runs import train as train_attention
from headlab.models.xor.runs import train_feedforward
from headlab.models.xor.task import XorTask


def task(checkpoint: Checkpoint) -> XorTask:
    """The task, bits and targets, that the checkpoint was made for."""
    return XorTask.from_options(checkpoint.task_options)


def build(options: BuildOptions) -> Checkpoint:
    """Construct, evaluate, save. Raises UnknownName for another variant, RequestError for a task or width."""
    if options.variant != VARIANT:
        raise UnknownName(f"no variant '{options.variant}' of xor: there is {VARIANT}")
    xor = XorTask(options.bits, options.targets)
    construction = limit(
        xor,
        width=options.width,
        scale=options.scale,
        seed=options.common.seed,
        dtype=options.dtype,
        device=options.common.device,
    )
    checkpoint = checkpoint_of(construction, xor, options.common.seed)
    return replace(checkpoint, directory=save(options.out, checkpoint))


def checkpoint_of(construction: Constructed, xor: XorTask, seed: int) -> Checkpoint:
    """A constructed model as a checkpoint, evaluated."""
    metrics = evaluate_model(construction.model, xor, seed=seed).to_json()
    return Checkpoint(
        model=construction.model,
        architecture=construction.architecture,
        task=xor.name,
        task_options=xor.options(),
        variant=construction.variant,
        seed=seed,
        metrics=metrics | {"options": dict(construction.options), "notes": dict(construction.notes)},
    )


def _task(options: TrainOptions) -> XorTask:
    heads = options.heads if options.heads is not None else len(options.targets or (0, 1))
    if heads < 1:
        raise RequestError(f"{heads} heads: sparse parity needs at least 1")
    targets = options.targets if options.targets is not None else tuple(range(heads))
    if len(targets) != heads:
        raise RequestError(f"{heads} heads for {len(targets)} targets: the model takes one head per target")
    return XorTask(options.bits, targets)


def _method(options: TrainOptions, xor: XorTask) -> Method:
    auto = "one-step" if len(xor.targets) == 2 else "normalised"
    return Method(
        name=auto if options.method == "auto" else options.method,
        size=options.size,
        steps=options.steps,
        start=options.start,
        kind=options.attention,
        width=options.width,
        samples=options.samples,
    )


def train(options: TrainOptions, progress: Progress | None = None) -> dict[str, Any]:
    """The JSON of `headlab train`. Raises RequestError where heads and targets differ in number."""
    xor, seeds = _task(options), seeds_of(options)
    where = {"resume": options.resume, "device": options.common.device}
    if options.method == "feed-forward":
        runs = train_feedforward(xor, options.neurons, seeds, options.out, steps=options.steps, **where)
    else:
        method, report = _method(options, xor), named(progress, "seeds")
        runs = train_attention(xor, method, seeds, options.out, progress=report, dtype=options.dtype, **where)
    return train_json(options, runs)


def training(options: TrainOptions, device: str) -> Training:
    """For a sweep: the error is the loss, success below 1e-3 with each head on a target of its own."""
    xor = _task(options)
    if options.method == "feed-forward":
        return _network(xor, options, device)
    method = _method(options, xor)
    own = method.plan(xor)

    def run(seeds: Sequence[int], steps: int | None, report: Callable[[int, int], None] | None) -> list[Measured]:
        models = descend(xor, method, seeds, device=device).final
        losses, placed = models.loss().tolist(), models.placement()
        return [
            {
                "error": max(0.0, loss),
                "success": one_to_one and loss < LEARNED,
                "steps_done": own.steps,
                "one_to_one": one_to_one,
                "same_target": together,
            }
            for loss, one_to_one, together in zip(
                losses, placed.one_to_one.tolist(), placed.together.tolist(), strict=True
            )
        ]

    heads, samples = len(xor.targets), 1 if own.samples is None else own.samples
    return Training(None, float((own.steps + 1) * xor.bits * heads * (own.width + 3**heads + samples)), run)


def _network(xor: XorTask, options: TrainOptions, device: str) -> Training:
    full = feedforward.recipe(xor) if options.steps is None else feedforward.recipe(xor, steps=options.steps)

    def run(seeds: Sequence[int], steps: int | None, report: Callable[[int, int], None] | None) -> list[Measured]:
        plan = full if steps is None else feedforward.recipe(xor, steps=steps)
        batch = plan.batch or 16 * xor.bits
        learner = FeedForwardLearner(xor, options.neurons, seeds, batch=batch, device=device)
        solved_at = feedforward.SOLVED
        trained = fit(learner, plan, keep=("error",), done=lambda now: now["error"] < solved_at, progress=report)
        return [
            {
                "error": error,
                "success": error < LEARNED,
                "steps_done": trained.step,
                "best_step": best,
                "solved": solved,
            }
            for error, best, solved in zip(
                trained.best_measures["error"], trained.best_step, trained.solved, strict=True
            )
        ]

    work = float(full.steps * xor.bits**2 * options.neurons)
    return Training(full.steps, work, run, stops=full.stop, records=full.record)


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
