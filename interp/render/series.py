"""One line of a chart: its numbers, whose it is, and how it is drawn with the range around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, SupportsFloat

import numpy as np

from headlab.interp.errors import RequestError
from headlab.interp.render.axis import Ruler
from headlab.interp.render.diverging import array
from headlab.interp.render.marks import dot
from headlab.interp.render.svg import Element, path, points
from headlab.interp.render.text import Real, Rich, coloured, plain
from headlab.interp.render.theme import Head, var
from headlab.interp.render.theme import heads as heads_of


@dataclass(frozen=True)
class Curve:
    """A line and the range around it.

    x, y: as many numbers each; low, high: the range, where there is one. NaN breaks the line. heads: whose it is
    (`"one"`, `"A"`, `("A", "B")` for the two-coloured line, `"ink"` or `"muted"` for what is no head). dash: dashed.
    fade: 0 .. 0.6, paler, for a family of lines in order. points: mark every value. label, note: stand at the curve's
    end.
    """

    x: Any
    y: Any
    label: Rich = ""
    note: Rich = ""
    low: Any = None
    high: Any = None
    heads: str | Head | Sequence[str | Head] = "ink"
    dash: bool = False
    points: bool = False
    fade: SupportsFloat = 0.0


@dataclass(frozen=True)
class Series:
    """A curve's numbers, and how it is drawn."""

    curve: Curve
    heads: tuple[Head, ...]
    colour: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None

    @property
    def opacity(self) -> Real:
        return 1 - min(max(float(self.curve.fade), 0.0), 0.6)


def series(curve: Curve) -> Series:
    x, y = array(curve.x).reshape(-1), array(curve.y).reshape(-1)
    if (curve.low is None) != (curve.high is None):
        raise RequestError(f"the curve {plain(curve.label)!r} has one side of its range: both or none are needed")
    low, high = (None if side is None else array(side).reshape(-1) for side in (curve.low, curve.high))
    for name, values in (("y", y), ("low", low), ("high", high)):
        if values is not None and len(values) != len(x):
            raise RequestError(f"the curve {plain(curve.label)!r} has {len(x)} x and {len(values)} {name}")
    if not len(x) or not np.isfinite(x).all():
        raise RequestError(f"the curve {plain(curve.label)!r} needs x values, all of them finite")
    if isinstance(curve.heads, str) and curve.heads in ("ink", "muted"):
        owners, colour = (Head("ink"),), curve.heads
    else:
        owners = heads_of(curve.heads)
        colour = owners[0].colour
    return Series(curve, owners, colour, x, y, low, high)


def thinned(read: Series, most: int) -> Series:
    """At most `most` of the points, evenly chosen, the first and the last among them."""
    if len(read.x) <= most:
        return read
    kept = np.unique(np.linspace(0, len(read.x) - 1, most).round().astype(int))
    low, high = (None if side is None else side[kept] for side in (read.low, read.high))
    return replace(read, x=read.x[kept], y=read.y[kept], low=low, high=high)


def inside(read: Series, x: Ruler) -> np.ndarray:
    return (read.x >= x.low - 1e-9) & (read.x <= x.high + 1e-9)


def drawn(read: Series, x: Ruler, y: Ruler) -> tuple[list[Element], list[Element]]:
    """The range and the line of one curve; NaN breaks both."""
    bands, lines = [], []
    within = inside(read, x)
    if read.low is not None and read.high is not None:
        for run in _runs(within & np.isfinite(read.low) & np.isfinite(read.high)):
            xs = [x(value) for value in read.x[run]]
            upper, lower = [y(value) for value in read.high[run]], [y(value) for value in read.low[run]]
            d = points([*xs, *reversed(xs)], [*upper, *reversed(lower)]) + "z"
            bands.append(path(d, fill=read.colour, fill_opacity=round(0.15 * read.opacity, 3)))
    for run in _runs(within & np.isfinite(read.y)):
        d = points([x(value) for value in read.x[run]], [y(value) for value in read.y[run]])
        look = {"fill": "none", "stroke_width": 2.4 if len(read.heads) > 1 else 2, "stroke_linejoin": "round"}
        look |= {"stroke_opacity": read.opacity if read.opacity < 1 else None}
        dash = "5 4" if read.curve.dash else None
        lines.append(path(d, stroke=read.colour, stroke_dasharray=dash, **look))
        for index, one in enumerate(read.heads[1:], start=1):
            pattern = f"{7 * index} 7" if len(read.heads) == 2 else f"7 {7 * (len(read.heads) - 1)}"
            offset = None if len(read.heads) == 2 else -7 * index
            lines.append(path(d, stroke=one.colour, stroke_dasharray=pattern, stroke_dashoffset=offset, **look))
        if read.curve.points or len(read.x[run]) == 1:
            for at, value in zip(read.x[run], read.y[run]):
                lines.append(dot(x(at), y(value), read.heads, 3.5))
                if read.colour == "muted":
                    lines[-1].attributes["fill"] = var("muted")
    return bands, lines


def _runs(marks: np.ndarray) -> list[slice]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], marks.astype(int), [0]])))
    return [slice(start, stop) for start, stop in zip(edges[::2], edges[1::2])]


def named(one: Series) -> Rich:
    """A curve's label in its own colour, where the caller gave it none."""
    if not isinstance(one.curve.label, str):
        return one.curve.label
    return coloured(one.curve.label, one.colour, bold=one.colour.startswith("head"))
