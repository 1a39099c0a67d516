"""Train many seeds of retrieval and keep them: one checkpoint a seed, and which was best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headlab.interp.errors import RequestError, UnknownName
from headlab.models.checkpoints import Checkpoint
from headlab.models.hooked import Architecture
from headlab.models.recipe import Recipe
from headlab.models.retrieval.architecture import summary
from headlab.models.retrieval.evaluation import evaluate
from headlab.models.retrieval.gauss_newton import GaussNewton, train_second_order
from headlab.models.retrieval.learner import draw_data
from headlab.models.retrieval.recipes import SOLVED, require_trainable, train
from headlab.models.retrieval.task import RetrievalTask
from headlab.models.runs import RunFolder, SeedResult

OPTIMISERS = ("adam", "gauss-newton")


def train_and_save(
    task: RetrievalTask,
    architecture: Architecture,
    plan: Recipe,
    seeds: Sequence[int],
    out: str | Path,
    *,
    examples: int = 8000,
    data_seed: int = 0,
    grow: bool = False,
    optimiser: str = "adam",
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
    device: str = "cpu",
) -> dict[str, Any]:
    """Train `seeds` on `examples` sequences and write `out`: a checkpoint a seed, and `runs.json`, which is returned.

    Best is the smallest error on 2000 validation sequences. A run is `stuck` where that error is 1e-3 or above, as it
    is wherever heads are fewer than coordinates. fresh_nmse: on sequences that chose nothing. grow: as recipes.train.
    resume: go on from the state in `out`, to the same result as an unbroken run; finished runs are returned as they
    are. optimiser: `adam`, or `gauss-newton` after it (headlab.models.retrieval.gauss_newton), which keeps finished
    runs only. Raises RequestError where the folder cannot be written, or holds other runs, for another optimiser,
    and as recipes.require_trainable.
    """
    if optimiser not in OPTIMISERS:
        raise UnknownName(f"no optimiser '{optimiser}' for retrieval: there are {', '.join(OPTIMISERS)}")
    if grow and optimiser != "adam":
        raise RequestError(f"{optimiser} grows its sequences by stages of its own: leave out grow")
    require_trainable(task.family, architecture, seeds, grow=grow)
    request = {
        "task_options": task.options(),
        "architecture": architecture.to_json(),
        "recipe": plan.to_json(),
        "seeds": list(seeds),
        "examples": examples,
        "data_seed": data_seed,
        "grow": grow,
        **({} if optimiser == "adam" else {"optimiser": optimiser}),
    }
    folder = RunFolder(out, request, resume=resume)
    if folder.results is not None:
        return folder.results
    data = draw_data(task.family, seed=data_seed, train=examples)
    common = {"data": data, "device": device, "progress": progress}
    if optimiser == "gauss-newton":
        trained = train_second_order(task.family, architecture, plan, seeds, **common)
    else:
        trained = train(task.family, architecture, plan, seeds, grow=grow, folder=folder, **common)
    recipe = plan.to_json() | dict(summary(architecture)) | {"examples": examples, "data_seed": data_seed, "grow": grow}
    if isinstance(trained, GaussNewton):
        recipe |= {"optimiser": optimiser, "stages": [asdict(stage) for stage in trained.stages]}
    results = []
    for index, seed in enumerate(seeds):
        together = len(trained.runs) == 1 and len(seeds) > 1
        run, column = (trained.runs[0], index) if together else (trained.runs[index], 0)
        measured = evaluate(trained.models[index], task, seed=data_seed)
        nmse = trained.nmse[index]
        checkpoint = Checkpoint(
            model=trained.models[index],
            architecture=architecture,
            task=task.name,
            task_options=task.options(),
            recipe=recipe,
            seed=seed,
            metrics={**measured.to_json(), "validation_nmse": nmse},
            history=run.history_of(column),
        )
        row = {"steps": run.best_step[column], "nmse": nmse, "fresh_nmse": measured.nmse, "stuck": nmse >= SOLVED}
        if isinstance(trained, GaussNewton):
            row |= {"adam_nmse": trained.adam_nmse[index], "iterations": len(trained.iterations[index])}
        results.append(SeedResult(checkpoint, row))
    return folder.finish(results, best=lambda row: row["nmse"], heads=architecture.config["n_heads"])
