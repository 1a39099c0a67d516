"""A checkpoint whose heads are asked about, how well it does its task, and the other seeds of its training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headlab.analyses.systems import system
from headlab.interp.errors import RequestError
from headlab.models.checkpoints import RUNS, Checkpoint, load, load_runs
from headlab.models.hooked import HookedTransformer


def load_with_heads(directory: Path, device: str) -> Checkpoint:
    """The checkpoint in `directory`. Errors as for headlab.models.checkpoints.load, and RequestError where it is a
    model of one position, which has nothing to attend to: a feed-forward network."""
    checkpoint = load(directory, device=device)
    if checkpoint.architecture.config["n_ctx"] == 1:
        raise RequestError(f"'{directory}' is a feed-forward network without heads: only evaluate and info take it")
    return checkpoint


def performance(checkpoint: Checkpoint) -> dict[str, Any]:
    """`accuracy`, the share of right answers (tree: of whole paths), None where the task has none, and `evaluation`.

    A score says how the work is divided and not whether it is done: it is never shown without this.
    """
    found = system(checkpoint.task).evaluate(checkpoint)
    return {"accuracy": found.get("accuracy", found.get("path_accuracy")), "evaluation": found}


def other_seeds(checkpoint: Checkpoint, device: str) -> list[HookedTransformer]:
    """The models of the same training under other seeds, where the checkpoint's folder is one of a folder of runs."""
    own = checkpoint.directory
    if own is None or not (own.parent / RUNS).is_file():
        return []
    folders = [own.parent / Path(str(run["dir"])).name for run in load_runs(own.parent)["runs"]]
    return [load(folder, device=device).model for folder in folders if folder.name != own.name and folder.is_dir()]
