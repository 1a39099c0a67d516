"""Curves: medians and ranges over steps or sizes, one panel above the other on one axis, with phases and limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, SupportsFloat

import numpy as np

from headlab.interp.errors import RequestError
from headlab.interp.render.axis import Axis, Ruler, ruler
from headlab.interp.render.caps import left_out, with_sentence
from headlab.interp.render.figure import NARROW, WIDE, Drawing, Figure, drawing
from headlab.interp.render.marks import TICK, apart, axis_height, bottom_axis
from headlab.interp.render.phases import Phase, phase_marks, phase_names
from headlab.interp.render.series import Curve, Series, drawn, inside, named, series, thinned
from headlab.interp.render.svg import Element, group, label, line, measure, n
from headlab.interp.render.text import Real, Rich, Span, bold, plain, spans

MOST_PANELS = 12
MOST_CURVES = 24
MOST_POINTS = 400


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

    Past 12 panels or 24 curves in one the first are drawn; a curve of more than 400 points is drawn through 400 of
    them, evenly chosen; the picture says so. Raises ValueError for no curves, for x, y, low, high of different
    lengths, and for a log axis with values <= 0.
    """
    if not panels or not any(panel.curves for panel in panels):
        raise RequestError("a chart needs at least one curve")
    most = max(len(panel.curves) for panel in panels)
    said = left_out((len(panels), MOST_PANELS, "panels"), (most, MOST_CURVES, "curves of a panel"))
    panels = [replace(panel, curves=list(panel.curves)[:MOST_CURVES]) for panel in panels[:MOST_PANELS]]
    whole = [[series(curve) for curve in panel.curves] for panel in panels]
    longest = max(len(one.x) for curves in whole for one in curves)
    if longest > MOST_POINTS:
        said = f"{said} Drawn through {MOST_POINTS} of {longest} points.".strip()
    read = [[thinned(one, MOST_POINTS) for one in curves] for curves in whole]
    axis = axis or Axis(scale="log1p")
    across = [float(x) for curves in read for curve in curves for x in curve.x] + [float(one.start) for one in phases]
    starts = [float(one.start) for one in phases]
    if starts != sorted(starts):
        raise RequestError(f"phases begin one after the other, and these begin at {starts}")
    wide = _wide(panels, read, axis, across, phases)
    return with_sentence(Figure(title, description, caption, wide, _narrow(panels, read, axis, across, phases)), said)


def _vertical(panel: CurvePanel, read: Sequence[Series], bottom: Real, top: Real) -> Ruler:
    values = [float(level.value) for level in panel.levels]
    for one in read:
        for part in (one.y, one.low, one.high):
            if part is not None:
                values += part[np.isfinite(part)].tolist()
    axis = panel.axis or Axis()
    if axis.scale == "log" and axis.domain is None and min(values, default=1.0) <= 0:
        raise RequestError(f"{plain(panel.label)!r} is on a logarithmic axis and has the value {min(values)}")
    if axis.scale == "log" and axis.domain is None and values:
        axis = replace(axis, domain=(min(values) / 1.3, max(values) * 1.3))
    return ruler(axis, values, bottom, top, most=max(3, int((bottom - top) / 40)))


def _frame(panel: CurvePanel, x: Ruler, y: Ruler) -> list[Element | None]:
    parts: list[Element | None] = []
    last = math.inf
    for value, text in sorted(y.ticks):
        at = y(value)
        parts.append(line(x.start, at, x.end, at))
        if last - at >= 14:
            parts.append(label(x.start - 8, at + 4, text, size=TICK, fill="muted", anchor="end", width=x.start - 8))
            last = at
    for level in panel.levels:
        at = y(level.value)
        if level.kind == "limit":
            parts.append(line(x.start, at, x.end, at, stroke="ink", stroke_width=2))
        else:
            parts.append(line(x.start, at, x.end, at, stroke="muted", stroke_width=1.5, stroke_dasharray="2 3"))
    return parts


def _wide(
    panels: Sequence[CurvePanel],
    read: Sequence[Sequence[Series]],
    axis: Axis,
    across: list[Real],
    phases: Sequence[Phase],
) -> Drawing:
    ticks = [text for panel, curves in zip(panels, read) for _, text in _vertical(panel, curves, 100, 0).ticks]
    left = max(64.0, max((measure(text, TICK) for text in ticks), default=0) + 14)
    named = [one for curves in read for one in curves] + [level for panel in panels for level in panel.levels]
    rightmost = 910.0 if named else 1060.0
    x = ruler(axis, across, left, rightmost, most=9)
    head_room = 52.0 if any(one.note for one in phases) else 34.0 if phases else 30.0
    title = max(measure(panel.label, bold=True) for panel in panels[:1])
    parts: list[Element | None] = []
    y = head_room
    rulers = []
    for index, panel in enumerate(panels):
        top = y if index == 0 else y + 44
        rulers.append((top, _vertical(panel, read[index], top + panel.height, top)))
        y = top + panel.height
    bottom = y
    parts += phase_marks(phases, x, head_room, bottom)
    parts += phase_names(phases, x, 14, title + 16, WIDE, full=True)
    marks: list[Element | None] = []
    for index, (panel, curves, (top, vertical)) in enumerate(zip(panels, read, rulers)):
        parts.append(label(0, 14 if index == 0 else top - 14, panel.label, bold=True, width=rightmost))
        parts += _frame(panel, x, vertical)
        bands, lines = [], []
        for one in curves:
            band, strokes = drawn(one, x, vertical)
            bands += band
            lines += strokes
        parts += [*bands, *lines]
        marks += _end_labels(panel, curves, x, vertical, top, top + panel.height)
    parts += marks
    parts.append(bottom_axis(x, bottom, axis.label))
    return drawing(WIDE, bottom + axis_height(x, axis.label), parts)


def _end_labels(
    panel: CurvePanel, curves: Sequence[Series], x: Ruler, y: Ruler, top: Real, bottom: Real
) -> list[Element | None]:
    """Labels at the ends of curves: inside the plot where a curve stops early and nothing is near, else beside the plot
    and pushed apart."""
    parts: list[Element | None] = []
    beside: list[tuple[Real, Real, Rich, Rich, str]] = []
    for level in panel.levels:
        if plain(level.label):
            fill = "ink" if level.kind == "limit" else "muted"
            beside.append((y(level.value), 20.0, level.label, "", fill))
    for one in curves:
        if not plain(one.curve.label):
            continue
        seen = np.flatnonzero(inside(one, x) & np.isfinite(one.y))
        if not len(seen):
            continue
        at, value = x(one.x[seen[-1]]), y(one.y[seen[-1]])
        text = named(one)
        need = max(measure(text, bold=True), measure(one.curve.note, TICK)) + 16
        if at + 12 + need < x.end and _free(curves, one, x, y, at, value, need):
            parts.append(label(at + 12, value + 5, text, halo=True))
            parts.append(label(at + 12, value + 22, one.curve.note, size=TICK, fill="muted", halo=True))
        else:
            beside.append((value, 38.0 if plain(one.curve.note) else 20.0, text, one.curve.note, "ink"))
    room = WIDE - x.end - 12
    low = min(top - 9, bottom - sum(extent for _, extent, *_ in beside))
    for centre, (_, extent, text, note, fill) in zip(
        apart([(wanted, extent) for wanted, extent, *_ in beside], low, bottom + 10), beside
    ):
        first = centre - extent / 2 + 14
        size = 14 if fill == "ink" else TICK
        parts.append(label(x.end + 12, first, text, size=size, fill=fill, width=room))
        parts.append(label(x.end + 12, first + 17, note, size=TICK, fill="muted", width=room))
    return parts


def _free(curves: Sequence[Series], mine: Series, x: Ruler, y: Ruler, at: Real, value: Real, need: Real) -> bool:
    """Whether no other curve passes where a label at (at, value) would stand."""
    for other in curves:
        if other is mine:
            continue
        shown = inside(other, x) & np.isfinite(other.y)
        xs, ys = [x(one) for one in other.x[shown]], [y(one) for one in other.y[shown]]
        if not xs:
            continue
        for step in range(9):
            where = at + need * step / 8
            if xs[0] <= where <= xs[-1] and abs(float(np.interp(where, xs, ys)) - value) < 12:
                return False
    return True


def _narrow(
    panels: Sequence[CurvePanel],
    read: Sequence[Sequence[Series]],
    axis: Axis,
    across: list[Real],
    phases: Sequence[Phase],
) -> Drawing:
    ticks = [text for panel, curves in zip(panels, read) for _, text in _vertical(panel, curves, 100, 0).ticks]
    left = min(max(34.0, max((measure(text, TICK) for text in ticks), default=0) + 12), 80.0)
    x = ruler(axis, across, left, 356, most=6)
    parts: list[Element | None] = []
    marks: list[Element | None] = []
    y = 0.0
    tops = []
    for panel, curves in zip(panels, read):
        marks.append(label(0, y + 14, panel.label, bold=True, width=NARROW))
        y += 30
        names, used = _line_names(panel, curves, y)
        marks += names
        y += used + 6
        if not tops and phases:
            marks += phase_names(phases, x, y + 10, left, NARROW, full=False)
            y += 20
        height = max(panel.height * 0.8, 80)
        vertical = _vertical(panel, curves, y + height, y)
        tops.append(y)
        marks += _frame(panel, x, vertical)
        bands, lines = [], []
        for one in curves:
            band, strokes = drawn(one, x, vertical)
            bands += band
            lines += strokes
        marks += [*bands, *lines]
        bottom = y + height
        parts += phase_marks(phases, x, y, bottom)
        y = bottom + 20
    bottom = y - 20
    parts += [*marks, bottom_axis(x, bottom, axis.label, gap=14)]
    y = bottom + axis_height(x, axis.label) + 4
    for one in phases:
        if one.label:
            shown = (bold(one.numeral), f" {one.label}{', ' + one.note if one.note else ''}")
            parts.append(label(0, y + 12, shown, size=TICK, fill="muted", width=NARROW))
            y += 18
    return drawing(NARROW, y + 2, parts)


def _line_names(panel: CurvePanel, curves: Sequence[Series], y: Real) -> tuple[list[Element | None], Real]:
    """The names of curves and levels above a narrow plot, each after a piece of its line."""
    parts: list[Element | None] = []
    items: list[tuple[Rich, Element]] = []
    for one in curves:
        if plain(one.curve.label):
            note = plain(one.curve.note)
            text = named(one)
            whole = (*spans(text), Span(f", {note}", colour="muted")) if note else text
            sample = group()
            for index, owner in enumerate(one.heads):
                dash = "5 4" if one.curve.dash else None if index == 0 else "7 7"
                stroke = one.colour if index == 0 else owner.colour
                sample.add(
                    line(
                        0, 0, 24, 0, stroke=stroke, stroke_width=2.4, stroke_dasharray=dash, stroke_opacity=one.opacity
                    )
                )
            items.append((whole, sample))
    for level in panel.levels:
        if plain(level.label):
            solid = level.kind == "limit"
            stroke, dash = ("ink", None) if solid else ("muted", "2 3")
            items.append((level.label, line(0, 0, 24, 0, stroke=stroke, stroke_width=2, stroke_dasharray=dash)))
    at, row = 0.0, 0
    for text, sample in items:
        need = 32 + measure(text, TICK) + 18
        if at and at + need - 18 > NARROW:
            at, row = 0.0, row + 1
        where = y + 20 * row
        parts.append(group(sample, transform=f"translate({n(at)} {n(where + 1)})"))
        parts.append(label(at + 32, where + 5, text, size=TICK, width=NARROW - at - 32))
        at += need
    return parts, 20.0 * (row + 1) if items else 0.0
