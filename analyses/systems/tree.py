"""Path finding in trees for the commands: build, train, evaluate, and the peers that a checkpoint is held against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from headlab.analyses.options.tree import BuildOptions, TrainOptions
from headlab.analyses.sweep.trainings import Measured, Training
from headlab.analyses.systems import Progress, named, seeds_of, train_json
from headlab.interp.errors import RequestError
from headlab.models.checkpoints import Checkpoint, save
from headlab.models.constructed import Constructed
from headlab.models.hooked import HookedTransformer, initialise
from headlab.models.hooked import build as build_model
from headlab.models.training import fit
from headlab.models.tree.circuits import POINTER_DOUBLING
from headlab.models.tree.constructed import construct
from headlab.models.tree.evaluation import evaluate as evaluate_model
from headlab.models.tree.given import read
from headlab.models.tree.recipes import (
    INIT_SCALE,
    PLAIN,
    RECIPE,
    Plan,
    curriculum,
    direct,
    frozen_labels,
    plain_descent,
    usual_stages,
)
from headlab.models.tree.runs import train as train_plan
from headlab.models.tree.source import TreeSource
from headlab.models.tree.task import TreeTask

EVALUATED = 2000
PATHS_RIGHT = 0.99  # path accuracy at which a run counts as a success


def task(checkpoint: Checkpoint) -> TreeTask:
    """The task that the checkpoint was made for."""
    return TreeTask.from_options(checkpoint.task_options)


def trees(options: BuildOptions | TrainOptions, *, split: str = "labelling") -> TreeSource:
    """The trees that the options name. Raises RequestError or FileNotFoundError where there are none such."""
    if options.tree is None:
        if options.goal is not None:
            raise RequestError("a goal is named in a given tree only: give the file with --tree, or leave --goal out")
        return TreeSource(options.depth, options.shape, options.vocabulary, options.nodes, split=split)
    given = read(options.tree)
    return TreeSource((), "given", options.vocabulary, split=split, given=given, goal=options.goal)


def build(options: BuildOptions) -> Checkpoint:
    """Construct, evaluate, save. Raises UnknownName for another variant, RequestError for trees or labels."""
    doubling = options.variant == POINTER_DOUBLING
    tree = TreeTask(
        trees(options),
        "backward" if options.variant == "backward" else "forward",
        chain_of_thought=not doubling,
        order=options.order or ("parents-first" if doubling else "random"),
    )
    construction = construct(
        tree,
        options.variant,
        beta=options.beta,
        label_width=options.label_width,
        seed=options.common.seed,
        layers=options.layers,
        dtype=options.dtype,
        device=options.common.device,
    )
    checkpoint = checkpoint_of(construction, tree, options.common.seed)
    return replace(checkpoint, directory=save(options.out, checkpoint))


def checkpoint_of(construction: Constructed, tree: TreeTask, seed: int) -> Checkpoint:
    """A constructed model as a checkpoint, evaluated on 200 trees."""
    metrics = evaluate_model(construction.model, tree, seed=seed, count=200).to_json()
    return Checkpoint(
        model=construction.model,
        architecture=construction.architecture,
        task=tree.name,
        task_options=tree.options(),
        variant=construction.variant,
        seed=seed,
        metrics=metrics | {"options": dict(construction.options), "notes": dict(construction.notes)},
    )


def plan(options: TrainOptions) -> Plan:
    """What the options train. Raises RequestError where they do not go together."""
    if options.recipe == "curriculum" and (options.tree is not None or len(options.depth) < 2):
        raise RequestError("a curriculum needs two depths or more, e.g. --depth 3 5 7, and no --tree")
    if options.recipe in ("plain-descent", "frozen-labels") and (options.layers, options.form) != (1, "pair"):
        raise RequestError(f"{options.recipe} is for one layer on pair tokens: leave --layers and --form as they are")
    source = trees(options, split=options.split)
    tree = TreeTask(source, options.direction, options.chain_of_thought, options.form)
    recipe = PLAIN if options.recipe == "plain-descent" else RECIPE
    changes = {name: getattr(options, name) for name in ("steps", "batch", "lr")}
    recipe = replace(recipe, **{name: value for name, value in changes.items() if value is not None})
    if options.recipe == "curriculum":
        tasks = [replace(tree, trees=replace(source, depths=(depth,))) for depth in options.depth]
        steps, batches = usual_stages(tasks, steps=options.steps, batch=options.batch)
        return curriculum(
            tasks, steps, batches, heads=options.heads, d_model=options.d_model, d_head=options.d_head, recipe=recipe
        )
    if options.recipe == "plain-descent":
        return plain_descent(tree, recipe=recipe)
    if options.recipe == "frozen-labels":
        return frozen_labels(
            tree, heads=options.heads, label_width=options.label_width, d_head=options.d_head, recipe=recipe
        )
    return direct(
        tree,
        heads=options.heads,
        layers=options.layers,
        d_model=options.d_model,
        d_head=options.d_head,
        recipe=recipe,
    )


def train(options: TrainOptions, progress: Progress | None = None) -> dict[str, Any]:
    """The JSON of `headlab train`. Raises RequestError where options do not go together, and as the training."""
    seeds = seeds_of(options)
    chosen = plan(options)
    runs = train_plan(
        chosen,
        seeds,
        options.out,
        resume=options.resume,
        progress=named(progress, "steps"),
        paths=options.paths,
        device=options.common.device,
    )
    return train_json(options, runs, recipe=chosen.name)


def training(options: TrainOptions, device: str) -> Training:
    """For a sweep: the error is 1 - path accuracy on trees that training never sees, success at .99."""
    full = plan(options)

    def run(seeds: Sequence[int], steps: int | None, report: Callable[[int, int], None] | None) -> list[Measured]:
        chosen = full if steps is None else plan(replace(options, steps=steps))
        learner = chosen.learner(seeds, device=device)
        run_of_all = fit(learner, chosen.recipe, progress=report)
        rows = []
        for index, seed in enumerate(seeds):
            batch = max(1, 8192 // chosen.task.layout.length)
            measured = evaluate_model(learner.export(index), chosen.task, seed=seed, count=options.paths, batch=batch)
            rows.append(
                {
                    "error": 1 - measured.path_accuracy,
                    "success": measured.path_accuracy >= PATHS_RIGHT,
                    "steps_done": run_of_all.step,
                    "path_accuracy": measured.path_accuracy,
                    "token_accuracy": measured.token_accuracy,
                    "loss": measured.loss,
                }
            )
        return rows

    config = full.architecture.config
    wide = config["n_layers"] * config["n_heads"] * config["d_head"]
    work = sum(
        stage.steps * stage.batch * stage.task.layout.length * wide * (4 * config["d_model"] + stage.task.layout.length)
        for stage in full.stages
    )
    return Training(full.recipe.steps, float(work), run, records=full.recipe.record)


def evaluate(checkpoint: Checkpoint, *, seed: int = 0, count: int | None = None) -> dict[str, Any]:
    """The JSON of `headlab evaluate`: teacher-forced, which is right exactly where generation is."""
    evaluation = evaluate_model(
        checkpoint.model, task(checkpoint), seed=seed, count=EVALUATED if count is None else count
    )
    return {"task": "tree", **evaluation.to_json()}


def constructed(checkpoint: Checkpoint) -> Constructed | None:
    """The construction that the checkpoint holds, or the one that learned weights are compared with; None without."""
    tree = task(checkpoint)
    if checkpoint.variant is not None:
        return construct(tree, checkpoint.variant, **dict(checkpoint.metrics.get("options", {})))
    if tree.form == "plain" or not tree.layout.backward:
        return None
    return construct(tree, "forward" if tree.staged else "backward")


def untrained(checkpoint: Checkpoint, seed: int) -> HookedTransformer:
    """The checkpoint's architecture as the recipes' initialiser leaves it; what does not train is as it is there."""
    model = build_model(checkpoint.architecture, device=str(checkpoint.model.cfg.device))
    scale = (checkpoint.recipe or {}).get("init_scale")
    initialise(model, scale=INIT_SCALE if scale is None else scale, seed=seed)
    own = dict(checkpoint.model.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                parameter.copy_(own[name])
    return model
