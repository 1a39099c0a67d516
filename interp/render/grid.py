"""Grids of signed effects: layers, heads and positions on the axes, zero in the middle of the colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsFloat

from interp.render.figure import Figure
from interp.render.text import Rich


def effect_grid(
    values: Any,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    description: str,
    caption: Rich = "",
    panels: Sequence[Rich] | None = None,
    row_axis: str = "",
    column_axis: str = "",
    unit: str = "",
    limit: SupportsFloat | None = None,
    digits: int = 2,
    missing: str = "no value",
) -> Figure:
    """Signed values as coloured cells with their numbers, where there is room for them.

    values: [row, column], or [panel, row, column] with `panels` as names; NaN is drawn hatched and called `missing`.
    rows, columns: the labels, from the top and from the left. row_axis, column_axis: what they are. unit: of the
    values. limit: where the colours end on both sides (99th percentile of |value| where left out). Negative cells
    carry a dash where the number has no room. Past 64 rows or columns the first are drawn, and the picture says so.
    Raises ValueError where labels and shape differ.
    """
    raise NotImplementedError
