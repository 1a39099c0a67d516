"""Strip chart: one row per method, one dot per seed, a proven limit with the region that it forbids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, SupportsFloat

import numpy as np

from headlab.interp.errors import RequestError
from headlab.interp.render.axis import Axis, Ruler, ruler
from headlab.interp.render.caps import left_out, with_sentence
from headlab.interp.render.diverging import array
from headlab.interp.render.figure import Drawing, Figure, drawing
from headlab.interp.render.marks import TICK, axis_height, bottom_axis, diamond, dot, stacked
from headlab.interp.render.svg import Element, el, group, hatch, label, line, measure, rect, url
from headlab.interp.render.text import Real, Rich, plain
from headlab.interp.render.theme import Head, heads

MOST_ROWS = 40
MOST_VALUES = 128


@dataclass(frozen=True)
class StripRow:
    """One method.

    label, note: its name and what to know of it. values: one number per seed. heads: whose dots they are: `"one"`,
    `"A"`, or `("A", "B")` for split dots. result, result_note: the right column (the best value, its errors). marker:
    `diamond` for what was not trained. bounded: whether the limit holds for it; rows outside stand last, outside the
    hatch.
    """

    label: Rich
    values: Any
    note: Rich = ""
    heads: str | Head | Sequence[str | Head] = "one"
    result: Rich = ""
    result_note: Rich = ""
    marker: Literal["dot", "diamond"] = "dot"
    bounded: bool = True


@dataclass(frozen=True)
class Limit:
    """A proven limit: its value; `label` and `formula` stand before the line, `beyond` and `beyond_note` past it.
    `short`, `short_formula`, `short_beyond` replace them in the narrow drawing. side: which side is forbidden."""

    value: SupportsFloat
    label: Rich = ""
    formula: Rich = ""
    beyond: Rich = ""
    beyond_note: Rich = ""
    short: Rich = ""
    short_formula: Rich = ""
    short_beyond: Sequence[Rich] = ()
    side: Literal["above", "below"] = "above"


def strip_chart(
    rows: Sequence[StripRow],
    *,
    title: str,
    description: str,
    caption: Rich = "",
    axis: Axis | None = None,
    limit: Limit | None = None,
    result_heading: Rich = "",
) -> Figure:
    """Values of many seeds, a row per method, on one axis.

    rows: see StripRow; equal values stack in one column. axis: domain and ticks from the data where left out. limit: a
    proven limit, drawn as a solid line with the forbidden region hatched over the bounded rows. result_heading: above
    the right column. Past 40 rows, or 128 values in a row, the first are drawn, and the picture says so. Raises
    ValueError for no rows and for a value that is not finite.
    """
    rows = [*(row for row in rows if row.bounded), *(row for row in rows if not row.bounded)]
    if not rows:
        raise RequestError("a strip chart needs at least one row")
    values = [_values(row) for row in rows]
    most = max(map(len, values))
    said = left_out((len(rows), MOST_ROWS, "rows"), (most, MOST_VALUES, "values of a row"))
    rows, values = rows[:MOST_ROWS], [row[:MOST_VALUES] for row in values[:MOST_ROWS]]
    axis = axis or Axis()
    every = [value for row in values for value in row] + ([float(limit.value)] if limit else [])
    wide = _wide(rows, values, axis, limit, result_heading, every)
    narrow = _narrow(rows, values, axis, limit, every)
    return with_sentence(Figure(title, description, caption, wide, narrow), said)


def _values(row: StripRow) -> list[Real]:
    values = array(row.values).reshape(-1)
    if not np.isfinite(values).all():
        raise RequestError(f"the row {plain(row.label)!r} holds a value that is not finite")
    return values.tolist()


@dataclass(frozen=True)
class _Dots:
    """How a row's dots are stacked: their radius, the distance from dot to dot, and the columns."""

    radius: Real
    pitch: Real
    columns: list[list[Real]]

    @property
    def height(self) -> Real:
        return max(map(len, self.columns), default=1) * self.pitch + 16


def _stacked(row: StripRow, values: Sequence[Real], x: Ruler, size: Real) -> _Dots:
    radius = size * (1.2 if len(heads(row.heads)) > 1 else 1.0)
    columns = stacked([x(value) for value in values], radius)
    tallest = max(map(len, columns), default=1)
    return _Dots(radius, min(radius * 1.72, 200 / tallest), columns)


def _drawn(row: StripRow, dots: _Dots, middle: Real) -> Element:
    owners = heads(row.heads)
    whole = group(stroke="bg", stroke_width=0.7) if len(owners) == 1 else group()
    for column in dots.columns:
        at = sum(column) / len(column)
        for index in range(len(column)):
            y = middle + (index - (len(column) - 1) / 2) * dots.pitch
            whole.add(diamond(at, y, owners) if row.marker == "diamond" else dot(at, y, owners, dots.radius))
    return whole


def _hatched(x: Ruler, limit: Limit, top: Real, bottom: Real) -> Element:
    at = x(limit.value)
    left, right = (at, x.end) if limit.side == "above" else (x.start, at)
    return rect(left, top, max(right - left, 0), bottom - top, fill=url("hatch"))


def _wide(
    rows: Sequence[StripRow],
    values: Sequence[Sequence[Real]],
    axis: Axis,
    limit: Limit | None,
    heading: Rich,
    every: Sequence[Real],
) -> Drawing:
    x = ruler(axis, every, 236, 984)
    top = 50.0 if limit else 30.0
    stacks = [_stacked(row, row_values, x, 4) for row, row_values in zip(rows, values)]
    heights = [max(56, stack.height) for stack in stacks]
    bounded = sum(height for row, height in zip(rows, heights) if row.bounded)
    gap = 12 if limit and any(not row.bounded for row in rows) else 0
    parts: list[Element | None] = [label(1080, 34, heading, size=TICK, fill="muted", anchor="end", width=92)]
    if limit:
        at = x(limit.value)
        parts = [el("defs", hatch()), *parts, _hatched(x, limit, top, top + bounded + 6)]
        after = limit.side == "above"
        space = at - 10
        parts += [
            label(at - 10, 16, limit.label if after else limit.beyond, anchor="end", width=space),
            label(
                at - 10,
                34,
                limit.formula if after else limit.beyond_note,
                size=TICK,
                fill="muted",
                anchor="end",
                width=space,
            ),
            label(at + 12, 16, limit.beyond if after else limit.label, width=max(990 - at, 60)),
            label(
                at + 12,
                34,
                limit.beyond_note if after else limit.formula,
                size=TICK,
                fill="muted",
                width=max(990 - at, 60),
            ),
        ]
    y = top
    marks: list[Element] = []
    for index, (row, stack, height) in enumerate(zip(rows, stacks, heights)):
        if gap and not row.bounded and (index == 0 or rows[index - 1].bounded):
            y += gap
        middle = y + height / 2
        parts += [
            label(0, middle - 3, row.label, width=222),
            label(0, middle + 14, row.note, size=TICK, fill="muted", width=222),
            label(1080, middle - 2, row.result, size=15, bold=True, anchor="end", width=88),
            label(1080, middle + 15, row.result_note, size=TICK, fill="muted", anchor="end", width=88),
        ]
        y += height
        if index + 1 < len(rows):
            parts.append(line(x.start, y, x.end, y))
        marks.append(_drawn(row, stack, middle))
    if limit:
        at = x(limit.value)
        parts.append(line(at, 40, at, top + bounded + 6, stroke="ink", stroke_width=2))
    parts += marks
    parts.append(bottom_axis(x, y + 8, axis.label))
    return drawing(1080, y + 8 + axis_height(x, axis.label), parts)


def _narrow(
    rows: Sequence[StripRow], values: Sequence[Sequence[Real]], axis: Axis, limit: Limit | None, every: Sequence[Real]
) -> Drawing:
    x = ruler(axis, every, 18, 352, most=5)
    parts: list[Element | None] = []
    y = 8.0
    if limit:
        at = x(limit.value)
        parts = [el("defs", hatch())]
        first, second = limit.short or limit.label, limit.short_formula or limit.formula
        beside = list(limit.short_beyond) or [limit.beyond, limit.beyond_note]
        right = min(max((measure(one, TICK) for one in beside), default=0), 130)
        split = at - 8 > 150 and 366 - at > right * 0.4
        space = 370 - right - 16
        anchor, where = ("end", min(at - 6, space)) if split else ("start", 2)
        reach = where - 2 if split else space - 2
        parts += [
            label(where, 16, first, anchor=anchor, width=reach),
            label(where, 34, second, size=TICK, fill="muted", anchor=anchor, width=reach),
            *(
                label(370, 16 + 18 * i, one, size=TICK, fill="muted", anchor="end", width=130)
                for i, one in enumerate(beside[:2])
            ),
            line(at, 42, at, 60, stroke="ink", stroke_width=2),
        ]
        y = 64
    for index, (row, row_values) in enumerate(zip(rows, values)):
        stack = _stacked(row, row_values, x, 3.2)
        height = max(26, stack.height)
        parts += [
            label(2, y + 14, row.label, width=250),
            label(2, y + 31, row.note, size=TICK, fill="muted", width=230),
            label(370, y + 14, row.result, size=15, bold=True, anchor="end", width=88),
            label(370, y + 31, row.result_note, size=TICK, fill="muted", anchor="end", width=104),
        ]
        y += 38
        if limit and row.bounded:
            at = x(limit.value)
            parts += [_hatched(x, limit, y, y + height), line(at, y, at, y + height, stroke="ink", stroke_width=2)]
        parts.append(_drawn(row, stack, y + height / 2))
        y += height
        if index + 1 < len(rows):
            parts.append(line(x.start, y, x.end, y))
            y += 10
    parts.append(bottom_axis(x, y + 6, axis.label, gap=28))
    return drawing(372, y + 6 + axis_height(x, axis.label), parts)
