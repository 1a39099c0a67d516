"""A confidence interval that carries the level that it has, and how a level is written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A confidence interval with the level that it has, not the one that was wished for.

    Args:
        low: its lower end, in the unit of the values.
        high: its upper end.
        level: the probability, in [0, 1], that such an interval holds the true figure (at least that, for tied values).
    """

    low: float
    high: float
    level: float

    def __iter__(self) -> Iterator[float]:
        """The two ends: `low, high = interval`."""
        return iter((self.low, self.high))

    @property
    def percent(self) -> str:
        """The level as text, rounded down to a tenth: '93.7 %'."""
        return show_level(self.level)

    def __str__(self) -> str:
        return f"{self.low:.3g} to {self.high:.3g} ({self.percent} interval)"


def show_level(level: float) -> str:
    """A level in [0, 1] as text, rounded down to a tenth of a per cent, so that it never promises too much."""
    return f"{math.floor(1000 * level + 1e-9) / 10:g} %"


def show_levels(intervals: Iterable[Interval | None]) -> str:
    """What a caption says of many intervals: '95 % intervals', '75 % to 96.8 % intervals', or 'no intervals'."""
    levels = [each.level for each in intervals if each is not None]
    if not levels:
        return "no intervals"
    low, high = show_level(min(levels)), show_level(max(levels))
    return f"{low} intervals" if low == high else f"{low} to {high} intervals"
