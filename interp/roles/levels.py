"""The chance level of the specialisation score: the hardest of several sources of models that divide nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headlab.interp import statistics
from headlab.interp.errors import RequestError
from headlab.interp.model import HookedModel
from headlab.interp.roles.role import Role
from headlab.interp.roles.specialisation import score

Models = Callable[[int], HookedModel] | Sequence[HookedModel]


@dataclass(frozen=True)
class ScoreChance(statistics.Chance):
    """What the score reads where no work is divided.

    Args:
        median, p95, count, values: Of the hardest source, the one with the largest 95th percentile.
        source: Its name.
        by_source: The same of every source.
    """

    source: str
    by_source: Mapping[str, statistics.Chance]

    @property
    def max(self) -> float:
        """The largest value of the hardest source."""
        return max(self.values)

    def to_dict(self) -> dict[str, Any]:
        """`median`, `p95`, `max`, `seeds`, `source`, and the figures of every source in `sources`."""
        each = {
            name: {"median": level.median, "p95": level.p95, "max": max(level.values), "seeds": level.count}
            for name, level in self.by_source.items()
        }
        return {**each[self.source], "source": self.source, "sources": each}


def chance(
    models: Models | Mapping[str, Models], roles: Sequence[Role], *, seeds: int | Sequence[int] = 64
) -> ScoreChance:
    """The specialisation (with one role, the coverage) of models that divide nothing, by the hardest source.

    Args:
        models: Where the models come from, or several sources by name: a function of the seed, or the models
            themselves. One unnamed source is called `untrained`.
        roles: As for `score`.
        seeds: Seeds for the functions, or how many from 0.

    Raises:
        RequestError: For no source, and for a source without models.
    """
    sources = models if isinstance(models, Mapping) else {"untrained": models}
    listed = range(seeds) if isinstance(seeds, int) else seeds
    levels: dict[str, statistics.Chance] = {}
    for name, source in sources.items():
        drawn: Iterable[Any] = map(source, listed) if callable(source) else source
        values = [score(model, roles).value for model in drawn]
        if not values:
            raise RequestError(f"the chance level needs at least one model from '{name}'")
        levels[name] = statistics.chance(values)
    if not levels:
        raise RequestError("the chance level needs at least one source of models")
    hardest = max(levels, key=lambda name: (levels[name].p95, max(levels[name].values)))
    found = levels[hardest]
    return ScoreChance(found.median, found.p95, found.count, found.values, hardest, levels)
