"""The marks that several figures share: dots, badges, axes, the key of the diverging scale."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import SupportsFloat

from headlab.interp.render.axis import Ruler
from headlab.interp.render.diverging import STEPS, step_colour
from headlab.interp.render.svg import Element, el, fit, group, label, line, measure, n, path, rect
from headlab.interp.render.text import Real, Rich, plain
from headlab.interp.render.theme import Head

TICK = 12.5
BADGE = 22


def dot(x: SupportsFloat, y: SupportsFloat, heads: Sequence[Head], radius: Real = 4.0) -> Element:
    """A dot in a head's colour; one sector for each head of a model with several, A on the left."""
    x, y = float(x), float(y)
    if len(heads) == 1:
        return el("circle", cx=x, cy=y, r=radius, fill=heads[0].colour)
    whole = group()
    for index, one in enumerate(heads):
        begin, end = (1.5 * math.pi - 2 * math.pi * turn / len(heads) for turn in (index, index + 1))
        x1, y1 = x + radius * math.cos(begin), y + radius * math.sin(begin)
        x2, y2 = x + radius * math.cos(end), y + radius * math.sin(end)
        big = int(2 / len(heads) > 1)
        d = f"M{n(x)} {n(y)}L{n(x1)} {n(y1)}A{n(radius)} {n(radius)} 0 {big} 0 {n(x2)} {n(y2)}z"
        whole.add(path(d, fill=one.colour))
    return whole


def diamond(x: SupportsFloat, y: SupportsFloat, heads: Sequence[Head], radius: Real = 5.0) -> Element:
    """A diamond, for what was not trained: the first head's colour."""
    x, y = float(x), float(y)
    d = f"M{n(x)} {n(y - radius)}L{n(x + radius)} {n(y)}L{n(x)} {n(y + radius)}L{n(x - radius)} {n(y)}z"
    return path(d, fill=heads[0].colour)


def stacked(pixels: Iterable[Real], within: Real) -> list[list[Real]]:
    """Dots gathered into columns: equal values share one, and so does what lies less than `within` px from its first.
    A column stands at the mean of its pixels."""
    columns: list[list[Real]] = []
    for pixel in sorted(pixels):
        if columns and pixel - columns[-1][0] < within:
            columns[-1].append(pixel)
        else:
            columns.append([pixel])
    return columns


def badge_width(head: Head, least: Real = 26, most: Real = 96) -> Real:
    """How wide a head's badge is."""
    return min(max(least, measure(head.shown, 13, bold=True) + 14), most)


def badge(
    x: SupportsFloat, y: SupportsFloat, head: Head, *, width: Real | None = None, height: Real = BADGE
) -> Element:
    """A head's badge with its top left corner at (x, y): its letter on its colour."""
    x, y = float(x), float(y)
    width = badge_width(head) if width is None else width
    size = 13 if height <= 24 else 16
    return group(
        rect(x, y, width, height, rx=6, fill=head.colour),
        label(
            x + width / 2,
            y + height / 2 + size * 0.36,
            head.shown,
            size=size,
            bold=True,
            fill="on",
            anchor="middle",
            width=width - 6,
        ),
    )


def thinned(ruler: Ruler, *, size: Real = TICK, gap: Real = 10) -> list[tuple[Real, str, bool]]:
    """The ticks as (pixel, text, whether the text has space): texts are left out evenly until none touches another."""
    places = [(ruler(value), text) for value, text in ruler.ticks]
    for stride in range(1, len(places) + 1):
        kept = places[::stride]
        ends = [(x - measure(text, size) / 2, x + measure(text, size) / 2) for x, text in kept]
        if all(
            after[0] - before[1] >= gap or after[1] <= before[0] - gap for before, after in itertools.pairwise(ends)
        ) and ((len(places) - 1) % stride == 0 or stride > 4):
            return [(x, text, index % stride == 0) for index, (x, text) in enumerate(places)]
    return [(x, text, index == 0) for index, (x, text) in enumerate(places)]


def bottom_axis(ruler: Ruler, y: Real, text: Rich = "", *, gap: Real = 10) -> Element:
    """A horizontal axis at `y` with ticks below it, and its label below them; `axis_height` says how far it reaches."""
    whole = group(line(ruler.start, y, ruler.end, y, stroke="axis"))
    for x, shown, named in thinned(ruler, gap=gap):
        whole.add(line(x, y, x, y + 4, stroke="axis"))
        if named:
            whole.add(label(x, y + 20, shown, size=TICK, fill="muted", anchor="middle"))
    middle = (ruler.start + ruler.end) / 2
    for index, one in enumerate(axis_lines(ruler, text)):
        whole.add(label(middle, y + 38 + 17 * index, one, size=TICK, fill="muted", anchor="middle"))
    return whole


def axis_lines(ruler: Ruler, text: Rich) -> list[str]:
    """An axis's label, in two lines where one is too long for it."""
    return lines_of(text, ruler.end - ruler.start, TICK, 2)


def axis_height(ruler: Ruler, text: Rich) -> Real:
    """How far an axis with its label reaches below its line."""
    lines = len(axis_lines(ruler, text))
    return 26 if not lines else 29 + 17 * lines


def diverging_key(x: Real, y: Real, before: Rich, after: Rich, *, cell: Real = 16, width: Real = math.inf) -> Element:
    """The thirteen colours of the diverging scale in a row with words at both ends, their top at `y`."""
    space = min(width, 1000) * 0.3
    whole = group(label(x, y + cell * 0.72, before, fill="muted", width=space))
    at = x + min(measure(before, 14), space) + (8 if plain(before) else 0)
    for step in range(-STEPS, STEPS + 1):
        whole.add(rect(at, y, cell - 1, cell * 0.6 + 1, fill=step_colour(step)))
        at += cell
    return whole.add(label(at + 8, y + cell * 0.72, after, fill="muted", width=max(width - at - 8 + x, 40)))


def lines_of(text: Rich, width: Real, size: Real, most: int = 3, *, bold: bool = False) -> list[str]:
    """Plain text broken into at most `most` lines of `width` px; an ellipsis where more follows."""
    words, lines = plain(text).split(), [""]
    for index, word in enumerate(words):
        longer = f"{lines[-1]} {word}".strip()
        if measure(longer, size, bold=bold) <= width or not lines[-1]:
            lines[-1] = longer
        elif len(lines) == most:
            lines[-1] = plain(fit(f"{lines[-1]} {' '.join(words[index:])}", width, size, bold=bold))
            return lines
        else:
            lines.append(word)
    return [plain(fit(one, width, size, bold=bold)) for one in lines if one]


def apart(wanted: Iterable[tuple[Real, Real]], low: Real, high: Real) -> list[Real]:
    """Centres for boxes of (centre, extent) such that none overlaps: moved as little as a sweep down and up allows."""
    boxes = list(wanted)
    order = sorted(range(len(boxes)), key=lambda index: boxes[index][0])
    placed = [0.0] * len(boxes)
    edge = low
    for index in order:
        centre, extent = boxes[index]
        placed[index] = max(centre, edge + extent / 2)
        edge = placed[index] + extent / 2
    edge = high
    for index in reversed(order):
        extent = boxes[index][1]
        placed[index] = min(placed[index], edge - extent / 2)
        edge = placed[index] - extent / 2
    return placed
