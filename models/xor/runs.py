"""Train many seeds of sparse parity and keep them: one checkpoint a seed, with its queries at the recorded steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headlab.interp.errors import RequestError
from headlab.models import bundle
from headlab.models.checkpoints import RUNS, Checkpoint, load_runs, save, save_runs, weights_of
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
    one with the smallest population loss. Raises ValueError where the folder cannot be written or the task is too long
    for a transformer.
    """
    out = Path(out)
    own = method.plan(task)
    request = {"task_options": task.options(), **asdict(own), "seeds": list(seeds), "dtype": dtype}
    if resume and (out / RUNS).is_file():
        return _finished(out, request)
    design = architecture(task, own.width, own.kind)
    bundle.require_writable(out / f"seed-{seeds[0]}")
    descent = run(task, method, seeds, device=device)
    rule = own.rule(task)
    rows = []
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
        save(out / f"seed-{seed}", checkpoint, weights=earlier)
        solved = next((row["step"] for row in history if row["loss"] < 1e-3), None)
        rows.append(
            {
                "seed": seed,
                "dir": f"seed-{seed}",
                "steps": own.steps,
                "loss": measured.loss,
                "population_loss": measured.population_loss,
                "one_to_one": measured.one_to_one,
                "solved": solved,
            }
        )
        if progress:
            progress(index + 1, len(seeds))
    best = min(rows, key=lambda row: (not row["one_to_one"], row["population_loss"], row["seed"]))
    save_runs(out, rows, best["dir"], task=task.name, heads=len(task.targets), request=request)
    return load_runs(out)


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
    out = Path(out)
    request = {"task_options": task.options(), "neurons": neurons, "steps": steps, "seeds": list(seeds)}
    if resume and (out / RUNS).is_file():
        return _finished(out, request)
    bundle.require_writable(out / f"seed-{seeds[0]}")
    plan = feedforward.recipe(task) if steps is None else feedforward.recipe(task, steps=steps)
    learner, trained = feedforward.train(task, neurons, seeds, plan=plan, device=device)
    rows = []
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
        save(out / f"seed-{seed}", checkpoint)
        rows.append(
            {
                "seed": seed,
                "dir": f"seed-{seed}",
                "steps": trained.best_step[index],
                "loss": measured.loss,
                "one_to_one": None,
                "solved": trained.solved[index],
            }
        )
    best = min(rows, key=lambda row: (row["loss"], row["seed"]))
    save_runs(out, rows, best["dir"], task=task.name, heads=0, request=request)
    return load_runs(out)


def _finished(out: Path, request: dict[str, Any]) -> dict[str, Any]:
    found = load_runs(out)
    if found.get("request") != request:
        raise RequestError(f"'{out}' holds the runs of another request: choose another folder, or train without resume")
    return found
