"""Phases of a chart's x axis: shaded stretches with names above them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import SupportsFloat

from headlab.interp.render.axis import Ruler
from headlab.interp.render.marks import TICK, apart
from headlab.interp.render.svg import Element, label, line, measure, rect
from headlab.interp.render.text import Real, Rich, bold


@dataclass(frozen=True)
class Phase:
    """A stretch of the x axis from `start` to the next phase: `numeral` in bold, `label`, and a `note` below."""

    start: SupportsFloat
    numeral: str = ""
    label: str = ""
    note: str = ""


def phase_marks(phases: Sequence[Phase], x: Ruler, top: Real, bottom: Real) -> list[Element]:
    """Every other phase shaded, a dotted line where a phase begins."""
    parts = []
    ends = [*(x(one.start) for one in phases[1:]), x.end]
    for index, (one, end) in enumerate(zip(phases, ends)):
        start = x(one.start)
        if index % 2 == 0:
            parts.append(rect(start, top, max(end - start, 0), bottom - top, fill="panel"))
        if index:
            parts.append(line(start, top, start, bottom, stroke="axis", stroke_dasharray="1.5 3"))
    return parts


def phase_names(
    phases: Sequence[Phase], x: Ruler, y: Real, left: Real, right: Real, *, full: bool
) -> list[Element | None]:
    """Numeral and label centred over each phase, pushed apart where they would touch."""
    if not phases:
        return []
    ends = [*(x(one.start) for one in phases[1:]), x.end]
    texts: list[tuple[Rich, str]] = []
    boxes = []
    for one, end in zip(phases, ends):
        text = (bold(one.numeral), f" {one.label}" if full and one.label else "")
        note = one.note if full else ""
        texts.append((text, note))
        boxes.append(((x(one.start) + end) / 2, max(measure(text), measure(note, TICK)) + 14))
    if sum(extent for _, extent in boxes) > right - left:
        return phase_names(phases, x, y, left, right, full=False) if full else []
    parts: list[Element | None] = []
    for (text, note), centre in zip(texts, apart(boxes, left, right)):
        parts.append(label(centre, y, text, anchor="middle"))
        parts.append(label(centre, y + 17, note, size=TICK, fill="muted", anchor="middle"))
    return parts
