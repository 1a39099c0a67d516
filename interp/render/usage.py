"""Which head does what: a table of heads and roles, and how far from chance the division of work is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headlab.interp.errors import RequestError
from headlab.interp.render.axis import Axis, ruler
from headlab.interp.render.caps import left_out, with_sentence
from headlab.interp.render.contrast import readable_opacity
from headlab.interp.render.diverging import array
from headlab.interp.render.figure import NARROW, WIDE, Figure, drawing
from headlab.interp.render.marks import TICK, badge, badge_width, bottom_axis, dot, lines_of, stacked
from headlab.interp.render.svg import Element, group, label, line, measure, n, rect
from headlab.interp.render.text import Real, Rich, percent, plain
from headlab.interp.render.theme import Head, head
from headlab.interp.render.theme import heads as heads_of

MOST_HEADS = 48
MOST_ROLES = 12


@dataclass(frozen=True)
class ScoreStrip:
    """A score of many trained models beside its chance level.

    values: one per trained seed. chance: one per untrained model; the band is its 5th to 95th percentile, the dotted
    line its median. label, note: what the score is. chance_label, chance_note, value_label, value_note: the lines
    below.
    """

    values: Any
    chance: Any
    label: Rich
    note: Rich = ""
    heads: str | Head | Sequence[str | Head] = ("A", "B")
    chance_label: Rich = ""
    chance_note: Rich = ""
    value_label: Rich = ""
    value_note: Rich = ""
    axis: Axis | None = None


def usage_chart(
    usage: Any,
    *,
    heads: Sequence[str | Head],
    roles: Sequence[Rich],
    title: str,
    description: str,
    caption: Rich = "",
    role_notes: Sequence[Rich] | None = None,
    texts: Sequence[Sequence[str]] | None = None,
    notes: Sequence[Sequence[str]] | None = None,
    score: ScoreStrip | None = None,
) -> Figure:
    """A cell per head (row) and role (column), in the head's colour, the stronger the larger the share.

    usage: [head, role], at least 0; opacity = value / largest. texts: what is printed in each cell (the value in %
    where left out); notes: a second, smaller line. score: a strip beside the table (below it where the table is wide).
    Past 48 heads or 12 roles the first are drawn, and the picture says so. Raises ValueError where shapes and labels
    differ, or a value is negative or not finite.
    """
    shares = array(usage)
    owners = [head(one) for one in heads]
    if shares.shape != (len(owners), len(roles)) or not shares.size:
        raise RequestError(f"usage has shape {shares.shape}, and there are {len(owners)} heads and {len(roles)} roles")
    if not (shares >= 0).all() or not np.isfinite(shares).all():
        raise RequestError("usage must be finite and at least 0 everywhere")
    printed = [[percent(value, 1) for value in row] for row in shares] if texts is None else texts
    below = [[""] * len(roles) for _ in owners] if notes is None else notes
    under = [""] * len(roles) if role_notes is None else role_notes
    for name, table in (("texts", printed), ("notes", below)):
        if len(table) != len(owners) or any(len(row) != len(roles) for row in table):
            raise RequestError(f"{name} must hold {len(owners)} rows of {len(roles)}, one for each head and role")
    if len(under) != len(roles):
        raise RequestError(f"there are {len(roles)} roles and {len(under)} notes for them")
    said = left_out((len(owners), MOST_HEADS, "heads"), (len(roles), MOST_ROLES, "roles"))
    printed, below = ([row[:MOST_ROLES] for row in part[:MOST_HEADS]] for part in (printed, below))
    shares, owners = shares[:MOST_HEADS, :MOST_ROLES], owners[:MOST_HEADS]
    words = _Table(shares, owners, tuple(roles)[:MOST_ROLES], tuple(under)[:MOST_ROLES], printed, below)
    table, width, height = _table(words, 640 if score else WIDE, 140)
    beside = WIDE - 10 - max(width + 72, 476) >= 340
    parts: list[Element | None] = [table]
    deep = height
    if score is not None:
        left = max(width + 72, 476) if beside else 64
        drawn, tall = _strip(score, left, WIDE - 10)
        y = max((height - tall) / 2 + 14, 0) if beside else height + 40
        parts.append(group(drawn, transform=f"translate(0 {n(y)})"))
        deep = max(height, y + tall)
    wide = drawing(WIDE, deep + 4, parts)
    table, width, height = _table(words, NARROW - 2, 154)
    parts = [table]
    deep = height
    if score is not None:
        drawn, tall = _strip(score, 10, NARROW - 12)
        parts.append(group(drawn, transform=f"translate(0 {n(height + 44)})"))
        deep = height + 44 + tall
    return with_sentence(Figure(title, description, caption, wide, drawing(NARROW, deep + 4, parts)), said)


@dataclass(frozen=True)
class _Table:
    shares: np.ndarray
    heads: Sequence[Head]
    roles: Sequence[Rich]
    role_notes: Sequence[Rich]
    texts: Sequence[Sequence[str]]
    notes: Sequence[Sequence[str]]


def _table(table: _Table, space: Real, cell: Real) -> tuple[Element, Real, Real]:
    """The cells with their heads and roles; how wide and how high they are."""
    count = len(table.roles)
    mark = max(44.0, max(badge_width(one) for one in table.heads)) if space > NARROW else 36.0
    left = mark + (20 if space > NARROW else 10)
    cell = min(cell, (space - left) / count - 4)
    tall = 74.0 if len(table.heads) <= 4 else 48.0
    noted = any(plain(note) for row in table.notes for note in row)
    if not noted:
        tall = min(tall, 56.0)
    longest = max(measure(word, TICK) for role in table.roles for word in plain(role).split() or [""])
    turned = longest > cell
    top = 48.0 if not turned else 12 + min(max(measure(role) for role in table.roles), 130.0)
    largest = float(table.shares.max()) or 1.0
    whole = group()
    for column, (role, note) in enumerate(zip(table.roles, table.role_notes)):
        middle = left + (cell + 4) * column + cell / 2
        if turned:
            whole.add(label(middle + 5, top - 8, role, rotate=True, width=126))
            continue
        if plain(note) or measure(role) <= cell:
            whole.add(label(middle, 18 if plain(note) else 36, role, anchor="middle", width=cell))
            whole.add(label(middle, 36, note, size=TICK, fill="muted", anchor="middle", width=cell))
            continue
        lines = lines_of(role, cell, TICK, 2)
        for index, one in enumerate(lines):
            whole.add(label(middle, 38 - 16 * (len(lines) - 1 - index), one, size=TICK, anchor="middle"))
    for row, owner in enumerate(table.heads):
        y = top + (tall + 4) * row
        whole.add(badge(0, y + tall / 2 - 15, owner, width=mark, height=30))
        for column in range(count):
            x = left + (cell + 4) * column
            share = float(table.shares[row, column]) / largest
            opacity, ink = readable_opacity(owner.colour, share) if share >= 0.02 else (0.0, "ink")
            whole.add(rect(x, y, cell, tall, rx=3, fill="tile"))
            if opacity:
                whole.add(rect(x, y, cell, tall, rx=3, fill=owner.colour, fill_opacity=round(opacity, 2)))
            size = 20 if cell >= 76 else 14 if cell >= 46 else 11
            note = table.notes[row][column] if cell >= 60 else ""
            text = table.texts[row][column]
            up = 8 if plain(note) else 0
            whole.add(
                label(
                    x + cell / 2,
                    y + tall / 2 + size * 0.36 - up,
                    text,
                    size=size,
                    bold=True,
                    fill=ink,
                    anchor="middle",
                    width=cell - 2,
                ),
                label(
                    x + cell / 2,
                    y + tall / 2 + 20,
                    note,
                    size=TICK,
                    fill=ink if opacity > 0.3 else "muted",
                    anchor="middle",
                    width=cell - 4,
                ),
            )
    return whole, left + (cell + 4) * count - 4, top + (tall + 4) * len(table.heads) - 4


def _strip(score: ScoreStrip, left: Real, right: Real) -> tuple[Element, Real]:
    """The score on its axis: a band and a dotted line for chance, a dot for each trained seed."""
    values, chance = array(score.values).reshape(-1), array(score.chance).reshape(-1)
    if not np.isfinite(values).all() or not np.isfinite(chance).all():
        raise RequestError(f"the score {plain(score.label)!r} holds a value that is not finite")
    x = ruler(score.axis or Axis(domain=(0, 1), ticks=(0, 0.25, 0.5, 0.75, 1)), [*values, *chance], left, right, most=5)
    owners = heads_of(score.heads)
    radius = 4.0
    columns = stacked(sorted(x(value) for value in values), 2 * radius)
    pitch = min(2 * radius + 0.2, 120 / max((len(column) for column in columns), default=1))
    deep = max((len(column) for column in columns), default=1) * pitch
    base = 46 + max(deep + 8, 44)
    whole = group(
        label(left, 14, score.label, bold=True, width=right - left),
        label(left, 33, score.note, size=TICK, fill="muted", width=right - left),
    )
    if len(chance):
        low, middle, high = (float(np.percentile(chance, share)) for share in (5, 50, 95))
        whole.add(rect(x(low), base - 34, max(x(high) - x(low), 2), 34, fill="hairline"))
        whole.add(line(x(middle), base - 34, x(middle), base, stroke="ink", stroke_width=1.5, stroke_dasharray="2 2.5"))
    for column in columns:
        at = sum(column) / len(column)
        for index in range(len(column)):
            whole.add(dot(at, base - 6 - pitch * index, owners, radius))
    whole.add(bottom_axis(x, base))
    half = right - left
    lines = (
        (score.chance_label, score.chance_note, "start", left),
        (score.value_label, score.value_note, "end", right),
    )
    y = base + 42
    needs = [max(measure(text, bold=True), measure(note, TICK)) for text, note, _, _ in lines]
    both = sum(needs) + 24 <= right - left
    for index, (text, note, anchor, at) in enumerate(lines):
        down = 0 if both or index == 0 else 42
        whole.add(
            label(at, y + down, text, anchor=anchor, width=half),
            label(at, y + down + 17, note, size=TICK, fill="muted", anchor=anchor, width=half),
        )
    return whole, y + 20 + (0 if both else 42)
