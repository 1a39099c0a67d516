"""Arc diagram: names in an order, arcs that follow the order on one side, arcs that go against it on the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsInt

from headlab.interp.errors import OutOfRange, RequestError
from headlab.interp.render.caps import left_out, with_sentence
from headlab.interp.render.figure import WIDE, Drawing, Figure, drawing
from headlab.interp.render.marks import TICK
from headlab.interp.render.svg import Element, el, escape, group, label, measure, n, path
from headlab.interp.render.text import Real, Rich, plain

MOST_NAMES = 400
MOST_ARCS = 4000


def arc_diagram(
    names: Sequence[str],
    arcs: Sequence[Sequence[SupportsInt]],
    *,
    title: str,
    description: str,
    caption: Rich = "",
    forward: Rich = "",
    forward_short: Rich = "",
    forward_note: Rich = "",
    backward: Rich = "",
    backward_short: Rich = "",
    backward_note: Rich = "",
    order: Rich = "",
    hubs: Sequence[SupportsInt] = (),
    listing: str = "",
    width: int = WIDE,
) -> Figure:
    """A directed graph in an order: arcs (i, j) with i < j above the names, the others below.

    names: in the order. arcs: pairs of places in `names`; repeated pairs are drawn once, a loop (i, i) as a ring.
    forward, backward: the sentences above and below, with the counts; `*_short` and `*_note`: two short lines each for
    the narrow drawing. order: what the order is, top right. hubs: places of names in bold. listing: the summary of a
    list of the backward arcs as text; none where empty. width: of the wide drawing, for a figure beside text (620).
    Past 400 names, or 4000 arcs between them, the first are drawn, and the picture says so. Raises ValueError for no
    names, and IndexError for an arc to a name that is not there.
    """
    if not names:
        raise RequestError("an arc diagram needs at least one name")
    pairs = list(dict.fromkeys((int(i), int(j)) for i, j in arcs))
    for i, j in pairs:
        if not (0 <= i < len(names) and 0 <= j < len(names)):
            raise OutOfRange(f"the arc ({i}, {j}) leaves the {len(names)} names, which count from 0")
    kept = [(i, j) for i, j in pairs if max(i, j) < MOST_NAMES]
    said = left_out((len(names), MOST_NAMES, "names"), (len(kept), MOST_ARCS, "arcs between them"))
    names, pairs = names[:MOST_NAMES], kept[:MOST_ARCS]
    bolds = frozenset(int(hub) for hub in hubs)
    wide = _wide(names, pairs, bolds, forward, backward, order, float(width))
    narrow = _narrow(
        names, pairs, bolds, (forward_short or forward, forward_note), (backward_short or backward, backward_note)
    )
    lines = "".join(
        f"<li><bdi>{escape(names[i])}</bdi> → <bdi>{escape(names[j])}</bdi></li>" for i, j in pairs if i > j
    )
    after = (
        f'<details><summary>{escape(listing)}</summary><ul class="hl-list">{lines}</ul></details>' if listing else ""
    )
    return with_sentence(Figure(title, description, caption, wide, narrow, after=after, assets=("figure.js",)), said)


def _heights(pairs: Sequence[tuple[int, int]], highest: Real) -> dict[int, Real]:
    """The height of an arc by its span: span^0.75, the longest of both sides at `highest`."""
    longest = max((abs(i - j) for i, j in pairs), default=1) or 1
    return {span: highest * (span / longest) ** 0.75 for span in range(longest + 1)}


def _arcs(
    pairs: Sequence[tuple[int, int]],
    place: Sequence[Real],
    base: Real,
    heights: dict[int, Real],
    *,
    upright: bool,
    turn: int,
    **look: str | Real,
) -> Element:
    """Half ellipses over `base`; turn: +1 or -1, the side that they bend to. A loop is a ring."""
    whole = group(fill="none", **look)
    for i, j in pairs:
        data = f"{i} {j}"
        if i == j:
            along, across = place[i], base + (6 if turn > 0 else -6)
            x, y = (across, along) if upright else (along, across)
            whole.add(el("circle", cx=x, cy=y, r=5, data_e=data))
            continue
        low, high = sorted((place[i], place[j]))
        radius, height = n((high - low) / 2), n(heights[abs(i - j)])
        if upright:
            sweep = int(turn > 0)
            d = f"M{n(base)} {n(low)}A{height} {radius} 0 0 {sweep} {n(base)} {n(high)}"
        else:
            sweep = int(turn < 0)
            d = f"M{n(low)} {n(base)}A{radius} {height} 0 0 {sweep} {n(high)} {n(base)}"
        whole.add(path(d, data_e=data))
    return whole


def _wide(
    names: Sequence[str],
    pairs: Sequence[tuple[int, int]],
    hubs: frozenset[int],
    forward: Rich,
    backward: Rich,
    order: Rich,
    width: Real,
) -> Drawing:
    ahead = [(i, j) for i, j in pairs if i <= j]
    back = [(i, j) for i, j in pairs if i > j]
    step = (width - 32) / max(len(names) - 1, 1)
    place = [16 + step * index for index in range(len(names))] if len(names) > 1 else [width / 2]
    highest = min(250.0, 0.32 * width)
    heights = _heights(pairs, highest)
    reach = max((heights[j - i] for i, j in ahead), default=12)
    depth = 0.7 * max((heights[i - j] for i, j in back), default=12)
    size = min(11.5, max(step * 0.95, 4))
    room = min(max(measure(name, size, bold=index in hubs) for index, name in enumerate(names)), 150)
    top = 34 + reach
    bottom = top + room + 30
    asked = measure(order, TICK)
    parts: list[Element | None] = [
        label(0, 14, forward, width=width - asked - 24),
        label(width, 14, order, size=TICK, fill="muted", anchor="end", width=width / 2),
        _arcs(
            ahead, place, top, heights, upright=False, turn=-1, stroke="head-one", stroke_width=1, stroke_opacity=0.26
        ),
        _arcs(
            back,
            place,
            bottom,
            {span: 0.7 * height for span, height in heights.items()},
            upright=False,
            turn=1,
            stroke="negative",
            stroke_width=1.3,
            stroke_opacity=0.8,
        ),
    ]
    dots = group(fill="head-one")
    for x in place:
        dots.add(el("circle", cx=x, cy=top, r=2.8), el("circle", cx=x, cy=bottom, r=2.8))
    parts.append(dots)
    for index, (name, x) in enumerate(zip(names, place)):
        text = label(
            x + size * 0.36,
            (top + bottom) / 2,
            name,
            width=room + 1,
            size=size,
            bold=index in hubs,
            anchor="middle",
            rotate=True,
            data_n=str(index),
        )
        parts.append(text)
    parts.append(label(0, bottom + depth + 28, backward, width=width))
    return drawing(width, bottom + depth + (36 if plain(backward) else 12), parts)


def _narrow(
    names: Sequence[str],
    pairs: Sequence[tuple[int, int]],
    hubs: frozenset[int],
    forward: tuple[Rich, Rich],
    backward: tuple[Rich, Rich],
) -> Drawing:
    ahead = [(i, j) for i, j in pairs if i <= j]
    back = [(i, j) for i, j in pairs if i > j]
    pitch = 16.0 if len(names) > 24 else 24.0
    place = [64 + pitch * index for index in range(len(names))]
    left, right = 106.0, 234.0
    heights = _heights(pairs, 1.0)
    parts: list[Element | None] = [
        label(2, 16, backward[0], width=220),
        label(2, 34, backward[1], size=TICK, fill="muted", width=220),
        label(right - 2, 16, forward[0], width=138),
        label(right - 2, 34, forward[1], size=TICK, fill="muted", width=138),
        _arcs(
            ahead,
            place,
            right,
            {span: 132 * height for span, height in heights.items()},
            upright=True,
            turn=1,
            stroke="head-one",
            stroke_width=1,
            stroke_opacity=0.26,
        ),
        _arcs(
            back,
            place,
            left,
            {span: 102 * height for span, height in heights.items()},
            upright=True,
            turn=-1,
            stroke="negative",
            stroke_width=1.3,
            stroke_opacity=0.8,
        ),
    ]
    dots = group(fill="head-one")
    for y in place:
        dots.add(el("circle", cx=left, cy=y, r=2.4), el("circle", cx=right, cy=y, r=2.4))
    parts.append(dots)
    for index, (name, y) in enumerate(zip(names, place)):
        middle = (left + right) / 2
        parts.append(
            label(middle, y + 4, name, width=114, size=11.5, bold=index in hubs, anchor="middle", data_n=str(index))
        )
    return drawing(372, place[-1] + 20, parts)
