"""Endpoint selection for the commands: build, train, evaluate, and the peers that a checkpoint is held against."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from analyses.options.esp import BuildOptions
from models.checkpoints import Checkpoint, save
from models.constructed import Constructed
from models.esp.constructed import construct
from models.esp.evaluation import evaluate as evaluate_model
from models.esp.graphs import read_graph
from models.esp.task import EspTask
from models.hooked import HookedTransformer, initialise
from models.hooked import build as build_model

INIT_SCALE = 0.2  # times 1 / sqrt(d_model): the initialiser of the recipes


def task(checkpoint: Checkpoint) -> EspTask:
    """The task, graph and labels included, that the checkpoint was made for."""
    return EspTask.from_options(checkpoint.task_options)


def build(options: BuildOptions) -> Checkpoint:
    """Construct, evaluate and save. Raises ValueError or KeyError where graph and variant do not go together."""
    esp = EspTask(read_graph(options.graph), options.induction)
    made = construct(esp, options.variant, tied=options.tied, sink=options.sink, dtype=options.dtype)
    checkpoint = checkpoint_of(made, esp)
    return replace(checkpoint, directory=save(options.out, checkpoint))


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
