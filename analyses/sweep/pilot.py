"""What a sweep will cost, from a few units timed on the workers that will do it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headlab.analyses.sweep.configuration import Unit
from headlab.analyses.sweep.engines import Engine
from headlab.analyses.sweep.work import Timed, describe, measure

MOST_DESCRIBED = 512
STRATA = 3


@dataclass(frozen=True)
class Cost:
    """A prediction. seconds: of all cores together. wall: at the workers at hand, as busy as they were in the pilot.

    bytes: of the results. units: key -> seconds of one unit. timed, spent: how many units the pilot timed, and its own
    seconds of all cores.
    """

    seconds: float
    wall: float
    bytes: int
    timed: int
    spent: float
    units: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The figures of the whole, JSON-ready."""
        return {
            "core_hours": self.seconds / 3600,
            "wall_seconds": self.wall,
            "bytes": self.bytes,
            "timed": self.timed,
            "pilot_core_hours": self.spent / 3600,
        }

    def sentence(self, runs: int, workers: int) -> str:
        """What it will cost, for a reader."""
        return (
            f"{runs} runs: about {duration(self.wall)} on {workers} worker{'s' if workers > 1 else ''}, "
            f"{self.seconds / 3600:.2g} core-hours, {self.bytes / 1e6:.2g} MB "
            f"(a pilot timed {self.timed} of {len(self.units)} units, {self.spent:.1f} s)"
        )


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def estimate(engine: Engine, units: Sequence[Unit], *, device: str, row_bytes: int) -> Cost:
    """Time units of every kind on the engine's own workers, and draw the figures out by nominal work.

    Units of one task and number of heads, of about the same share of the work each, stand for one another. Raises
    WorkersLost where a worker dies.
    """
    works = _works(engine, units, device)
    strata = _strata(units, works)
    chosen = [_middle(stratum, works) for stratum in strata]
    by_key: dict[str, Timed | None] = {}
    for unit, timed in engine.results(measure, [(unit, device, engine.parent) for unit in chosen]):
        by_key[unit.key] = timed
    seconds: dict[str, float] = dict.fromkeys((unit.key for unit in units), 0.0)
    early = _early(chosen, by_key, works)
    for stratum, unit in zip(strata, chosen, strict=True):
        timed = by_key[unit.key]
        if timed is not None:
            whole = timed.seconds * (1.0 if timed.sure else early.get(_kind(unit), 1.0))
            seconds |= {each.key: whole * works[each.key] / works[unit.key] for each in stratum}
    known = [timed for timed in by_key.values() if timed is not None]
    spent = float(sum(timed.spent for timed in known))
    busy = sum(timed.spent * timed.ratio for timed in known) / spent if spent else 1.0
    total = float(sum(seconds.values()))
    wall = max(total / engine.workers, max(seconds.values(), default=0.0)) * busy
    runs = sum(len(unit.seeds) for unit in units)
    return Cost(total, wall, runs * row_bytes, len(chosen), spent, seconds)


def _early(
    chosen: Sequence[Unit], by_key: Mapping[str, Timed | None], works: Mapping[str, float]
) -> dict[tuple[Any, ...], float]:
    """By kind, the share of their full cost that trainings take which end early: what those that were seen to end took
    for their work, by what was expected of those that were not. 1 where there are not both.
    """
    rates: dict[tuple[Any, ...], dict[bool, list[float]]] = {}
    for unit in chosen:
        timed = by_key[unit.key]
        if timed is not None:
            by_kind = rates.setdefault(_kind(unit), {True: [], False: []})
            by_kind[timed.sure].append(timed.seconds / works[unit.key])
    return {
        kind: min(1.0, (sum(each[True]) / len(each[True])) / (sum(each[False]) / len(each[False])))
        for kind, each in rates.items()
        if each[True] and each[False]
    }


def _works(engine: Engine, units: Sequence[Unit], device: str) -> dict[str, float]:
    """Nominal work of each unit; 0 where it is refused. Beyond MOST_DESCRIBED units an even sample stands for all."""
    step = -(-len(units) // MOST_DESCRIBED)
    asked = units[::step]
    share = -(-len(asked) // engine.workers)
    parts = [asked[at : at + share] for at in range(0, len(asked), share)]
    tasks = [(i, [unit.configuration for unit in part], device, engine.parent) for i, part in enumerate(parts)]
    by_key: dict[str, float] = {}
    for number, described in engine.results(describe, tasks):
        for unit, one in zip(parts[number], described, strict=True):
            by_key[unit.key] = 0.0 if one is None else one * len(unit.seeds)
    return {unit.key: by_key[units[i - i % step].key] for i, unit in enumerate(units)}


def _kind(unit: Unit) -> tuple[Any, ...]:
    return (unit.configuration.task, unit.configuration.options.get("heads"))


def _strata(units: Sequence[Unit], works: Mapping[str, float]) -> list[list[Unit]]:
    """Units that stand for one another, in few enough groups that the pilot stays a small part of the sweep."""
    real = [unit for unit in units if works[unit.key] > 0]
    most = max(1, len(real) // 4)
    groups: dict[tuple[Any, ...], list[Unit]] = {}
    for unit in real:
        groups.setdefault(_kind(unit), []).append(unit)
    if len(groups) > max(3, most):
        groups = {}
        for unit in real:
            groups.setdefault((unit.configuration.task,), []).append(unit)
    strata: list[list[Unit]] = []
    for group in groups.values():
        ordered = sorted(group, key=lambda unit: works[unit.key])
        total, seen = sum(works[unit.key] for unit in ordered), 0.0
        parts = max(1, min(STRATA, most // len(groups)))
        cut: dict[int, list[Unit]] = {}
        for unit in ordered:
            cut.setdefault(min(parts - 1, int(parts * seen / total)), []).append(unit)
            seen += works[unit.key]
        strata += cut.values()
    return strata


def _middle(stratum: Sequence[Unit], works: Mapping[str, float]) -> Unit:
    mean = sum(works[unit.key] for unit in stratum) / len(stratum)
    return min(stratum, key=lambda unit: abs(works[unit.key] - mean))
