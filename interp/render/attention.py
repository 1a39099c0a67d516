"""Attention: tiles of where a head looks at one query, and grids of whole patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from interp.render.figure import Figure
from interp.render.text import Rich
from interp.render.theme import Head

MOST_POSITIONS = 64
MOST_HEADS = 24


@dataclass(frozen=True)
class AttentionTile:
    """Where one head looks at one query, under one condition. values: attention per token, in [0, 1]."""

    head: str | Head
    label: Rich
    values: Any
    tokens: Sequence[str]
    note: Rich = ""


def attention_tiles(
    tiles: Sequence[AttentionTile],
    *,
    title: str,
    description: str,
    caption: Rich = "",
    columns: int = 4,
    digits: int = 2,
    mono: bool = True,
) -> Figure:
    """A small picture per head and condition: one box per token, filled from below, the number above, the token below.

    columns: tiles a row in the wide drawing (the narrow one has two). mono: the tokens are single symbols.
    Raises ValueError where a tile's values and tokens differ in number, or a value is not in [0, 1].
    """
    raise NotImplementedError


def attention_patterns(
    patterns: Any,
    queries: Sequence[str],
    *,
    title: str,
    description: str,
    caption: Rich = "",
    heads: Sequence[str | Head] | None = None,
    keys: Sequence[str] | None = None,
    most_positions: int = MOST_POSITIONS,
    most_heads: int = MOST_HEADS,
    key_axis: str = "key",
    query_axis: str = "query",
) -> Figure:
    """Whole attention patterns as a grid of small heat maps, a static picture.

    patterns: [head, query, key], each in [0, 1]. queries, keys: token labels, as many as positions (keys as queries
    where left out). heads: one per pattern. Past `most_positions` positions and `most_heads` heads the picture shows
    the first ones, and says so in itself. Raises ValueError where labels and patterns differ in number.
    """
    raise NotImplementedError
