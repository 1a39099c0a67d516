"""Circuit diagram: from tokens through heads to logits, one drawing per input, all on one scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, SupportsFloat

from headlab.interp.errors import OutOfRange, RequestError
from headlab.interp.render.caps import left_out, with_sentence
from headlab.interp.render.diverging import array
from headlab.interp.render.figure import NARROW, WIDE, Drawing, Figure, drawing
from headlab.interp.render.marks import TICK, badge, lines_of
from headlab.interp.render.svg import Element, el, group, label, line, measure, n, path
from headlab.interp.render.text import Real, Rich, italic, plain, signed, spans
from headlab.interp.render.theme import Head, head

MOST_PANELS = 12
MOST_NODES = 32


@dataclass(frozen=True)
class Node:
    """A node: a token, a logit or any other part, or a `head`. strong: the one that the answer hangs on."""

    label: Rich
    note: Rich = ""
    head: Head | None = None
    strong: bool = False


@dataclass(frozen=True)
class Link:
    """An edge from a node of one column to a node of a later one: (column, row) each, with its signed size.

    text: printed on it before its size, e.g. the input through which it enters. numbered: whether the size is printed.
    """

    source: tuple[int, int]
    target: tuple[int, int]
    value: SupportsFloat
    text: str = ""
    numbered: bool = True


@dataclass(frozen=True)
class CircuitPanel:
    """One input: columns of nodes from left to right, the edges between them, and what was asked and came out."""

    columns: Sequence[Sequence[Node]]
    links: Sequence[Link]
    question: Rich = ""
    result: Rich = ""


def token_head_logit(
    tokens: Sequence[Node],
    heads: Sequence[str | Head],
    logits: Sequence[Node],
    token_to_head: Any,
    head_to_logit: Any,
    *,
    question: Rich = "",
    result: Rich = "",
) -> CircuitPanel:
    """The usual three columns. token_to_head: [token, head], head_to_logit: [head, logit], signed, in one unit."""
    owners = [head(one) for one in heads]
    first, second = array(token_to_head), array(head_to_logit)
    if first.shape != (len(tokens), len(owners)):
        raise RequestError(f"token_to_head has shape {first.shape}: [token, head] is {(len(tokens), len(owners))}")
    if second.shape != (len(owners), len(logits)):
        raise RequestError(f"head_to_logit has shape {second.shape}: [head, logit] is {(len(owners), len(logits))}")
    links = [Link((0, i), (1, j), float(first[i, j])) for i in range(len(tokens)) for j in range(len(owners))]
    links += [Link((1, i), (2, j), float(second[i, j])) for i in range(len(owners)) for j in range(len(logits))]
    middle = [Node(one.shown, head=one) for one in owners]
    return CircuitPanel([list(tokens), middle, list(logits)], links, question, result)


def circuit_diagram(
    panels: Sequence[CircuitPanel],
    *,
    title: str,
    description: str,
    caption: Rich = "",
    headings: Sequence[str] = ("token", "head", "logit"),
    unit: str = "logits",
    threshold: SupportsFloat = 0.25,
    positive: str = "positive contribution",
    negative: str = "negative contribution",
    size: str = "width: size in logits",
    control: str = "Hide edges below",
    count: str = "{value} {unit}, {shown} of {total} edges",
    layout: Literal["row", "column"] = "row",
) -> Figure:
    """The attention circuit of one or several inputs, side by side on one scale of line widths.

    panels: one per input (two a row in the wide drawing, below each other in the narrow one). headings: one per
    column. threshold: where the slider starts, in `unit`; without scripts there is no slider and every edge is drawn.
    The words positive, negative, size, control, count label the legend and the slider. Past 12 panels, or 32 nodes in
    a column, the first are drawn, and the picture says so. Raises ValueError for no panels and for a value that is not
    finite, IndexError for an edge to a node that is not there.
    """
    if not panels:
        raise RequestError("a circuit diagram needs at least one panel")
    for panel in panels:
        _check(panel, headings)
    deepest = max(len(column) for panel in panels for column in panel.columns)
    said = left_out((len(panels), MOST_PANELS, "panels"), (deepest, MOST_NODES, "nodes of a column"))
    panels = [_cut(panel) for panel in panels[:MOST_PANELS]]
    largest = max((abs(float(link.value)) for panel in panels for link in panel.links), default=0.0) or 1.0
    total = sum(len(panel.links) for panel in panels)
    words = _CircuitWords(tuple(headings), unit, positive, negative, size, largest)
    wide = _sheet(panels, words, 2 if len(panels) > 1 and layout == "row" else 1, WIDE)
    narrow = _sheet(panels, words, 1, NARROW)
    start = min(max(float(threshold), 0.0), largest)
    before = str(
        el(
            "div",
            el(
                "label",
                f"{control} ",
                el(
                    "input",
                    type="range",
                    min="0",
                    max=f"{largest:.4g}",
                    step=f"{_step(largest):g}",
                    value=f"{start:g}",
                ),
            ),
            el("output", count.format(value=f"{start:.2f}", unit=unit, shown=total, total=total)),
            class_="hl-control",
            hidden="",
            data_count=count.replace("{unit}", unit),
        )
    )
    figure = Figure(title, description, caption, wide, narrow, before=before, assets=("figure.js",))
    return with_sentence(figure, said)


def _cut(panel: CircuitPanel) -> CircuitPanel:
    links = [link for link in panel.links if max(link.source[1], link.target[1]) < MOST_NODES]
    return replace(panel, columns=[list(column)[:MOST_NODES] for column in panel.columns], links=links)


def _step(largest: Real) -> Real:
    """A round step of the slider, about a three-hundredth of its range."""
    power = 10.0 ** math.floor(math.log10(largest / 300))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power * 300 >= largest)


@dataclass(frozen=True)
class _CircuitWords:
    headings: tuple[str, ...]
    unit: str
    positive: str
    negative: str
    size: str
    largest: Real


@dataclass(frozen=True)
class _Place:
    """Where a node stands: its middle, how far its mark reaches left and right, and its own text's box."""

    x: Real
    y: Real
    left: Real
    right: Real


def _check(panel: CircuitPanel, headings: Sequence[str]) -> None:
    if len(panel.columns) < 2 or len(panel.columns) != len(headings):
        raise RequestError(f"a panel has {len(panel.columns)} columns of nodes and there are {len(headings)} headings")
    for link in panel.links:
        for column, row in (link.source, link.target):
            if not (0 <= column < len(panel.columns) and 0 <= row < len(panel.columns[column])):
                raise OutOfRange(f"an edge ends at column {column}, row {row}, where there is no node")
        if link.source[0] >= link.target[0]:
            raise RequestError(
                f"an edge goes from column {link.source[0]} to column {link.target[0]}: they go to the right"
            )
        if not math.isfinite(float(link.value)):
            raise RequestError(f"the edge from {link.source} to {link.target} has the value {float(link.value)}")


def _sheet(panels: Sequence[CircuitPanel], words: _CircuitWords, across: int, width: Real) -> Drawing:
    parts: list[Element | None] = [_key(words, width)]
    top = 52.0 if width == WIDE else 78.0
    each = (width - 40 * (across - 1)) / across
    deepest = top
    for index, panel in enumerate(panels):
        column = index % across
        if column == 0:
            top = deepest + (36 if index else 0)
        left = column * (each + 40)
        used = min(each, 560.0)
        drawn, bottom = _panel(
            panel, words, left + (0 if across > 1 or width == NARROW else (each - used) / 2), top, used
        )
        parts.append(drawn)
        deepest = max(deepest, bottom)
    return drawing(width, deepest + 8, parts)


def _key(words: _CircuitWords, width: Real) -> Element:
    """What the two kinds of line mean, above the panels."""
    whole = group(
        line(0, 12, 24, 12, stroke="positive", stroke_width=6),
        label(32, 17, words.positive, fill="muted", width=(width - 90) / 2),
    )
    x = 32 + min(measure(words.positive), (width - 90) / 2) + 24
    whole.add(line(x, 12, x + 24, 12, stroke="negative", stroke_width=6, stroke_dasharray="7 3"))
    whole.add(label(x + 32, 17, words.negative, fill="muted", width=width - x - 34))
    x += 32 + min(measure(words.negative), width - x - 34) + 24
    if x + measure(words.size) > width:
        return whole.add(label(0, 43, words.size, fill="muted", width=width))
    return whole.add(label(x, 17, words.size, fill="muted"))


def _panel(panel: CircuitPanel, words: _CircuitWords, left: Real, top: Real, width: Real) -> tuple[Element, Real]:
    count = max(len(column) for column in panel.columns)
    height = 62.0 * max(count, 2)
    begin, end = left + min(0.17 * width, 88), left + width - min(0.29 * width, 150)
    if width <= NARROW:
        begin, end = left + 84, left + width - 116
    gap = (end - begin) / (len(panel.columns) - 1)
    whole = group()
    places: list[list[_Place]] = []
    nodes: list[Element | None] = []
    for at, column in enumerate(panel.columns):
        x = begin + gap * at
        last = at == len(panel.columns) - 1
        pitch = height / len(column)
        rows = [top + 20 + pitch * (row + 0.5) for row in range(len(column))]
        places.append([_placed(node, x, y, gap) for node, y in zip(column, rows)])
        side = -1 if at == 0 else 1 if last else 0
        space = begin - left - 12 if side < 0 else left + width - end - 14
        for node, place in zip(column, places[-1]):
            nodes += _node(node, place, side, space)
        anchor = "end" if side < 0 else "start" if side > 0 else "middle"
        where = x + (4 if side < 0 else -4 if side > 0 else 0)
        wide = begin + 4 - left if side < 0 else left + width - where if side > 0 else gap - 12
        nodes.append(label(where, top + 8, words.headings[at], size=TICK, fill="muted", anchor=anchor, width=wide))
    edges, numbers = _links(panel, places, words)
    foot = top + 20 + height
    middle = (begin + end) / 2
    whole.add(edges, *nodes, numbers)
    reach = 2 * min(middle - left, left + width - middle)
    lines = lines_of(panel.question, reach, 14, 2)
    for index, one in enumerate(lines):
        shown = italic(one) if any(part.italic for part in spans(panel.question)) else one
        whole.add(label(middle, foot + 22 + 20 * index, shown, anchor="middle"))
    foot += 20 * max(len(lines) - 1, 0)
    whole.add(label(middle, foot + 44, panel.result, size=TICK, fill="muted", anchor="middle", width=reach))
    return whole, foot + (52 if plain(panel.result) else 30 if plain(panel.question) else 4)


def _placed(node: Node, x: Real, y: Real, gap: Real) -> _Place:
    if node.head is not None:
        half = min(max(52.0, measure(node.label, 16, bold=True) + 16), gap * 0.6) / 2
        return _Place(x, y, half, half)
    radius = 7.0 if node.strong else 5.0
    return _Place(x, y, radius, radius)


def _node(node: Node, place: _Place, side: int, space: Real) -> list[Element | None]:
    """A node's mark and words; side: -1 words on its left, +1 on its right, 0 a box or words above it."""
    x, y = place.x, place.y
    if node.head is not None:
        shown = replace(node.head, label=plain(node.label) or node.head.shown)
        parts: list[Element | None] = [badge(x - place.left, y - 17, shown, width=2 * place.left, height=34)]
        return [*parts, label(x, y + 31, node.note, size=TICK, fill="muted", anchor="middle", halo=True, width=120)]
    mark = el("circle", cx=x, cy=y, r=place.left, fill="ink")
    if side == 0:
        return [
            mark,
            label(x, y - 12, node.label, bold=node.strong, anchor="middle", halo=True, width=120),
            label(x, y + 22, node.note, size=TICK, fill="muted", anchor="middle", halo=True, width=120),
        ]
    where, anchor = (x - 12, "end") if side < 0 else (x + 13, "start")
    return [
        mark,
        label(where, y + 1, node.label, bold=node.strong or side < 0, anchor=anchor, width=space),
        label(where, y + 17, node.note, size=TICK, fill="muted", anchor=anchor, width=space),
    ]


def _links(panel: CircuitPanel, places: Sequence[Sequence[_Place]], words: _CircuitWords) -> tuple[Element, Element]:
    edges, numbers = group(fill="none", stroke_opacity=0.82), group()
    taken: list[tuple[Real, Real, Real]] = []
    for link in sorted(panel.links, key=lambda one: -abs(float(one.value))):
        value = float(link.value)
        source, target = places[link.source[0]][link.source[1]], places[link.target[0]][link.target[1]]
        x1, x2 = source.x + source.right, target.x - target.left
        middle = (x1 + x2) / 2
        d = f"M{n(x1)} {n(source.y)}C{n(middle)} {n(source.y)} {n(middle)} {n(target.y)} {n(x2)} {n(target.y)}"
        width = max(16 * abs(value) / words.largest, 0.8)
        names = [plain(panel.columns[c][r].label) for c, r in (link.source, link.target)]
        edge = path(
            d,
            stroke="negative" if value < 0 else "positive",
            stroke_width=width,
            stroke_dasharray="7 3" if value < 0 else None,
            data_v=f"{abs(value):.6g}",
        )
        edge.add(el("title", f"{names[0]} → {names[1]}: {signed(value, 2)} {words.unit}"))
        edges.children.insert(0, edge)
        if abs(value) >= (0.12 if link.source[0] == 0 else 0.4) * words.largest:
            # A third of the way along the curve, off to the side that points up.
            t = 0.38
            x = x1 + (x2 - x1) * (1.5 * t * (1 - t) + t**3)
            y = source.y + (target.y - source.y) * (3 * t**2 * (1 - t) + t**3)
            dx, dy = (x2 - x1) * (1.5 - 3 * t + 3 * t**2), (target.y - source.y) * (6 * t - 6 * t**2)
            length = math.hypot(dx, dy) or 1.0
            off = width / 2 + 10
            x, y = x + off * dy / length + 8 * (dy > 0), y - off * dx / length
            said = " ".join(filter(None, (link.text, signed(value) if link.numbered else "")))
            wide = measure(said, TICK, bold=True)
            if all(abs(x - a) > max((wide + other) / 2 + 4, 40) or abs(y - b) > 16 for a, b, other in taken):
                taken.append((x, y, wide))
                text = label(x, y + 4, said, size=TICK, bold=True, anchor="middle", halo=True, width=140)
                numbers.add(group(text, data_v=f"{abs(value):.6g}") if text else None)
    return edges, numbers
