"""Cells that were trained: one JSON file each, whole or not at all, so that a study goes on where it stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headlab.analyses.study.folder import write_file
from headlab.analyses.study.retrieval.real.plans import Cell, Plan
from headlab.interp.errors import RequestError
from headlab.models.classifier.learner import Data, EncoderLearner
from headlab.models.hooked import DTYPES
from headlab.models.training import fit

FORMAT = 1
RESULTS = ("accuracy", "held_accuracy", "rank", "held_rank")


@dataclass(frozen=True)
class Measured:
    """One cell after training. accuracy, rank (mean reciprocal rank): over the training sequences, one per seed; held_:
    over those held out. parameters: of one model. seconds: CPU time of all seeds together."""

    cell: Cell
    seeds: tuple[int, ...]
    accuracy: tuple[float, ...]
    held_accuracy: tuple[float, ...]
    rank: tuple[float, ...]
    held_rank: tuple[float, ...]
    parameters: int
    seconds: float


def train_cell(
    cell: Cell, plan: Plan, data: Data, *, classes: int, seeds: Sequence[int], device: str = "cpu"
) -> Measured:
    """Train one cell's seeds together and measure each on all training and all held sequences."""
    began = time.process_time()
    design = cell.architecture(features=data.train.shape[2], classes=classes, layers=plan.layers)
    learner = EncoderLearner(
        design, data, seeds=seeds, batch=plan.batch, device=device, precision=DTYPES[plan.precision]
    )
    last = fit(learner, plan.recipe(cell)).history[-1]
    parameters = sum(leaf[0].numel() for leaf in learner.parameters().values())
    found = {name: tuple(float(value) for value in last[name]) for name in RESULTS}
    return Measured(cell, tuple(seeds), **found, parameters=parameters, seconds=time.process_time() - began)


def keep(folder: Path, measured: Measured, plan: Plan, source: Mapping[str, Any]) -> Path:
    """Write a cell to `folder`; source: what the data are, JSON-ready."""
    path = folder / f"{measured.cell.name}.json"
    kept = {"format": FORMAT, "settings": plan.settings(), "source": dict(source), **asdict(measured)}
    write_file(path, json.dumps(kept, indent=1).encode())
    return path


def kept(folder: Path, cell: Cell, plan: Plan, source: Mapping[str, Any], *, seeds: Sequence[int]) -> Measured | None:
    """A cell that `folder` holds, or None where it has none made of these data, settings and seeds.

    Raises ValueError for a file that is no such cell.
    """
    path = folder / f"{cell.name}.json"
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        same = (data["format"], data["settings"], data["source"], data["seeds"]) == (
            FORMAT,
            plan.settings(),
            json.loads(json.dumps(dict(source))),
            list(seeds),
        )
        if not same:
            return None
        found = {name: tuple(data[name]) for name in RESULTS}
        return Measured(cell, tuple(seeds), **found, parameters=data["parameters"], seconds=data["seconds"])
    except (ValueError, KeyError, TypeError):
        raise RequestError(f"'{path}' is no cell of a head-count study: delete it to measure it again") from None
