"""The interactive attention viewer of circuitsvis, inside an iframe and without the network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headlab.interp.render.diverging import array
from headlab.interp.render.document import CIRCUITSVIS
from headlab.interp.render.figure import Figure
from headlab.interp.render.patterns import MOST_HEADS, MOST_POSITIONS, attention_patterns
from headlab.interp.render.svg import escape
from headlab.interp.render.text import Rich, token, visible
from headlab.interp.render.theme import Head, head

LONGEST_LABEL = 24


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
    height: int = 640,
    summary: str = "Open the interactive patterns",
) -> Figure:
    """Attention patterns as a static grid, and below it circuitsvis, which opens on demand where scripts run.

    patterns: [head, query, key], each in [0, 1]; tokens: as many as positions; heads: one per pattern. The same caps
    as `attention_patterns`. The page carries the viewer's own code (about 0.5 MB, once per page) and asks nobody for
    anything.
    """
    still = attention_patterns(
        patterns,
        tokens,
        title=title,
        description=description,
        caption=caption,
        heads=heads,
        most_positions=most_positions,
        most_heads=most_heads,
    )
    weights = array(patterns)
    weights = weights[None] if weights.ndim == 2 else weights
    weights = weights[:most_heads, :most_positions, :most_positions]
    owners = [Head("ink", str(index)) for index in range(len(weights))] if heads is None else map(head, heads)
    names = [one.shown for one in owners][:most_heads]
    properties = {
        "attention": np.round(weights, 3).tolist(),
        "tokens": [_token(one) for one in tokens[:most_positions]],
        "attentionHeadNames": [_token(name) for name in names],
        "maskUpperTri": bool(np.triu(weights, 1).max(initial=0.0) == 0),
    }
    # Inside a script element only `<` can end the data; JSON may write it as an escape.
    data = json.dumps(properties, separators=(",", ":")).replace("<", "\\u003c")
    after = (
        f'<details class="hl-viewer" hidden><summary>{escape(summary)}</summary>'
        f'<script type="application/json" class="hl-props">{data}</script>'
        f'<iframe title="{escape(title)}" sandbox="allow-scripts" height="{int(height)}"></iframe></details>'
    )
    return replace(still, after=after, assets=(CIRCUITSVIS, "viewer.js"))


def _token(text: str) -> str:
    """A label for the viewer, which writes it into its page as HTML, and into a canvas as text.

    A word joiner, which is not seen, after `<` and `&` keeps it from becoming a tag or an entity in the one, and from
    being spelt out in the other.
    """
    shown = visible(token(text))
    shown = shown if len(shown) <= LONGEST_LABEL else shown[: LONGEST_LABEL - 1] + "…"
    return shown.replace("<", "<\u2060").replace("&", "&\u2060")
