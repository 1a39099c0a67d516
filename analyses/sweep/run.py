"""Running a sweep: what is missing is claimed, worked on, and kept, whatever happens on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from headlab.analyses.sweep.configuration import Unit
from headlab.analyses.sweep.engines import Engine, WorkersLost
from headlab.analyses.sweep.pilot import Cost, duration, estimate
from headlab.analyses.sweep.store import Row, Store, line_of
from headlab.analyses.sweep.work import Worked, work
from headlab.analyses.tasks import task_entry

KILLED = "WorkerKilled: its worker process died, alone as well; most often the memory was not enough"
WAIT = 0.5  # seconds between looks at what other sweeps of the folder have finished


@dataclass(frozen=True)
class Outcome:
    """What this process did. written: its new runs. cost: predicted, None where nothing was to do. seconds, wall: what
    it took, of all cores together and by the clock. factor: seconds by what was predicted for the same units.
    """

    written: int
    cost: Cost | None
    seconds: float
    wall: float
    factor: float | None

    def to_json(self) -> dict[str, Any]:
        """Prediction and what came of it."""
        actual = {"core_hours": self.seconds / 3600, "wall_seconds": self.wall}
        predicted = None if self.cost is None else self.cost.to_json()
        return {"predicted": predicted, "actual": actual, "factor": self.factor}


def sweep(
    units: Sequence[Unit],
    store: Store,
    engine: Engine,
    *,
    device: str = "cpu",
    say: Callable[[str], None] = lambda sentence: None,
    progress: Callable[[int, int, float, float], None] | None = None,
) -> Outcome:
    """Do what is missing of `units`; return when all of it is in the store, done by this process or another one.

    say: takes sentences for a reader. progress(runs done, runs, cost done, cost). Raises RuntimeError where the store
    cannot be written; what was finished is kept.
    """
    asked = [unit for unit in units if store.missing(unit)]
    if not asked:
        return Outcome(0, None, 0.0, 0.0, None)
    cost = _pilot(asked, store, engine, device, say)
    wanted = sum(len(store.missing(unit)) for unit in asked)
    began, seconds, expected, written = time.perf_counter(), 0.0, 0.0, 0
    for found in _all(asked, store, engine, device, say):
        new = store.add(found.unit, rows_of(found, engine.name, device))
        written += len(new)
        seconds += found.cpu
        expected += cost.units.get(found.unit.key, 0.0)
        if progress:
            progress(written, wanted, expected, cost.seconds)
    wall = time.perf_counter() - began
    outcome = Outcome(written, cost, seconds, wall, seconds / expected if expected else None)
    when = datetime.now(UTC).isoformat(timespec="seconds")
    store.note("cost", {"when": when, "engine": engine.name, "workers": engine.workers, **outcome.to_json()})
    if outcome.factor is not None:
        say(
            f"took {duration(wall)} and {seconds / 3600:.2g} core-hours, "
            f"{outcome.factor:.2f} times what was predicted for it"
        )
    return outcome


def _pilot(asked: Sequence[Unit], store: Store, engine: Engine, device: str, say: Callable[[str], None]) -> Cost:
    example = Worked(
        asked[0], measured={asked[0].seeds[0]: {"error": 0.123456789, "success": True, "steps_done": 1000}}
    )
    size = len(line_of(rows_of(example, engine.name, device)[0])) + 150
    try:
        cost = estimate(engine, asked, device=device, row_bytes=size)
    except WorkersLost as error:
        say(f"a worker died in the pilot ({error}): this sweep starts without a prediction")
        return Cost(0.0, 0.0, 0, 0, 0.0, {unit.key: 0.0 for unit in asked})
    say(cost.sentence(sum(len(store.missing(unit)) for unit in asked), engine.workers))
    return cost


def _all(
    asked: Sequence[Unit], store: Store, engine: Engine, device: str, say: Callable[[str], None]
) -> Iterator[Worked]:
    """Units as they are finished here, until none is missing; those that others hold are waited for."""
    waiting = False
    while True:
        store.refresh()
        left = [unit for unit in asked if store.missing(unit)]
        if not left:
            return
        tasks = _Tasks(left, store, device, engine.parent)
        if tasks.first is None:
            if not waiting:
                say(f"another sweep of this folder works on the {len(left)} units that are left: waiting for it")
            waiting = True
            time.sleep(WAIT)
            continue
        try:
            yield from engine.results(work, tasks)
        except WorkersLost as error:
            lost = [unit for unit in left if store.missing(unit) and store.held(unit)]
            say(f"a worker died ({str(error)[:200]}): its units are tried again, each alone")
            for unit in lost:
                try:
                    yield engine.apart(work, unit, device, engine.parent)
                except WorkersLost:
                    yield Worked(unit, failed=dict.fromkeys(unit.seeds, KILLED))
        if tasks.trouble is not None:
            raise tasks.trouble


class _Tasks:
    """Units that this process gets hold of, claimed when a worker is free for them.

    joblib draws from here in threads of its own, where an error would be lost: it ends the tasks and is kept in
    `trouble`.
    """

    def __init__(self, units: Sequence[Unit], store: Store, device: str, parent: int | None) -> None:
        self.store, self.rest = store, (device, parent)
        self.trouble: Exception | None = None
        self.units = iter(units)
        self.first = self._next()

    def _next(self) -> Unit | None:
        return next((unit for unit in self.units if self.store.claim(unit)), None)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        unit = self.first
        while unit is not None:
            yield (unit, *self.rest)
            try:
                unit = self._next()
            except Exception as error:
                self.trouble = error
                return


def rows_of(found: Worked, engine: str, device: str) -> list[Row]:
    """The lines of a unit's runs. A figure that is not finite is an error."""
    configuration = found.unit.configuration
    shared = {
        "task": configuration.task,
        "options": dict(configuration.options),
        "content": dict(configuration.content),
        "result_version": task_entry(configuration.task).result_version,
        "seconds": found.cpu / len(found.unit.seeds),
        "together": len(found.unit.seeds),
        "engine": engine,
        "host": found.host,
        "device": device,
        "versions": dict(found.versions),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    rows = []
    for seed, key in zip(found.unit.seeds, found.unit.run_keys, strict=True):
        measured, error = found.measured.get(seed), found.failed.get(seed)
        odd = [name for name, value in (measured or {}).items() if isinstance(value, float) and not isfinite(value)]
        if odd:
            measured, error = None, f"ValueError: {odd[0]} is not finite"
        if measured is not None or error is not None:
            rows.append({"key": key, "seed": seed, "measured": measured, "error": error, **shared})
    return rows


def failures(units: Sequence[Unit], store: Store) -> list[Row]:
    """The rows of these units' runs that failed."""
    keys = [key for unit in units for key in unit.run_keys]
    return [store.rows[key] for key in keys if store.rows.get(key, {}).get("error") is not None]
