"""The interactive attention viewer of circuitsvis, inside an iframe and without the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interp.render.attention import MOST_HEADS, MOST_POSITIONS
from interp.render.figure import Figure
from interp.render.text import Rich
from interp.render.theme import Head


def attention_viewer(
    patterns: Any,
    tokens: Sequence[str],
    *,
    title: str,
    description: str,
    caption: Rich = "",
    heads: Sequence[str | Head] | None = None,
    most_positions: int = MOST_POSITIONS,
    most_heads: int = MOST_HEADS,
    height: int = 520,
) -> Figure:
    """Attention patterns as a static grid, and below it circuitsvis, which opens on demand where scripts run.

    patterns: [head, query, key], each in [0, 1]; tokens: as many as positions; heads: one per pattern. The same caps
    as `attention_patterns`. The page carries the viewer's own code (about 0.5 MB, once per page) and asks nobody for
    anything.
    """
    raise NotImplementedError
