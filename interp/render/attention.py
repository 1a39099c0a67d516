"""Attention at one query: a tile of boxes for each head and condition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headlab.interp.errors import RequestError
from headlab.interp.render.caps import left_out, with_sentence
from headlab.interp.render.diverging import array
from headlab.interp.render.figure import NARROW, WIDE, Drawing, Figure, drawing
from headlab.interp.render.marks import TICK, badge, badge_width
from headlab.interp.render.svg import Element, label, measure, rect
from headlab.interp.render.text import Real, Rich, mono, number, token
from headlab.interp.render.theme import Head, head

MOST_TILES = 48
MOST_TOKENS = 64


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
    Past 48 tiles, or 64 tokens in one, the first are drawn, and the picture says so. Raises ValueError where a tile's
    values and tokens differ in number, or a value is not in [0, 1].
    """
    if not tiles:
        raise RequestError("attention tiles need at least one tile")
    shown = [(tile, _shares(tile)) for tile in tiles]
    most = max(len(values) for _, values in shown)
    said = left_out((len(tiles), MOST_TILES, "tiles"), (most, MOST_TOKENS, "tokens"))
    shown = [
        (replace(tile, tokens=list(tile.tokens)[:MOST_TOKENS]), values[:MOST_TOKENS])
        for tile, values in shown[:MOST_TILES]
    ]
    wide = _tile_sheet(shown, min(columns, len(tiles)), WIDE, digits, mono)
    narrow = _tile_sheet(shown, min(2, len(tiles)), NARROW, digits, mono)
    return with_sentence(Figure(title, description, caption, wide, narrow), said)


def _shares(tile: AttentionTile) -> list[Real]:
    values = array(tile.values).reshape(-1)
    if len(values) != len(tile.tokens) or not len(values):
        raise RequestError(f"a tile has {len(values)} values and {len(tile.tokens)} tokens: one for each is needed")
    if not ((values >= -1e-6) & (values <= 1 + 1e-6)).all():
        raise RequestError(f"attention lies in [0, 1], and a tile holds {values.min():g} .. {values.max():g}")
    return np.clip(values, 0, 1).tolist()


def _tile_sheet(
    tiles: Sequence[tuple[AttentionTile, list[Real]]], columns: int, width: Real, digits: int, mono_tokens: bool
) -> Drawing:
    across = width / columns
    most = max(len(values) for _, values in tiles)
    pitch = min(48.0 if width == WIDE else 43.0, (across - 18) / most)
    box = pitch * 0.79
    tall = max((measure(token(one), TICK) for tile, _ in tiles for one in tile.tokens), default=0) > pitch
    foot = 26 if not tall else 18 + min(90, max(measure(token(one), 11.5) for tile, _ in tiles for one in tile.tokens))
    deep = 198.0 + foot
    parts: list[Element | None] = []
    for index, (tile, values) in enumerate(tiles):
        left, top = across * (index % columns), deep * (index // columns)
        owner = head(tile.head)
        wide = badge_width(owner)
        parts += [
            badge(left, top, owner, width=wide),
            label(left + wide + 8, top + 16, tile.label, width=across - wide - 20),
            label(left, top + 39, tile.note, fill="muted", width=across - 12),
        ]
        largest = max(range(len(values)), key=values.__getitem__)
        tiles_top = top + 82
        for place, (value, name) in enumerate(zip(values, tile.tokens)):
            x = left + 6 + pitch * place
            middle = x + box / 2
            first = place == largest and value > 0
            parts.append(rect(x, tiles_top, box, 84, rx=min(4, box / 4), fill="tile"))
            if value * 84 >= 0.5:
                parts.append(
                    rect(x, tiles_top + 84 * (1 - value), box, 84 * value, rx=min(4, box / 4), fill=owner.colour)
                )
            text = number(value, digits) if value >= 0.5 * 10**-digits else "0"
            if first or pitch >= measure("0.00", TICK) + 6:
                size = 15 if first else TICK
                fill = "ink" if first else "muted"
                parts.append(label(middle, tiles_top - 8, text, size=size, bold=first, fill=fill, anchor="middle"))
            shown = mono(token(name)) if mono_tokens and len(name) == 1 else token(name)
            if not tall:
                parts.append(label(middle, tiles_top + 105, shown, bold=first, anchor="middle"))
            elif pitch >= 11 or first:
                where = (middle + 4, tiles_top + 92)
                parts.append(label(*where, shown, width=90, size=11.5, bold=first, anchor="end", rotate=True))
    return drawing(width, deep * math.ceil(len(tiles) / columns) - 30, parts)
