"""Train many seeds of retrieval and keep them: one checkpoint a seed, and which was best."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headlab.interp.errors import RequestError
from headlab.models import bundle
from headlab.models.checkpoints import RUNS, Checkpoint, load_runs, save, save_runs
from headlab.models.hooked import Architecture
from headlab.models.recipe import Recipe
from headlab.models.retrieval.architecture import summary
from headlab.models.retrieval.evaluation import evaluate
from headlab.models.retrieval.learner import draw_data
from headlab.models.retrieval.recipes import SOLVED, require_trainable, train
from headlab.models.retrieval.task import RetrievalTask

STATES, REQUEST = "training", "request.json"


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
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
    device: str = "cpu",
) -> dict[str, Any]:
    """Train `seeds` on `examples` sequences and write `out`: a checkpoint a seed, and `runs.json`, which is returned.

    Best is the smallest error on 2000 validation sequences. A run is `stuck` where that error is 1e-3 or above, as it
    is wherever heads are fewer than coordinates. fresh_nmse: on sequences that chose nothing. grow: as recipes.train.
    resume: go on from the state in `out`, to the same result as an unbroken run; finished runs are returned as they
    are. Raises ValueError where the folder cannot be written, or holds other runs, and as recipes.require_trainable.
    """
    require_trainable(task.family, architecture, seeds, grow=grow)
    out = Path(out)
    asked = {
        "task_options": task.options(),
        "architecture": architecture.to_json(),
        "recipe": plan.to_json(),
        "seeds": list(seeds),
        "examples": examples,
        "data_seed": data_seed,
        "grow": grow,
    }
    request = json.loads(json.dumps(asked))  # as it will read when it is loaded again
    if resume:
        if _asked(out) not in (None, request):
            raise RequestError(f"'{out}' holds the runs of another request: choose another folder, or leave out resume")
        if (out / RUNS).is_file() and load_runs(out).get("request") == request:
            return load_runs(out)
    data = draw_data(task.family, seed=data_seed, train=examples)
    for seed in seeds[:1]:
        bundle.require_writable(out / f"seed-{seed}")
    if not resume:
        for folder in (out / STATES).glob(f"*/{bundle.MANIFEST}"):
            shutil.rmtree(folder.parent)
    bundle.write_json(out / REQUEST, {"format": bundle.FORMAT, "kind": "request", "request": request})
    trained = train(
        task.family,
        architecture,
        plan,
        seeds,
        data=data,
        grow=grow,
        device=device,
        progress=progress,
        states=out / STATES,
        resume=resume,
    )
    rows = []
    for index, seed in enumerate(seeds):
        together = len(trained.runs) == 1 and len(seeds) > 1
        run, column = (trained.runs[0], index) if together else (trained.runs[index], 0)
        found = evaluate(trained.models[index], task, seed=data_seed)
        checkpoint = Checkpoint(
            model=trained.models[index],
            architecture=architecture,
            task=task.name,
            task_options=task.options(),
            recipe={
                **plan.to_json(),
                **summary(architecture),
                "examples": examples,
                "data_seed": data_seed,
                "grow": grow,
            },
            seed=seed,
            metrics={**found.to_json(), "validation_nmse": trained.nmse[index]},
            history=run.history_of(column),
        )
        save(out / f"seed-{seed}", checkpoint)
        rows.append(
            {
                "seed": seed,
                "dir": f"seed-{seed}",
                "steps": run.best_step[column],
                "nmse": trained.nmse[index],
                "fresh_nmse": found.nmse,
                "stuck": trained.nmse[index] >= SOLVED,
            }
        )
    heads = architecture.config["n_heads"]
    save_runs(out, rows, rows[trained.best]["dir"], task=task.name, heads=heads, request=request)
    return load_runs(out)


def _asked(out: Path) -> dict[str, Any] | None:
    """The request that was last begun in the folder, finished or not."""
    for name, kind in ((REQUEST, "request"), (RUNS, "runs")):
        if (out / name).is_file():
            return bundle.read(out, kind, name=name).get("request")
    return None
