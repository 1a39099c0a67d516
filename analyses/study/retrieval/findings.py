"""All that the retrieval study has found, before anything is judged or drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from headlab.analyses.head_count import HeadCount
from headlab.analyses.study.retrieval.records import Built, FourMax, Look, Memory, Pair, Trained
from headlab.interp.statistics import Chance, Estimate, median


@dataclass(frozen=True)
class Findings:
    """What was measured. Jobs that a quick study leaves out are missing from `trained`.

    untrained: length -> specialisation of untrained models with as many heads as coordinates. readings: the number of
    coordinates read off the table of a kind, (kind, coordinates) -> answer. controls: the same of tables in which the
    answer is known beforehand, label -> (answer expected, answer).
    """

    trained: Mapping[str, Trained]
    built: Sequence[Built]
    four: Sequence[FourMax]
    memory: Sequence[Memory]
    pairs: Sequence[Pair]
    looks: Mapping[str, Sequence[Look]]
    untrained: Mapping[int, Chance]
    readings: Mapping[tuple[str, int], HeadCount]
    controls: Mapping[str, tuple[int | None, HeadCount]]
    command: str
    quick: bool
    seeds: int
    seconds: Mapping[str, float] = field(default_factory=dict)

    def cells(self, kind: str, coordinates: int) -> dict[tuple[int, int], Trained]:
        """(heads, length) -> the job of that table."""
        return {
            (made.job.heads, made.job.length): made
            for made in self.trained.values()
            if (made.job.kind, made.job.coordinates) == (kind, coordinates)
        }

    def error(self, kind: str, coordinates: int, length: int, heads: int) -> float | None:
        """The smallest NMSE over seeds, None where the cell was not trained."""
        made = self.cells(kind, coordinates).get((heads, length))
        return None if made is None else float(made.errors.min())

    def tables(self, kind: str) -> list[int]:
        """The numbers of coordinates for which there is a table of this kind, ascending."""
        return sorted({made.job.coordinates for made in self.trained.values() if made.job.kind == kind})

    def scores(self, name: str) -> np.ndarray:
        """The specialisation of each model of a job."""
        return np.array([look.specialisation for look in self.looks[name]])

    def alignment(self, begins: str, heads: int) -> Estimate:
        """The median alignment of heads with coordinates, with its interval, of all models with so many heads."""
        looks = [look for name in self.looks if name.startswith(begins) for look in self.looks[name]]
        return median([look.alignment.alignment for look in looks if look.job.heads == heads])

    def shuffled(self) -> float:
        """What 95 % of alignments with shuffled targets stay below, the largest of any model."""
        looks = [look for name in self.looks for look in self.looks[name]]
        return max(look.alignment.chance.p95 for look in looks if look.alignment.chance is not None)


def error_table(trained: Mapping[str, Trained], kind: str, coordinates: int) -> pd.DataFrame:
    """The table of one kind: columns heads, length, seed, error; one row a seed."""
    rows = [
        {"heads": made.job.heads, "length": made.job.length, "seed": run.seed, "error": run.nmse}
        for made in trained.values()
        if (made.job.kind, made.job.coordinates) == (kind, coordinates)
        for run in made.runs
    ]
    return pd.DataFrame(rows, columns=["heads", "length", "seed", "error"])
