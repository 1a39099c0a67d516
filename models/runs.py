"""A folder of runs: what was requested, the state of a training under way, a checkpoint a seed, and which is best.

Every task trains into one of these, so that all of them keep, resume and refuse alike.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.models import bundle
from headlab.models.checkpoints import (
    RUNS,
    Checkpoint,
    TrainingState,
    load_runs,
    load_training,
    save,
    save_runs,
    save_training,
)

REQUEST, STATES = "request.json", "training"
SAVE_EVERY = 20.0  # seconds between two saved states, so that saving costs little


@dataclass(frozen=True)
class SeedResult:
    """One seed's outcome.

    Args:
        checkpoint: Its final model, with its seed.
        row: Its figures in `runs.json`, JSON-ready; `seed` and `dir` are added.
        weights: Recorded step -> the model's weights at that step.
    """

    checkpoint: Checkpoint
    row: Mapping[str, Any]
    weights: Mapping[int, Mapping[str, Tensor]] = field(default_factory=dict)


class RunFolder:
    """The folder of one request: opened before a training, finished with its results.

    Args:
        out: The folder.
        request: Everything that decides the result, JSON-ready: task, architecture, recipe, seeds, data.
        resume: Go on from the state in the folder, or take its finished runs as they are. Otherwise begin anew.

    Raises:
        RequestError: No seeds; the folder cannot be written, or is resumed and holds the runs of another request.
    """

    def __init__(self, out: str | Path, request: Mapping[str, Any], *, resume: bool = False) -> None:
        self.out, self.request = Path(out), bundle.plain(request)
        self.results: dict[str, Any] | None = None  # of `runs.json`, where the runs are finished
        if resume:
            self._require_same_request()
            if (self.out / RUNS).is_file():
                runs = load_runs(self.out)
                if runs.get("request") == self.request:
                    self.results = runs
                    return
        if not self.request["seeds"]:
            raise RequestError("no seeds: train at least 1")
        bundle.require_writable(self.states())
        bundle.require_writable(self.out / f"seed-{self.request['seeds'][0]}")
        self._resume = resume
        self._begun = False  # nothing is written, and no earlier state removed, before there is a state to save

    def _require_same_request(self) -> None:
        """Raise RequestError, naming the first difference, where the folder was begun with another request."""
        for name, kind in ((REQUEST, "request"), (RUNS, "runs")):
            if (self.out / name).is_file():
                earlier = bundle.read(self.out, kind, name=name).get("request") or {}
                break
        else:
            return
        for key in [*self.request, *earlier]:
            one, other = earlier.get(key), self.request.get(key)
            if one != other:
                change = f"{key} was {one}, not {other}" if len(f"{one}{other}") < 100 else f"its {key} differs"
                raise RequestError(
                    f"'{self.out}' holds the runs of another request ({change}): "
                    "choose another folder, or train without resume"
                )

    def states(self, name: str = "state") -> Path:
        """The folder of the training state `name`, of those seeds that train together."""
        return self.out / STATES / name

    def state(self, name: str = "state") -> TrainingState | None:
        """The state that the training was interrupted in; None where there is none, or it begins anew."""
        return load_training(self.states(name)) if self._resume and self.states(name).is_dir() else None

    def save_state(self, state: TrainingState, name: str = "state") -> None:
        """Save a training state under `name`, with the request that it belongs to."""
        if not self._begun:
            if not self._resume:
                self._remove_states()
            content = {"format": bundle.FORMAT, "kind": "request", "request": self.request}
            bundle.write_json(self.out / REQUEST, content)
            self._begun = True
        save_training(self.states(name), state)

    def on_record(self, name: str = "state") -> Callable[[int, Callable[[], TrainingState]], None]:
        """A callback for `headlab.models.training.fit` that saves the state now and then."""
        last = time.monotonic()

        def save_state(step: int, state: Callable[[], TrainingState]) -> None:
            nonlocal last
            if time.monotonic() - last >= SAVE_EVERY:
                self.save_state(state(), name)
                last = time.monotonic()

        return save_state

    def finish(
        self, results: Sequence[SeedResult], *, best: Callable[[Mapping[str, Any]], Any], heads: int, **more: Any
    ) -> dict[str, Any]:
        """Write a checkpoint a seed and `runs.json`, which is returned; the training state is removed.

        Args:
            results: One a seed.
            best: Sort key of a row of `runs.json`: the smallest is the best, of equal ones the first.
            heads: Attention heads a layer.
            more: Further entries of `runs.json`.
        """
        runs = write_runs(self.out, results, best=best, heads=heads, request=self.request, **more)
        self._remove_states()
        (self.out / REQUEST).unlink(missing_ok=True)  # `runs.json` holds it
        return runs

    def _remove_states(self) -> None:
        """Remove training states, and nothing else that a folder of this name may hold."""
        for manifest in (self.out / STATES).glob(f"*/{bundle.MANIFEST}"):
            shutil.rmtree(manifest.parent)
        if (self.out / STATES).is_dir() and not any((self.out / STATES).iterdir()):
            (self.out / STATES).rmdir()


def write_runs(
    out: Path, results: Sequence[SeedResult], *, best: Callable[[Mapping[str, Any]], Any], heads: int, **more: Any
) -> dict[str, Any]:
    """As `RunFolder.finish`, for models that are no end of a request: those between the stages of a curriculum."""
    rows = []
    for each in results:
        name = f"seed-{each.checkpoint.seed}"
        save(out / name, each.checkpoint, weights=each.weights)
        rows.append({"seed": each.checkpoint.seed, "dir": name, **each.row})
    task = results[0].checkpoint.task
    save_runs(out, rows, min(rows, key=best)["dir"], task=task, heads=heads, **more)
    return load_runs(out)
