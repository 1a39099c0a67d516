"""Requirements and whether they were met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Bar:
    """One requirement. measured: the figure that is held against it; met: whether it was reached."""

    what: str
    bar: str
    measured: float
    met: bool
    note: str = ""


def least(what: str, bar: float, values: Sequence[float], note: str = "") -> Bar:
    """At least `bar`, held against the lowest value."""
    lowest = float(min(values))
    return Bar(what, f"at least {bar:g}", lowest, lowest >= bar, note)


def most(what: str, bar: float, values: Sequence[float], note: str = "") -> Bar:
    """At most `bar`, held against the highest value."""
    highest = float(max(values))
    return Bar(what, f"at most {bar:g}", highest, highest <= bar, note)


def median_least(what: str, bar: float, values: Sequence[float]) -> Bar:
    """At least `bar`, held against the median; the note has the lowest value."""
    middle = float(np.median(values))
    return Bar(what, f"median at least {bar:g}", middle, middle >= bar, f"lowest of {len(values)}: {min(values):.4f}")


def median_most(what: str, bar: float, values: Sequence[float]) -> Bar:
    """At most `bar`, held against the median; the note has the highest value, and how many are above."""
    middle = float(np.median(values))
    above = sum(value > bar for value in values)
    note = f"highest of {len(values)}: {max(values):.3f}; {above} above {bar:g}"
    return Bar(what, f"median at most {bar:g}", middle, middle <= bar, note)
