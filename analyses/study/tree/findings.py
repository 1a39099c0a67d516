"""All that the tree study has found, before anything is judged or drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from headlab.analyses.study.tree.measure import Unseen
from headlab.analyses.study.tree.records import Built, Look, Row, Trained


@dataclass(frozen=True)
class Findings:
    """What was measured. Jobs that a quick study leaves out are missing from `trained` and `looks`.

    untrained: specialisation of untrained models. length: accuracy by depth of the models trained at depth 5. plain:
    per seed of plain descent, role -> cosine with the construction. never: curriculum stage -> path accuracy per
    seed at depth 9 before it was trained on. guess: depth -> chance of a guessed path. generation: the benchmark's
    case.
    """

    constructed: Sequence[Built]
    trained: Mapping[str, Trained]
    looks: Mapping[str, Sequence[Look]]
    constructed_score: float
    untrained: Sequence[float]
    length: Sequence[Row]
    unseen: Sequence[Unseen]
    plain: Mapping[str, Sequence[Mapping[str, Mapping[str, float]]]]
    never: Mapping[int, Sequence[float]]
    taught: Mapping[int, Sequence[float]]
    generation: Mapping[str, object]
    guess: Mapping[int, float]
    command: str
    quick: bool
    seeds: int
    seconds: Mapping[str, float] = field(default_factory=dict)

    def depths(self, kind: str) -> list[int]:
        """The depths of the jobs called KIND-dDEPTH, ascending."""
        return sorted(int(name.rpartition("-d")[2]) for name in self.trained if name.rpartition("-d")[0] == kind)

    def jobs(self, kind: str) -> dict[int, Trained]:
        """depth -> the job called KIND-dDEPTH."""
        return {depth: self.trained[f"{kind}-d{depth}"] for depth in self.depths(kind)}

    def formed(self, kind: str) -> list[str | None]:
        """Which role formed first, for each model looked at whose job's name begins with `kind`."""
        return [look.formation.first for name, looks in self.looks.items() if name.startswith(kind) for look in looks]

    def scores(self, name: str) -> np.ndarray:
        """The specialisation of each model of a job."""
        return np.array([look.specialisation for look in self.looks[name]])
