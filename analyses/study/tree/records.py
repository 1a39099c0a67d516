"""What the tree study holds of each training, each model and each table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headlab.analyses.study.tree.heads import Formation, TreeHeads
from headlab.models.checkpoints import Checkpoint, load


@dataclass(frozen=True)
class Run:
    """One trained model. paths, errors: held-out trees, and those with a wrong prediction."""

    seed: int
    paths: int
    errors: int
    path_accuracy: float
    token_accuracy: float
    loss: float
    directory: Path

    def load(self) -> Checkpoint:
        """The checkpoint, from its folder."""
        return load(self.directory)


@dataclass(frozen=True)
class Trained:
    """The seeds of one job."""

    name: str
    heads: int
    layers: int
    steps: int
    runs: tuple[Run, ...]

    @property
    def accuracy(self) -> np.ndarray:
        """Path accuracy per seed."""
        return np.array([run.path_accuracy for run in self.runs])

    @property
    def pooled(self) -> tuple[int, int]:
        """Right paths and paths, over all seeds."""
        return sum(run.paths - run.errors for run in self.runs), sum(run.paths for run in self.runs)


@dataclass(frozen=True)
class Look:
    """One model under the instruments.

    recovery: contrast -> (the right head's share of the gap when its z is patched at the query, the largest |share|
    of any other head there). off_query: the largest |share| of a patch anywhere else. diagonal: circuit -> the
    smallest share of rows, over the heads of its role, whose largest entry is the right one.
    """

    job: str
    seed: int
    heads: TreeHeads
    formation: Formation
    recovery: Mapping[str, tuple[float, float]]
    off_query: float
    diagonal: Mapping[str, float]

    @property
    def specialisation(self) -> float:
        """The design's score; with one role, its coverage."""
        found = self.heads.assignment.score
        return found.coverage if found.specialisation is None else found.specialisation


@dataclass(frozen=True)
class Built:
    """A construction on one kind of tree. generated, teacher_forced: right paths, token by token and in one pass."""

    shape: str
    depth: int
    labels: int
    width: int
    paths: int
    generated: int
    teacher_forced: int
    margin: float


@dataclass(frozen=True)
class Row:
    """Path accuracy of many models on one kind of tree. x: its depth, or a step."""

    x: float | int
    values: Sequence[float]
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready row."""
        return {"x": self.x, "values": list(self.values), "note": self.note}
