"""Which head does what: a table of heads and roles, and how far from chance the division of work is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from interp.render.axis import Axis
from interp.render.figure import Figure
from interp.render.text import Rich
from interp.render.theme import Head


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
    Raises ValueError where shapes and labels differ, or a value is negative or not finite.
    """
    raise NotImplementedError
