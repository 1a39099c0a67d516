"""Train many seeds of sparse parity and keep them: one checkpoint a seed, with its queries at the recorded steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headlab.models.checkpoints import Checkpoint, weights_of
from headlab.models.runs import RunFolder, SeedResult
from headlab.models.xor import feedforward
from headlab.models.xor.architecture import architecture, to_model
from headlab.models.xor.descent import Descent
from headlab.models.xor.evaluation import evaluate
from headlab.models.xor.method import Method, run
from headlab.models.xor.task import XorTask


def train(
    task: XorTask,
    method: Method,
    seeds: Sequence[int],
    out: str | Path,
    *,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
    device: str = "cpu",
    dtype: str = "float32",
) -> dict[str, Any]:
    """Train `seeds` and write `out`, a checkpoint a seed and `runs.json`, which is returned.

    resume: a folder that already holds these runs is returned as it is. Best is the run that is one to one, then the
    one with the smallest population loss. Raises RequestError where the folder cannot be written or the task too long
    for a transformer.
    """
    own = method.plan(task)
    design, rule = architecture(task, own.width, own.kind), own.rule(task)
    request = {"task_options": task.options(), **asdict(own), "seeds": list(seeds), "dtype": dtype}
    folder = RunFolder(out, request, resume=resume)
    if folder.results is not None:
        return folder.results
    descent = run(task, method, seeds, device=device)
    results = []
    for index, seed in enumerate(seeds):
        model = to_model(descent.final, index, device=device, dtype=dtype)
        measured = evaluate(model, task, seed=seed)
        history = _history(descent, index)
        earlier = {
            step: weights_of(to_model(descent.at(record), index, dtype=dtype))
            for record, step in enumerate(descent.steps)
        }
        checkpoint = Checkpoint(
            model=model,
            architecture=design,
            task=task.name,
            task_options=task.options(),
            recipe={**asdict(own), "rule": rule.kind, "step_size": rule.size},
            seed=seed,
            metrics=measured.to_json(),
            history=history,
        )
        solved = next((row["step"] for row in history if row["loss"] < 1e-3), None)
        row = {
            "steps": own.steps,
            "loss": measured.loss,
            "population_loss": measured.population_loss,
            "one_to_one": measured.one_to_one,
            "solved": solved,
        }
        results.append(SeedResult(checkpoint, row, earlier))
        if progress:
            progress(index + 1, len(seeds))
    return folder.finish(
        results, best=lambda row: (not row["one_to_one"], row["population_loss"], row["seed"]), heads=len(task.targets)
    )


def _history(descent: Descent, index: int) -> list[dict[str, Any]]:
    rows = []
    for record, step in enumerate(descent.steps):
        models = descent.at(record).select([index])
        rows.append(
            {
                "step": step,
                "loss": max(0.0, float(models.loss())),
                "training_loss": float(descent.loss[record, index]),
                "one_to_one": bool(models.placement().one_to_one),
            }
        )
    return rows


def train_feedforward(
    task: XorTask,
    neurons: int,
    seeds: Sequence[int],
    out: str | Path,
    *,
    steps: int | None = None,
    resume: bool = False,
    device: str = "cpu",
) -> dict[str, Any]:
    """The same for the feed-forward baseline; best is the smallest error on held-out samples."""
    request = {"task_options": task.options(), "neurons": neurons, "steps": steps, "seeds": list(seeds)}
    folder = RunFolder(out, request, resume=resume)
    if folder.results is not None:
        return folder.results
    plan = feedforward.recipe(task) if steps is None else feedforward.recipe(task, steps=steps)
    learner, trained = feedforward.train(task, neurons, seeds, plan=plan, device=device)
    results = []
    for index, seed in enumerate(seeds):
        model = learner.export(index, trained.best)
        measured = evaluate(model, task, seed=seed)
        checkpoint = Checkpoint(
            model=model,
            architecture=learner.architecture,
            task=task.name,
            task_options=task.options(),
            recipe={**plan.to_json(), "name": "feed-forward", "neurons": neurons},
            seed=seed,
            metrics=measured.to_json() | {"parameters": feedforward.parameters(task, neurons)},
            history=trained.history_of(index),
        )
        row = {
            "steps": trained.best_step[index],
            "loss": measured.loss,
            "one_to_one": None,
            "solved": trained.solved[index],
        }
        results.append(SeedResult(checkpoint, row))
    return folder.finish(results, best=lambda row: (row["loss"], row["seed"]), heads=0)
