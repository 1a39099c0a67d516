"""QK and OV of heads in token space, side by side: learned beside constructed, rows and colours shared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headlab.interp.errors import RequestError
from headlab.interp.render.caps import left_out, with_sentence
from headlab.interp.render.diverging import array, dashes, heat, symmetric_limit
from headlab.interp.render.figure import NARROW, WIDE, Drawing, Figure, drawing
from headlab.interp.render.marks import TICK, badge, badge_width, diverging_key, lines_of
from headlab.interp.render.svg import Element, group, label, measure, n, path, rect
from headlab.interp.render.text import Real, Rich, mono, plain
from headlab.interp.render.theme import Head, head

MOST_PAIRS = 12
MOST_SIDE = 160


@dataclass(frozen=True)
class RowGroup:
    """Neighbouring rows of the matrices: a block with one label (`label`, `note`), or with a name per row (`names`)."""

    count: int
    label: Rich = ""
    note: Rich = ""
    names: Sequence[str] = ()


@dataclass(frozen=True)
class HeadMatrices:
    """One head of one model. qk: [row], the attention score of a key token; ov: [row, column], what attending to it
    adds to each logit. Each on its own symmetric scale."""

    head: str | Head
    label: Rich
    qk: Any
    ov: Any


def weight_matrices(
    pairs: Sequence[Sequence[HeadMatrices]],
    *,
    groups: Sequence[RowGroup],
    title: str,
    description: str,
    caption: Rich = "",
    similarity: Sequence[Rich] = (),
    negative: str = "negative",
    positive: str = "positive, grey within 10\u202f% of zero, each matrix on its own scale",
    qk_heading: str = "QK",
    ov_heading: str = "OV: effect on logit",
) -> Figure:
    """Matched heads beside each other: per pair (learned, constructed) a QK strip and an OV matrix each.

    pairs: one per matched head, of one or two HeadMatrices. groups: how the rows divide; their counts add up to the
    rows. similarity: one line per pair, below it. Two pairs stand side by side in the wide drawing. Past 12 pairs, 160
    rows or 160 columns the first are drawn, and the picture says so. Raises ValueError where counts and shapes differ.
    """
    if not pairs or any(not 1 <= len(pair) <= 2 for pair in pairs):
        raise RequestError("weight matrices need at least one pair, and one or two models in each")
    if similarity and len(similarity) != len(pairs):
        raise RequestError(f"there are {len(pairs)} pairs and {len(similarity)} lines of similarity")
    shown = [[_read(one) for one in pair] for pair in pairs]
    shapes = {one.ov.shape for pair in shown for one in pair}
    rows = sum(group_.count for group_ in groups)
    if len(shapes) != 1:
        raise RequestError(f"matrices that stand beside each other have one shape, and these have {sorted(shapes)}")
    shape = shapes.pop()
    if shape[0] != rows:
        raise RequestError(f"the groups count {rows} rows and the matrices have {shape[0]}")
    for one in groups:
        if one.names and len(one.names) != one.count:
            raise RequestError(f"a group of {one.count} rows has {len(one.names)} names")
    said = left_out((len(pairs), MOST_PAIRS, "pairs"), (rows, MOST_SIDE, "rows"), (shape[1], MOST_SIDE, "columns"))
    shown = [[_cut(one) for one in pair] for pair in shown[:MOST_PAIRS]]
    groups, columns = _first(groups, MOST_SIDE), min(shape[1], MOST_SIDE)
    words = _MatrixWords(tuple(groups), tuple(similarity), negative, positive, qk_heading, ov_heading)
    figure = Figure(title, description, caption, _wide(shown, words, columns), _narrow(shown, words, columns))
    return with_sentence(figure, said)


def _cut(one: _Read) -> _Read:
    return replace(one, qk=one.qk[:MOST_SIDE], ov=one.ov[:MOST_SIDE, :MOST_SIDE])


def _first(groups: Sequence[RowGroup], most: int) -> list[RowGroup]:
    """The groups of the first `most` rows, the last one cut."""
    kept: list[RowGroup] = []
    for one in groups:
        count = min(one.count, most - sum(each.count for each in kept))
        if count > 0:
            kept.append(replace(one, count=count, names=list(one.names)[:count]))
    return kept


@dataclass(frozen=True)
class _Read:
    head: Head
    label: Rich
    qk: np.ndarray
    ov: np.ndarray


@dataclass(frozen=True)
class _MatrixWords:
    groups: tuple[RowGroup, ...]
    similarity: tuple[Rich, ...]
    negative: str
    positive: str
    qk: str
    ov: str


def _read(one: HeadMatrices) -> _Read:
    qk, ov = array(one.qk).reshape(-1), array(one.ov)
    if ov.ndim != 2 or len(qk) != len(ov):
        raise RequestError(f"qk has shape {qk.shape} and ov {ov.shape}: [row] and [row, column] are needed")
    return _Read(head(one.head), one.label, qk, ov)


_BETWEEN = 8.0


def _cell(space: Real, columns: int, most: Real) -> Real:
    """The largest cell for a QK strip, a gap and an OV matrix in `space` px: whole px where that is 5 or more."""
    cell = min((space - 12) / (columns + 1), most)
    return math.floor(cell) if cell >= 5 else cell


def _wide(pairs: Sequence[Sequence[_Read]], words: _MatrixWords, columns: int) -> Drawing:
    left = 100.0
    most = max(len(pair) for pair in pairs)
    across = min(len(pairs), 2)
    space = (WIDE - left - 36.0 * (across - 1)) / across
    cell = _cell((space - 25 * (most - 1)) / most, columns, 16)
    if across == 2 and cell < 4:
        across, space = 1, WIDE - left
        cell = _cell((space - 25 * (most - 1)) / most, columns, 16)
    parts: list[Element | None] = [_key(words, WIDE)]
    y = 66.0
    for start in range(0, len(pairs), across):
        x = left
        for index, pair in enumerate(pairs[start : start + across]):
            drawn, right, bottom = _pair(pair, words, x, y, cell, _line(words, start + index), bracket=index == 0)
            parts.append(drawn)
            x = right + max(36.0, 60 if cell < 12 else 36)
        y = bottom + 40
    return drawing(WIDE, y - 32, parts)


def _narrow(pairs: Sequence[Sequence[_Read]], words: _MatrixWords, columns: int) -> Drawing:
    left = 74.0
    most = max(len(pair) for pair in pairs)
    cell = _cell((NARROW - left - 16 * (most - 1)) / most, columns, 14)
    parts: list[Element | None] = [_key(words, NARROW)]
    y = 84.0
    for index, pair in enumerate(pairs):
        drawn, _, bottom = _pair(pair, words, left, y, cell, _line(words, index), bracket=True, gap=16, label_size=TICK)
        parts.append(drawn)
        y = bottom + 40
    return drawing(NARROW, y - 32, parts)


def _line(words: _MatrixWords, index: int) -> Rich:
    return words.similarity[index] if words.similarity else ""


def _key(words: _MatrixWords, width: Real) -> Element:
    if 8 + measure(words.negative) + 13 * 16 + measure(words.positive) + 16 <= width:
        return diverging_key(0, 2, words.negative, words.positive, width=width)
    first, _, rest = words.positive.partition(",")
    whole = diverging_key(0, 2, words.negative, first, cell=14, width=width)
    return whole.add(label(0, 38, rest.strip(), fill="muted", width=width))


def _pair(
    pair: Sequence[_Read],
    words: _MatrixWords,
    left: Real,
    top: Real,
    cell: Real,
    similarity: Rich,
    *,
    bracket: bool,
    gap: Real = 25,
    label_size: Real = 14,
) -> tuple[Element, Real, Real]:
    """One head in its one or two models; returns how far it reaches to the right and down."""
    whole = group()
    starts = [0.0]
    for one in words.groups:
        starts.append(starts[-1] + one.count * cell + _BETWEEN)
    deep = starts[-1] - _BETWEEN
    body = top + 58
    x = left
    columns = pair[0].ov.shape[1]
    strip = max(cell, 6.0)
    ov = strip + (12 if cell >= 9 else 8)
    extent = ov + columns * cell
    space = gap if len(pair) > 1 else 60.0
    for one in pair:
        wide = badge_width(one.head)
        whole.add(badge(x, top, one.head, width=wide))
        named = label(x + wide + 8, top + 16, one.label, size=label_size, bold=True, width=extent + space - wide - 12)
        whole.add(named)
        qk = label(x + strip / 2, top + 46, words.qk, size=TICK, fill="muted", anchor="middle", width=26)
        begin = max(x + ov, x + strip / 2 + min(measure(words.qk, TICK), 26) / 2 + 6)
        over = label(begin, top + 46, words.ov, size=TICK, fill="muted", width=x + extent + space - 14 - begin)
        whole.add(qk, over)
        limits = symmetric_limit(one.qk), symmetric_limit(one.ov)
        row = 0
        for start, rows in zip(starts, words.groups):
            y = body + start
            stop = row + rows.count
            height = rows.count * cell
            whole.add(
                rect(x, y, strip - (cell >= 5), height - (cell >= 5), fill="zero"),
                rect(x + ov, y, columns * cell - (cell >= 5), height - (cell >= 5), fill="zero"),
                heat(one.qk[row:stop, None], limits[0], x, y, strip, cell),
                heat(one.ov[row:stop], limits[1], x + ov, y, cell),
                dashes(one.qk[row:stop, None], limits[0], x, y, strip, cell) if cell >= 8 else None,
                dashes(one.ov[row:stop], limits[1], x + ov, y, cell, cell) if cell >= 8 else None,
            )
            row = stop
        x += extent + gap
    if bracket:
        whole.add(*_row_labels(words, starts, left, body, cell, label_size))
    right = x - gap
    whole.add(
        label((left + right) / 2, body + deep + 22, similarity, size=label_size, anchor="middle", width=right - left)
    )
    return whole, right, body + deep + (26 if plain(similarity) else 0)


def _row_labels(
    words: _MatrixWords, starts: Sequence[Real], left: Real, body: Real, cell: Real, size: Real
) -> list[Element | None]:
    parts: list[Element | None] = []
    for start, rows in zip(starts, words.groups):
        y, height = body + start, rows.count * cell - 1
        if rows.names:
            stride = math.ceil(8.5 / cell)
            for index in range(0, rows.count, stride):
                name = rows.names[index]
                shown = mono(name) if len(name) == 1 else name
                where = y + cell * (index + 0.5) + 4
                parts.append(
                    label(left - 10, where, shown, size=min(size, max(cell, 10)), anchor="end", width=left - 12)
                )
            continue
        parts.append(
            path(
                f"M{n(left - 5)} {n(y)}H{n(left - 10)}V{n(y + height)}H{n(left - 5)}",
                fill="none",
                stroke="axis",
                stroke_width=1,
            )
        )
        middle = y + height / 2
        lines = [(one, size, "ink") for one in lines_of(rows.label, left - 18, size, 2)]
        lines += [(one, min(size, TICK), "muted") for one in lines_of(rows.note, left - 18, min(size, TICK), 2)]
        for index, (one, height_of, fill) in enumerate(lines):
            where = middle + 17 * (index - (len(lines) - 2) / 2)
            parts.append(label(left - 16, where, one, size=height_of, fill=fill, anchor="end"))
    return parts
