"""Grids of signed effects: layers, heads and positions on the axes, zero in the middle of the colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsFloat

import numpy as np

from headlab.interp.errors import RequestError
from headlab.interp.render.diverging import array, dashes, diverging_step, heat, step_colour, symmetric_limit
from headlab.interp.render.figure import NARROW, WIDE, Drawing, Figure, drawing
from headlab.interp.render.marks import TICK, diverging_key, lines_of
from headlab.interp.render.svg import Element, el, group, hatch, label, measure, path, rect, squares, url
from headlab.interp.render.text import Real, Rich, number, plain, signed

MOST_CELLS = 64
MOST_PANELS = 12


def effect_grid(
    values: Any,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    description: str,
    caption: Rich = "",
    panels: Sequence[Rich] | None = None,
    row_axis: str = "",
    column_axis: str = "",
    unit: str = "",
    limit: SupportsFloat | None = None,
    digits: int = 2,
    missing: str = "no value",
    signs: bool = True,
) -> Figure:
    """Signed values as coloured cells with their numbers, where there is space for them.

    values: [row, column], or [panel, row, column] with `panels` as names; NaN is drawn hatched and called `missing`.
    rows, columns: the labels, from the top and from the left. row_axis, column_axis: what they are. unit: of the
    values. limit: where the colours end on both sides (99th percentile of |value| where left out). Negative cells
    carry a dash where the number has no space. signs: False for what is never negative; its numbers have no sign, and
    the key of colours is left out. Past 64 rows or columns the first are drawn, and the picture says so.
    Raises ValueError where labels and shape differ, or a value without a sign is negative.
    """
    table = array(values)
    if table.ndim == 2:
        table = table[None]
    if table.ndim != 3 or table.shape[1:] != (len(rows), len(columns)) or not table.size:
        raise RequestError(
            f"values have shape {table.shape[-2:] if table.ndim == 3 else table.shape}, and there are {len(rows)} rows "
            f"and {len(columns)} columns: [row, column] or [panel, row, column] is needed"
        )
    names: list[Rich] = list(panels) if panels is not None else [""] * len(table)
    if len(names) != len(table):
        raise RequestError(f"there are {len(table)} panels of values and {len(names)} names for them")
    if np.isinf(table).any():
        raise RequestError("an effect is infinite: a grid shows finite values, and NaN as missing")
    if not signs and (table < 0).any():
        raise RequestError("a value is negative, and is to be shown without its sign: leave signs on")
    said = _cut(table.shape)
    table = table[:MOST_PANELS, :MOST_CELLS, :MOST_CELLS]
    end = symmetric_limit(table) if limit is None else float(limit)
    if not end > 0:
        raise RequestError(f"the colours end at {end}: a limit above 0 is needed")
    words = _GridWords(
        tuple(names[:MOST_PANELS]),
        tuple(rows[:MOST_CELLS]),
        tuple(columns[:MOST_CELLS]),
        row_axis,
        column_axis,
        unit,
        missing,
        said,
        digits,
        signs,
    )
    sheets = [_sheet(table, words, end, width) for width in (WIDE, NARROW)]
    return Figure(title, description, caption, wide=sheets[0], narrow=sheets[1])


@dataclass(frozen=True)
class _GridWords:
    panels: tuple[Rich, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_axis: str
    column_axis: str
    unit: str
    missing: str
    said: str
    digits: int
    signs: bool

    def printed(self, value: float) -> str:
        """As it is printed in its cell."""
        return signed(value, self.digits) if self.signs else number(value, self.digits)


def _cut(shape: Sequence[int]) -> str:
    kinds = (("panels", shape[0], MOST_PANELS), ("rows", shape[1], MOST_CELLS), ("columns", shape[2], MOST_CELLS))
    parts = [f"the first {most} of {count} {kind}" for kind, count, most in kinds if count > most]
    return f"Shown: {' and '.join(parts)}." if parts else ""


def _sheet(table: np.ndarray, words: _GridWords, limit: Real, width: Real) -> Drawing:
    count, height, breadth = table.shape
    size = TICK
    margin = min(max(measure(name, size) for name in words.rows) + 11, 0.26 * width)
    named = max(measure(name, size) for name in words.columns)
    numbers = (
        max(measure(words.printed(value), size) for value in table.flat if math.isfinite(value))
        if (np.isfinite(table).any())
        else 0.0
    )
    across = 1
    for candidate in range(min(count, 4 if width == WIDE else 2), 0, -1):
        space = (width - 32 * (candidate - 1)) / candidate - margin
        fits = all(measure(name, bold=True) <= space for name in words.panels)
        if candidate == 1 or (fits and space / breadth >= (numbers + 8 if width == WIDE else 26)):
            across = candidate
            break
    space = (width - 32.0 * (across - 1)) / across - margin
    cell = min(space / breadth, max(84.0, min(named + 14, 220.0)) if width == WIDE else 60.0)
    shown = cell >= numbers + 6
    tall = 34.0 if shown else min(max(cell, 13.0), 24.0)
    turned = named + 4 > cell
    foot = (min(named, 100.0) + 14 if turned else 22) + (20 if words.column_axis or words.row_axis else 0)
    key, top = _key(table, words, limit, width)
    parts: list[Element | None] = [*key]
    sentence = lines_of(words.said, width, 14, bold=True)
    for one in sentence:
        parts.append(label(0, top - 16, one, bold=True))
        top += 20
    titled = any(plain(name) for name in words.panels)
    deep = (28 if titled else 0) + tall * height + foot + 26
    for index, (name, values) in enumerate(zip(words.panels, table)):
        left = (margin + space + 32) * (index % across)
        y = top + deep * (index // across)
        x = left + margin
        if titled:
            parts.append(label(x, y + 12, name, bold=True, width=space))
            y += 28
        parts += [
            rect(x, y, cell * breadth - 1, tall * height - 1, fill="zero"),
            heat(values, limit, x, y, cell, tall),
            *_holes(values, x, y, cell, tall),
        ]
        if shown:
            parts.append(_numbers(values, words, limit, x, y, cell, tall))
        elif min(cell, tall) >= 8:
            parts.append(dashes(values, limit, x, y, cell, tall))
        stride = math.ceil(12 / tall)
        for row in range(0, height, stride):
            where = y + tall * (row + 0.5) + 4
            parts.append(label(x - 8, where, words.rows[row], size=size, anchor="end", width=margin - 10))
        bottom = y + tall * height
        stride = math.ceil(13 / cell) if turned else 1
        for column in range(0, breadth, stride):
            middle = x + cell * (column + 0.5)
            if turned:
                text = label(
                    middle + 4, bottom + 6, words.columns[column], size=size, anchor="end", rotate=True, width=100
                )
            else:
                text = label(middle, bottom + 16, words.columns[column], size=size, anchor="middle", width=cell)
            parts.append(text)
        axes = " →  ".join(filter(None, (words.column_axis, f"{words.row_axis} ↓" if words.row_axis else "")))
        if not words.row_axis and words.column_axis:
            axes = f"{words.column_axis} →"
        parts.append(label(x, bottom + foot - 2, axes, size=size, fill="muted", width=space))
    return drawing(width, top + deep * math.ceil(count / across) - 18, parts)


def _key(table: np.ndarray, words: _GridWords, limit: Real, width: Real) -> tuple[list[Element | None], Real]:
    """The colour scale with its ends and its unit, where values have signs; what a hatched cell means, where there is
    one. And where the grid can begin."""
    parts: list[Element | None] = []
    x, y, top = 0.0, 4.0, 34.0
    if words.signs:
        cell = 16.0 if width == WIDE else 14.0
        low, high = number(-limit, words.digits), f"+{number(limit, words.digits)}"
        whole = f"{high} {words.unit}" if words.unit else high
        beside = measure(low) + 13 * cell + measure(whole) + 16 <= width
        parts.append(diverging_key(0, 4, low, whole if beside else high, cell=cell, width=width))
        x, top = (0.0, 76.0) if width == NARROW else (measure(low) + measure(whole) + 13 * 16 + 60, 58.0)
        y = 28.0 if width == NARROW else 4.0
        if not beside:
            parts.append(label(0, 39, words.unit, fill="muted", width=width))
            x, y, top = 0.0, 48.0, top + 20
    if np.isnan(table).any():
        box = rect(x, y, 15, 11, fill=url("hatch"))
        parts += [el("defs", hatch()), box, label(x + 24, y + 11, words.missing, fill="muted", width=width - x - 24)]
    return parts, top


def _holes(values: np.ndarray, x: Real, y: Real, cell: Real, tall: Real) -> list[Element | None]:
    places = [(x + cell * column, y + tall * row) for row, column in zip(*np.nonzero(np.isnan(values)))]
    if not places:
        return []
    shape = squares(places, cell - 1, tall - 1)
    return [path(shape, fill="bg"), path(shape, fill=url("hatch"))]


def _numbers(values: np.ndarray, words: _GridWords, limit: Real, x: Real, y: Real, cell: Real, tall: Real) -> Element:
    whole = group(font_size=TICK, text_anchor="middle")
    for (row, column), value in np.ndenumerate(values):
        if math.isfinite(value):
            step = diverging_step(value, limit)
            fill = f"on-{step_colour(step)}" if step else "muted"
            place = x + cell * (column + 0.5) - 0.5, y + tall * (row + 0.5) + 4
            whole.add(el("text", words.printed(value), x=place[0], y=place[1], fill=fill))
    return whole
