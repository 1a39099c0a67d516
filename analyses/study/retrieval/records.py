"""What the retrieval study holds of each training and each model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headlab.analyses.study.retrieval.plans import Job
from headlab.interp.alignment import Alignment
from headlab.interp.roles import Specialisation
from headlab.interp.statistics import Share, share
from headlab.models.checkpoints import Checkpoint, load


@dataclass(frozen=True)
class Run:
    """One trained model. way: how it was trained. nmse: on the sequences that chose its step; fresh: on others."""

    way: str
    seed: int
    nmse: float
    fresh: float
    steps: int
    stuck: bool
    directory: Path

    def load(self) -> Checkpoint:
        """The checkpoint, from its folder."""
        return load(self.directory)


@dataclass(frozen=True)
class Trained:
    """The seeds of one job, in every way."""

    job: Job
    runs: tuple[Run, ...]

    @property
    def errors(self) -> np.ndarray:
        """NMSE per seed."""
        return np.array([run.nmse for run in self.runs])

    @property
    def last(self) -> tuple[Run, ...]:
        """The runs of the job's last way, the one in which fewest seeds are stuck."""
        return tuple(run for run in self.runs if run.way == self.job.ways[-1].name)

    @property
    def best(self) -> Run:
        """The run with the smallest error."""
        return min(self.runs, key=lambda run: run.nmse)

    @property
    def stuck(self) -> Share:
        """The share of seeds whose error stayed at 1e-3 or above, with its exact interval."""
        return share(sum(run.stuck for run in self.runs), len(self.runs))


@dataclass(frozen=True)
class Built:
    """Random targets of one size under the construction with a head per coordinate, float64.

    size: |S_i| of every coordinate. bound: the smallest of the bounds. used: the largest error over its own bound.
    violations: models with an error above their bound.
    """

    coordinates: int
    size: int
    beta: float
    models: int
    sequences: int
    bound: float
    used: float
    violations: int


@dataclass(frozen=True)
class FourMax:
    """The sum of four maxima under the construction. usage: the lowest over coordinates of a head's own."""

    length: int
    beta: float
    nmse: float
    max_error: float
    bound: float
    usage: float
    attention: float


@dataclass(frozen=True)
class Memory:
    """The construction that memorises, float64. parameters: weights of its network that are not 0."""

    length: int
    max_error: float
    parameters: int
    depth: int
    sequences: int


@dataclass(frozen=True)
class Pair:
    """The two sequences that a model can hardly tell apart (see models.retrieval.witness), and whose model it is.

    kind: `linear`, `mlp` or `constructed`. apart: |H1 - H2|, told: |f1 - f2|, in standard deviations of the target.
    """

    kind: str
    coordinates: int
    length: int
    heads: int
    nmse: float
    distance: float
    apart: float
    told: float
    forced: float


@dataclass(frozen=True)
class Look:
    """One model under the instruments: who retrieves which coordinate."""

    job: Job
    seed: int
    nmse: float
    score: Specialisation
    alignment: Alignment

    @property
    def specialisation(self) -> float:
        """The design's score."""
        return self.score.coverage if self.score.specialisation is None else self.score.specialisation
