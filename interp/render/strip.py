"""Strip chart: one row per method, one dot per seed, a proven limit with the region that it forbids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, SupportsFloat

from interp.render.axis import Axis
from interp.render.figure import Figure
from interp.render.text import Rich
from interp.render.theme import Head


@dataclass(frozen=True)
class StripRow:
    """One method.

    label, note: its name and what to know of it. values: one number per seed. heads: whose dots they are: `"one"`,
    `"A"`, or `("A", "B")` for split dots. result, result_note: the right column (the best value, its errors). marker:
    `diamond` for what was not trained. bounded: whether the limit holds for it; rows outside stand last, outside the
    hatch.
    """

    label: Rich
    values: Any
    note: Rich = ""
    heads: str | Head | Sequence[str | Head] = "one"
    result: Rich = ""
    result_note: Rich = ""
    marker: Literal["dot", "diamond"] = "dot"
    bounded: bool = True


@dataclass(frozen=True)
class Limit:
    """A proven limit: its value; `label` and `formula` stand before the line, `beyond` and `beyond_note` past it.
    `short`, `short_formula`, `short_beyond` replace them in the narrow drawing. side: which side is forbidden."""

    value: SupportsFloat
    label: Rich = ""
    formula: Rich = ""
    beyond: Rich = ""
    beyond_note: Rich = ""
    short: Rich = ""
    short_formula: Rich = ""
    short_beyond: Sequence[Rich] = ()
    side: Literal["above", "below"] = "above"


def strip_chart(
    rows: Sequence[StripRow],
    *,
    title: str,
    description: str,
    caption: Rich = "",
    axis: Axis | None = None,
    limit: Limit | None = None,
    result_heading: Rich = "",
) -> Figure:
    """Values of many seeds, a row per method, on one axis.

    rows: see StripRow; equal values stack in one column. axis: domain and ticks from the data where left out. limit: a
    proven limit, drawn as a solid line with the forbidden region hatched over the bounded rows. result_heading: above
    the right column. Raises ValueError for no rows and for a value that is not finite.
    """
    raise NotImplementedError
