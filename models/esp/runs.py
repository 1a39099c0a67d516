"""Train many seeds of endpoint selection and keep them: one checkpoint a seed, and the one with the fewest errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headlab.models.esp.recipes import automatic
from headlab.models.esp.task import EspTask
from headlab.models.esp.training import train
from headlab.models.runs import RunFolder, SeedResult


def train_and_save(
    task: EspTask,
    seeds: Sequence[int],
    out: str | Path,
    *,
    heads: int,
    method: str = "auto",
    steps: int | None = None,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
    device: str = "cpu",
) -> dict[str, Any]:
    """Train `seeds` together and write `out`, a checkpoint a seed and `runs.json`, which is returned.

    Args:
        task: The task, on one graph.
        seeds: Seeds of the initial weights.
        out: Folder to write.
        heads: Attention heads.
        method: See `headlab.models.esp.recipes.plan`; auto takes cross-entropy where zero errors are possible.
        steps: Training steps; the method's own number where None.
        resume: Go on from the state in `out`, to the same result as an unbroken run, or return its finished runs.
        progress: Called with (step, steps).
        device: Torch device.

    Raises:
        RequestError: As `train`; the folder cannot be written, or is resumed and holds another request.
    """
    if method == "auto":
        method = automatic(heads, task.graph.cycle() is not None)
    request = {
        "task_options": task.options(),
        "heads": heads,
        "method": method,
        "seeds": list(seeds),
        "steps": steps,
    }
    folder = RunFolder(out, request, resume=resume)
    if folder.results is not None:
        return folder.results
    trained = train(
        task,
        heads=heads,
        method=method,
        seeds=seeds,
        steps=steps,
        device=device,
        state=folder.state(),
        progress=progress,
        on_record=folder.on_record(),
    )
    results = [
        SeedResult(
            trained.checkpoint(index),
            {"steps": one.step, "solved": one.solved, "errors": one.errors, "accuracy": one.accuracy},
        )
        for index, one in enumerate(trained.models)
    ]
    return folder.finish(results, best=lambda row: row["errors"], heads=heads, method=method, graph=task.graph.name)
