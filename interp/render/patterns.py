"""Whole attention patterns: a grid of small heat maps, cut to a stated size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from headlab.interp.errors import RequestError
from headlab.interp.render.diverging import array
from headlab.interp.render.figure import NARROW, WIDE, Drawing, Figure, drawing
from headlab.interp.render.marks import badge, lines_of
from headlab.interp.render.svg import Element, group, label, measure, n, path, rect
from headlab.interp.render.text import Real, Rich, token
from headlab.interp.render.theme import Head, head

MOST_POSITIONS = 64
MOST_HEADS = 24


def attention_patterns(
    patterns: Any,
    queries: Sequence[str],
    *,
    title: str,
    description: str,
    caption: Rich = "",
    heads: Sequence[str | Head] | None = None,
    keys: Sequence[str] | None = None,
    most_positions: int = MOST_POSITIONS,
    most_heads: int = MOST_HEADS,
    key_axis: str = "key",
    query_axis: str = "query",
) -> Figure:
    """Whole attention patterns as a grid of small heat maps, a static picture.

    patterns: [head, query, key], each in [0, 1]. queries, keys: token labels, as many as positions (keys as queries
    where left out). heads: one per pattern. Past `most_positions` positions and `most_heads` heads the picture shows
    the first ones, and says so in itself. Raises ValueError where labels and patterns differ in number.
    """
    weights = array(patterns)
    if weights.ndim == 2:
        weights = weights[None]
    columns = list(queries if keys is None else keys)
    if weights.ndim != 3 or weights.shape[1:] != (len(queries), len(columns)):
        raise RequestError(
            f"patterns have shape {weights.shape}, and there are {len(queries)} query and {len(columns)} key labels: "
            "[head, query, key] is needed, and a label for every position"
        )
    unnamed = [Head("ink", str(index)) for index in range(len(weights))]
    owners = unnamed if heads is None else [head(one) for one in heads]
    if len(owners) != len(weights):
        raise RequestError(f"there are {len(weights)} patterns and {len(owners)} heads")
    if weights.size == 0:
        raise RequestError("attention patterns need at least one head and one position")
    if not ((weights >= -1e-6) & (weights <= 1 + 1e-6)).all():
        raise RequestError(f"attention lies in [0, 1], and a pattern holds {weights.min():g} .. {weights.max():g}")
    said = cut(weights.shape, most_heads, most_positions)
    weights = weights[:most_heads, :most_positions, :most_positions]
    rows, columns = [token(one) for one in queries[:most_positions]], [token(one) for one in columns[:most_positions]]
    owners = owners[:most_heads]
    sheets = [
        _pattern_sheet(weights, rows, columns, owners, said, (query_axis, key_axis), across, width)
        for across, width in ((min(4, max(len(owners), 2)), WIDE), (2 if len(owners) > 1 else 1, NARROW))
    ]
    return Figure(title, description, caption, wide=sheets[0], narrow=sheets[1])


def cut(shape: Sequence[int], most_heads: int, most_positions: int) -> str:
    """The sentence that says what of [head, query, key] a picture leaves out; empty where it shows everything."""
    parts = []
    if shape[0] > most_heads:
        parts.append(f"the first {most_heads} of {shape[0]} heads")
    if max(shape[1:]) > most_positions:
        parts.append(f"the first {most_positions} of {max(shape[1:])} positions")
    return f"Shown: {' and '.join(parts)}." if parts else ""


# Where one opacity of a head's colour ends and the next begins: attention spreads thin over long inputs.
_EDGES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7)


def _pattern_sheet(
    weights: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    owners: Sequence[Head],
    said: str,
    axes: tuple[str, str],
    across: int,
    width: Real,
) -> Drawing:
    each = (width - 24.0 * (across - 1)) / across
    size = 11.5
    margin = min(max(measure(name, size) for name in rows) + 8, each * 0.3)
    foot = min(max(measure(name, size) for name in columns) + 8, 80.0)
    side = min(each - margin, 300.0)
    cell = side / max(len(rows), len(columns))
    sentence = lines_of(said, width, 14, bold=True)
    top = 16.0 + 20 * len(sentence) if said else 4.0
    deep = 34 + cell * len(rows) + foot + 44
    parts: list[Element | None] = [label(0, 16 + 20 * index, one, bold=True) for index, one in enumerate(sentence)]
    stride = math.ceil(12.5 / cell)
    for index, (pattern, owner) in enumerate(zip(weights, owners)):
        left, y = (each + 24) * (index % across), top + deep * (index // across)
        x = left + margin
        parts.append(badge(x, y, owner))
        y += 32
        parts.append(rect(x, y, cell * len(columns), cell * len(rows), fill="tile"))
        parts.append(cells(pattern, _EDGES, x, y, cell, owner.colour))
        for place in range(0, len(rows), stride):
            where = y + cell * (place + 0.5) + 4
            parts.append(label(x - 6, where, rows[place], size=size, fill="muted", anchor="end", width=margin - 8))
        bottom = y + cell * len(rows)
        for place in range(0, len(columns), stride):
            where = x + cell * (place + 0.5) + 4
            name = columns[place]
            parts.append(
                label(where, bottom + 6, name, size=size, fill="muted", anchor="end", rotate=True, width=foot - 8)
            )
        words = f"{axes[1]} →  {axes[0]} ↓"
        parts.append(label(x, bottom + foot + 16, words, size=size, fill="muted", width=side))
    count = math.ceil(len(owners) / across)
    return drawing(width, top + deep * count - 18, parts)


def cells(values: np.ndarray, edges: Sequence[Real], x: Real, y: Real, cell: Real, colour: str) -> Element:
    """A heat map of one colour: a path for each opacity, runs of equal cells as one rectangle."""
    steps = np.searchsorted(np.asarray(edges), values, side="right")
    gap = 0.06 if cell >= 10 else 0.0
    whole = group(transform=f"translate({n(x)} {n(y)}) scale({cell:.4g})", fill=colour)
    for step in range(1, len(edges) + 1):
        d = "".join(
            f"M{start} {row}h{n(stop - start - gap)}v{n(1 - gap)}h{n(start - stop + gap)}z"
            for row, line_ in enumerate(steps)
            for start, stop in _runs(line_ == step, joined=gap == 0)
        )
        if d:
            whole.add(path(d, fill_opacity=round(0.12 + 0.88 * step / len(edges), 2)))
    return whole


def _runs(marks: np.ndarray, *, joined: bool) -> list[tuple[int, int]]:
    places = np.flatnonzero(marks).tolist()
    if not joined:
        return [(place, place + 1) for place in places]
    runs: list[tuple[int, int]] = []
    for place in places:
        if runs and runs[-1][1] == place:
            runs[-1] = (runs[-1][0], place + 1)
        else:
            runs.append((place, place + 1))
    return runs
