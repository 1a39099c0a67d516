"""What the commands need of each task, one module a task, found through `headlab.analyses.tasks`.

Such a module has these functions:

- `build(options) -> Checkpoint`: constructed weights, saved in `options.out`;
- `train(options, progress=None) -> dict`: learned weights, saved in `options.out`; the JSON of `headlab train`;
- `training(options, device) -> Training`: the same training for a sweep, which saves nothing (see `sweep.trainings`);
- `evaluate(checkpoint, *, seed, count=None) -> dict`: the JSON of `headlab evaluate`;
- `task(checkpoint) -> Task`;
- `constructed(checkpoint) -> Constructed | None`: the construction that the checkpoint holds, or, for learned weights,
  the one they are compared with;
- `untrained(checkpoint, seed) -> HookedTransformer`: the same architecture as the task's initialiser leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from headlab.analyses.tasks import task_entry
from headlab.interp.errors import RequestError

Progress = Callable[[str, int, int], None]


def system(name: str) -> ModuleType:
    """The module of the task `name`. Raises UnknownName, listing the tasks there are."""
    return task_entry(name).commands


def seeds_of(options: Any) -> range:
    """The seeds that `headlab train` is asked for. Raises RequestError for none."""
    if options.seeds < 1:
        raise RequestError(f"{options.seeds} seeds: train at least 1")
    return range(options.common.seed, options.common.seed + options.seeds)


def named(progress: Progress | None, name: str) -> Callable[[int, int], None] | None:
    """A progress callback of (done, total) that reports under `name`."""
    return None if progress is None else lambda done, total: progress(name, done, total)


def train_json(options: Any, runs: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The JSON of `headlab train` from what `runs.json` holds, the folders as a reader can open them."""
    return {
        "dir": str(options.out),
        "task": runs["task"],
        "heads": runs["heads"],
        **more,
        "runs": [{**run, "dir": str(Path(options.out) / run["dir"])} for run in runs["runs"]],
        "best": str(Path(options.out) / runs["best"]),
        "device": options.common.device,
    }
