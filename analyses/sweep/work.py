"""What a worker does: train a unit, time a unit. Errors become results; one thread of linear algebra a worker."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

from headlab.analyses.sweep.configuration import Configuration, Unit

ENOUGH = 0.6  # CPU seconds of steps after which a pilot knows what one costs
ENOUGH_TO_END = 4.0  # where it has to see whether a training ends early


@dataclass(frozen=True)
class Worked:
    """What came of a unit. measured: seed -> figures; failed: seed -> the error. cpu, wall: seconds of all seeds."""

    unit: Unit
    measured: dict[int, dict[str, Any]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    cpu: float = 0.0
    wall: float = 0.0
    host: str = ""
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Timed:
    """What a unit would cost, in CPU seconds. ratio: wall time by CPU time while timing. sure: False where the training
    may end early and the pilot did not see whether it does.
    """

    seconds: float
    spent: float
    ratio: float
    sure: bool


def work(unit: Unit, device: str, parent: int | None) -> Worked:
    """Train a unit's seeds together. Where that fails, they are halved until the seeds that fail stand alone.

    parent: the process without which the work is of no use; None on a cluster.
    """
    with _alone(parent):
        training = None
        measured: dict[int, dict[str, Any]] = {}
        failed: dict[int, str] = {}
        cpu, wall = time.thread_time(), time.perf_counter()
        try:
            training = _prepare(unit.configuration, device)
        except Exception as error:
            failed = dict.fromkeys(unit.seeds, _told(error))
        else:
            cpu, wall = time.thread_time(), time.perf_counter()
            _train(training, unit.seeds, measured, failed)
        return Worked(
            unit,
            measured,
            failed,
            time.thread_time() - cpu,
            time.perf_counter() - wall,
            platform.node(),
            _versions(),
        )


def _train(training: Any, seeds: Sequence[int], measured: dict[int, Any], failed: dict[int, str]) -> None:
    try:
        measured |= dict(zip(seeds, training.run(seeds, None, None), strict=True))
    except Exception as error:
        if len(seeds) == 1:
            failed[seeds[0]] = _told(error)
            return
        half = len(seeds) // 2
        _train(training, seeds[:half], measured, failed)
        _train(training, seeds[half:], measured, failed)


def describe(
    number: int, configurations: Sequence[Configuration], device: str, parent: int | None
) -> tuple[int, list[float | None]]:
    """`number`, and the nominal work per seed of each; None where the configuration is refused."""
    with _alone(parent):
        works: list[float | None] = []
        for configuration in configurations:
            try:
                works.append(max(1.0, _prepare(configuration, device).work))
            except Exception:
                works.append(None)
        return number, works


def measure(unit: Unit, device: str, parent: int | None) -> tuple[Unit, Timed | None]:
    """The unit, and what it costs, from a few of its steps (or seeds) drawn out to all; None where it fails."""
    with _alone(parent):
        try:
            training = _prepare(unit.configuration, device)
            cpu, wall = time.thread_time(), time.perf_counter()
            seconds, ended = (_by_seeds if training.steps is None else _by_steps)(training, unit.seeds)
        except Exception:
            return unit, None
        spent, wall = time.thread_time() - cpu, time.perf_counter() - wall
        return unit, Timed(seconds, spent, max(1.0, wall / max(spent, 1e-9)), ended or not training.stops)


def _by_seeds(training: Any, seeds: Sequence[int]) -> tuple[float, bool]:
    """All seeds where that is soon done; else what the last few more seeds cost, for the rest."""
    training.run(seeds[:1], None, None)  # the first run of a process pays for what later ones find ready
    count, taken = 1, [(0, 0.0)]
    while True:
        start = time.thread_time()
        training.run(seeds[:count], None, None)
        taken.append((count, time.thread_time() - start))
        if count == len(seeds) or taken[-1][1] > 2 * ENOUGH:
            (before, less), (_, seconds) = taken[-2:]
            each = max(seconds - less, 0.0) / (count - before)
            return seconds + each * (len(seeds) - count), True
        count = min(len(seeds), 4 * count)


def _by_steps(training: Any, seeds: Sequence[int]) -> tuple[float, bool]:
    """A whole training where it ends soon; else what comes before and after the steps, and a typical step times all."""
    start = time.thread_time()
    training.run(seeds, min(2, training.steps), None)
    around = time.thread_time() - start
    meter = _Meter(ENOUGH_TO_END if training.stops else ENOUGH)
    start = time.thread_time()
    try:
        training.run(seeds, None, meter)
    except _Enough:
        return around + meter.rest(training.records), False
    return time.thread_time() - start, True


class _Enough(Exception):
    """The pilot knows what it wanted to know."""


class _Meter:
    """Takes the CPU time of every step, and stops the training after `budget` seconds of them."""

    def __init__(self, budget: float) -> None:
        self.budget, self.total = budget, 0
        self.times: list[float] = []

    def __call__(self, step: int, total: int) -> None:
        self.total = total
        self.times.append(time.thread_time())
        if len(self.times) > 3 and self.times[-1] - self.times[0] > self.budget:
            raise _Enough

    def rest(self, records: int) -> float:
        """Seconds of all steps: the median one, and for those that measure as well what these took beyond it."""
        steps = sorted(after - before for before, after in pairwise(self.times))
        typical = steps[len(steps) // 2]
        beyond = [step - typical for step in steps if step > 1.5 * typical]
        measuring = sum(beyond) / len(beyond) if beyond else 0.0
        return self.total * typical + min(records, self.total) * measuring


def _prepare(configuration: Configuration, device: str) -> Any:
    import torch

    from headlab.analyses.sweep.trainings import prepare

    torch.set_num_threads(1)
    return prepare(configuration, device)


def _told(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


class _alone:
    """One thread of linear algebra; and, on this machine, no life after the process that asked."""

    def __init__(self, parent: int | None) -> None:
        self.parent = parent

    def __enter__(self) -> None:
        from threadpoolctl import threadpool_limits

        if self.parent is not None and self.parent != os.getpid():
            _die_with(self.parent)
        self.limits = threadpool_limits(1)

    def __exit__(self, *error: object) -> None:
        self.limits.restore_original_limits()


@cache
def _die_with(parent: int) -> None:
    """End this worker once its parent is gone: what it works on would reach nobody. One watch per process."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="watch of the sweep").start()


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("headlab", "torch")}
