"""Curves: medians and ranges over steps or sizes, one panel above the other on one axis, with phases and limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, SupportsFloat

from interp.render.axis import Axis
from interp.render.figure import Figure
from interp.render.text import Rich
from interp.render.theme import Head


@dataclass(frozen=True)
class Curve:
    """A line and the range around it.

    x, y: as many numbers each; low, high: the range, where there is one. NaN breaks the line. heads: whose it is
    (`"one"`, `"A"`, `("A", "B")` for the two-coloured line, `"ink"` or `"muted"` for what is no head). dash: dashed.
    points: mark every value. label, note: stand at the curve's end.
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


@dataclass(frozen=True)
class Level:
    """A horizontal line: `limit` is proven (solid ink), `chance` is dotted and muted. label: at its right end."""

    value: SupportsFloat
    label: Rich = ""
    kind: Literal["limit", "chance"] = "limit"


@dataclass(frozen=True)
class CurvePanel:
    """One quantity over the common x axis. height: of its plot, px."""

    label: Rich
    curves: Sequence[Curve]
    axis: Axis | None = None
    levels: Sequence[Level] = ()
    height: int = 210


@dataclass(frozen=True)
class Phase:
    """A stretch of the x axis from `start` to the next phase: `numeral` in bold, `label`, and a `note` below."""

    start: SupportsFloat
    numeral: str = ""
    label: str = ""
    note: str = ""


def curve_chart(
    panels: Sequence[CurvePanel],
    *,
    title: str,
    description: str,
    caption: Rich = "",
    axis: Axis | None = None,
    phases: Sequence[Phase] = (),
) -> Figure:
    """Curves over one x axis (log(step + 1) unless told otherwise), panels below each other, phases shaded in turn.

    Raises ValueError for no curves, for x, y, low, high of different lengths, and for a log axis with values <= 0.
    """
    raise NotImplementedError
