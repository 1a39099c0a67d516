"""Circuit diagram: from tokens through heads to logits, one drawing per input, all on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, SupportsFloat

from interp.render.figure import Figure
from interp.render.text import Rich
from interp.render.theme import Head


@dataclass(frozen=True)
class Node:
    """A node: a token, a logit or any other part, or a `head`. strong: the one that the answer hangs on."""

    label: Rich
    note: Rich = ""
    head: Head | None = None
    strong: bool = False


@dataclass(frozen=True)
class Link:
    """An edge from a node of one column to a node of a later one: (column, row) each, with its signed size."""

    source: tuple[int, int]
    target: tuple[int, int]
    value: SupportsFloat


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
    raise NotImplementedError


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
    The words positive, negative, size, control, count label the legend and the slider. Raises ValueError for no panels
    and for a value that is not finite, IndexError for an edge to a node that is not there.
    """
    raise NotImplementedError
