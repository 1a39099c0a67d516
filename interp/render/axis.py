"""An axis: from values to pixels, with ticks and the words beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, SupportsFloat

from headlab.interp.errors import RequestError
from headlab.interp.render.text import Real, Rich, number

Scale = Literal["linear", "log", "log1p"]


@dataclass(frozen=True)
class Axis:
    """How a quantity is laid out. What is left out is taken from the data.

    label: what it is, with its unit. domain: its two ends. ticks: where marks stand. format: how a tick is printed (a
    function of the value, or a list of texts as long as `ticks`). scale: `linear`, `log`, or `log1p` for steps from 0.
    """

    label: Rich = ""
    domain: tuple[SupportsFloat, SupportsFloat] | None = None
    ticks: Sequence[SupportsFloat] | None = None
    format: Callable[[float], str] | Sequence[str] | None = None
    scale: Scale = "linear"


@dataclass(frozen=True)
class Ruler:
    """An axis on the page: `low` lies at pixel `start`, `high` at pixel `end`."""

    low: Real
    high: Real
    start: Real
    end: Real
    scale: Scale
    ticks: tuple[tuple[Real, str], ...]

    def __call__(self, value: SupportsFloat) -> Real:
        """The pixel of a value, held inside the axis."""
        low, high = _bend(self.low, self.scale), _bend(self.high, self.scale)
        share = (_bend(max(float(value), self.low), self.scale) - low) / (high - low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)


def _bend(value: Real, scale: Scale) -> Real:
    if scale == "log":
        return math.log(value)
    return math.log1p(value) if scale == "log1p" else value


def ruler(axis: Axis, values: Iterable[SupportsFloat], start: Real, end: Real, *, most: int = 9) -> Ruler:
    """Lay `axis` out between two pixels. `most`: how many ticks may stand on it.

    Raises ValueError for a log axis with values that are not positive, and for an empty domain.
    """
    if axis.domain is not None:
        low, high = float(axis.domain[0]), float(axis.domain[1])
    else:
        finite = [float(value) for value in values if math.isfinite(float(value))]
        low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
        if low == high:
            low, high = (low / 2, high * 2) if axis.scale == "log" and low > 0 else (low - 0.5, high + 0.5)
        if axis.scale == "linear":
            step = _step(low, high, most)
            low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    if axis.scale == "log" and low <= 0:
        raise RequestError(f"a logarithmic axis needs positive values, and its lower end is {low}: use a linear axis")
    if axis.scale == "log1p" and low <= -1:
        raise RequestError(f"an axis of log(x + 1) begins above -1, and its lower end is {low}")
    if not low < high:
        raise RequestError(f"an axis from {low} to {high} has no length")
    places = [float(tick) for tick in axis.ticks] if axis.ticks is not None else _places(low, high, axis.scale, most)
    if axis.format is None:
        texts = [number(place) for place in places]
    elif callable(axis.format):
        texts = [axis.format(place) for place in places]
    else:
        texts = list(axis.format)
        if len(texts) != len(places):
            raise RequestError(f"an axis has {len(places)} ticks and {len(texts)} texts for them")
    inside = [(place, text) for place, text in zip(places, texts) if low - 1e-9 <= place <= high * (1 + 1e-9) + 1e-9]
    return Ruler(low, high, start, end, axis.scale, tuple(inside))


def _step(low: Real, high: Real, most: int) -> Real:
    rough = (high - low) / max(most - 1, 1)
    power = 10 ** math.floor(math.log10(rough))
    for factor in (1, 2, 2.5, 5, 10):
        if factor * power >= rough * (1 - 1e-9):
            return factor * power
    return 10 * power


def _places(low: Real, high: Real, scale: Scale, most: int) -> list[Real]:
    if scale == "linear":
        step = _step(low, high, most)
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        return [round(index * step, 12) for index in range(first, last + 1)]
    begin = low if scale == "log" else max(low, 1.0)
    decades = range(math.floor(math.log10(begin)), math.ceil(math.log10(max(high, begin * 1.0001))) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        places = [factor * 10.0**decade for decade in decades for factor in factors]
        places = [place for place in places if begin <= place <= high * (1 + 1e-9)]
        if len(places) < most:
            break
    stride = max(1, math.ceil(len(places) / most))
    return ([low] if scale == "log1p" and low < 1 else []) + places[::stride]
