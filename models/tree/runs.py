"""Train many seeds of a plan and keep them: one checkpoint a seed, a training state to go on from, and the best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from typing import Any

from headlab.models.checkpoints import Checkpoint, weights_of
from headlab.models.runs import RunFolder, SeedResult, write_runs
from headlab.models.training import fit
from headlab.models.training_log import TrainingRun
from headlab.models.tree.evaluation import evaluate
from headlab.models.tree.learner import TreeLearner
from headlab.models.tree.recipes import Plan
from headlab.models.tree.task import TreeTask


def train(
    plan: Plan,
    seeds: Sequence[int],
    out: str | Path,
    *,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
    until: int | None = None,
    keep_weights: Sequence[int] = (),
    validation: int = 256,
    follow: int = 0,
    paths: int = 2000,
    device: str = "cpu",
) -> dict[str, Any]:
    """Train `seeds` together and write `out`; the `runs.json` that it holds is returned.

    Where one stage of a curriculum ends and another follows, `out`/after-stage-K gets the models as they then are, each
    evaluated on the task of that stage. resume: go on from the state in `out`, to the same result as an unbroken
    run; a finished folder is returned as it is. until: stop before this step, with a state to resume from and no
    runs (`finished` is False). keep_weights: seeds whose weights are kept at every recorded step. validation,
    follow: trees that are measured while training.
    paths: held-out trees that the last weights are evaluated on. Raises RequestError where `out` cannot be written,
    or holds a state of another recipe or other seeds.
    """
    request = {
        "task_options": plan.task.options(),
        "architecture": plan.architecture.to_json(),
        "recipe": recipe_of(plan),
        "seeds": list(seeds),
        "keep_weights": list(keep_weights),
        "validation": validation,
        "follow": follow,
        "paths": paths,
    }
    folder = RunFolder(out, request, resume=resume)
    if folder.results is not None:
        return folder.results
    learner = plan.learner(seeds, validation=validation, follow=follow, device=device)
    state = folder.state()
    on_record = folder.on_record()
    columns = [tuple(seeds).index(seed) for seed in keep_weights]
    ends = list(accumulate(stage.steps for stage in plan.stages))[:-1]
    outcome = {"best": lambda row: (-row["path_accuracy"], row["loss"]), "heads": plan.architecture.config["n_heads"]}
    for number, end in enumerate([*ends, None]):
        if end is not None and state is not None and state.step >= end:
            continue
        pause = end if until is None or (end is not None and end <= until) else until
        run = fit(
            learner, plan.recipe, state=state, until=pause, weights_of=columns, progress=progress, on_record=on_record
        )
        state = run.state
        folder.save_state(state)
        if run.finished:
            results = _results(plan, plan.task, learner, run, keep_weights, paths)
            return folder.finish(results, finished=True, **outcome)
        if pause != end:
            break
        results = _results(plan, plan.stages[number].task, learner, run, (), paths)
        write_runs(folder.out / f"after-stage-{number + 1}", results, finished=False, **outcome)
    return {"finished": False, "step": run.step, "runs": [], "best": None}


def recipe_of(plan: Plan) -> dict[str, Any]:
    """The plan as a checkpoint keeps it: the recipe's own entries, its name, and its stages."""
    stages = [{"steps": stage.steps, "batch": stage.batch, "task": stage.task.options()} for stage in plan.stages]
    return {**plan.recipe.to_json(), "plan": plan.name, "plan_options": dict(plan.options), "stages": stages}


def _results(
    plan: Plan, task: TreeTask, learner: TreeLearner, run: TrainingRun, keep_weights: Sequence[int], paths: int
) -> list[SeedResult]:
    return [_result(plan, task, learner, run, index, keep_weights, paths) for index in range(len(run.seeds))]


def _result(
    plan: Plan,
    task: TreeTask,
    learner: TreeLearner,
    run: TrainingRun,
    index: int,
    keep_weights: Sequence[int],
    paths: int,
) -> SeedResult:
    seed = run.seeds[index]
    model = learner.export(index)
    measured = evaluate(model, task, seed=seed, count=paths, batch=max(1, 8192 // task.layout.length))
    checkpoint = Checkpoint(
        model=model,
        architecture=plan.architecture,
        task=task.name,
        task_options=task.options(),
        recipe=recipe_of(plan),
        seed=seed,
        metrics=measured.to_json(),
        history=run.history_of(index),
    )
    earlier = {}
    if seed in keep_weights:
        place = list(keep_weights).index(seed)
        for step, stacked in run.weights.items():
            own = {name: value[place : place + 1] for name, value in stacked.items()}
            earlier[step] = weights_of(_with_weights(learner, index, own))
    row = {
        "steps": run.step,
        "accuracy": measured.path_accuracy,
        **{key: value for key, value in asdict(measured).items() if key != "stages"},
        "stages": measured.stages,
    }
    return SeedResult(checkpoint, row, earlier)


def _with_weights(learner: TreeLearner, index: int, own: dict[str, Any]) -> Any:
    """One seed as a model, with weights that are stacked over this seed alone."""
    everything = {name: value.expand(len(learner.seeds), *value.shape[1:]) for name, value in own.items()}
    return learner.export(index, everything)
