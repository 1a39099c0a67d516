"""Arc diagram: names in an order, arcs that follow the order on one side, arcs that go against it on the other."""

from __future__ import annotations

from collections.abc import Sequence

from interp.render.figure import WIDE, Figure
from interp.render.text import Rich


def arc_diagram(
    names: Sequence[str],
    arcs: Sequence[tuple[int, int]],
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
    hubs: Sequence[int] = (),
    listing: str = "",
    width: int = WIDE,
) -> Figure:
    """A directed graph in an order: arcs (i, j) with i < j above the names, the others below.

    names: in the order. arcs: pairs of places in `names`; repeated pairs are drawn once, a loop (i, i) as a ring.
    forward, backward: the sentences above and below, with the counts; `*_short` and `*_note`: two short lines each for
    the narrow drawing. order: what the order is, top right. hubs: places of names in bold. listing: the summary of a
    list of the backward arcs as text; none where empty. width: of the wide drawing, for a figure beside text (620).
    Raises ValueError for no names, and IndexError for an arc to a name that is not there.
    """
    raise NotImplementedError
