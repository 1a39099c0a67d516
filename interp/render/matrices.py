"""QK and OV of heads in token space, side by side: learned beside constructed, rows and colours shared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from interp.render.figure import Figure
from interp.render.text import Rich
from interp.render.theme import Head


@dataclass(frozen=True)
class RowGroup:
    """Neighbouring rows of the matrices: a block with one label (`label`, `note`), or with a name per row (`names`)."""

    count: int
    label: Rich = ""
    note: Rich = ""
    names: Sequence[str] = ()


@dataclass(frozen=True)
class HeadMatrices:
    """One head of one model. qk: [row], the attention score of a key token; ov: [row, column], what attending to it
    adds to each logit. Each on its own symmetric scale."""

    head: str | Head
    label: Rich
    qk: Any
    ov: Any


def weight_matrices(
    pairs: Sequence[Sequence[HeadMatrices]],
    *,
    groups: Sequence[RowGroup],
    title: str,
    description: str,
    caption: Rich = "",
    similarity: Sequence[Rich] = (),
    negative: str = "negative",
    positive: str = "positive, grey within 10\u202f% of zero, each matrix on its own scale",
    qk_heading: str = "QK",
    ov_heading: str = "OV: effect on logit",
) -> Figure:
    """Matched heads beside each other: per pair (learned, constructed) a QK strip and an OV matrix each.

    pairs: one per matched head, of one or two HeadMatrices. groups: how the rows divide; their counts add up to the
    rows. similarity: one line per pair, below it. Two pairs stand side by side in the wide drawing. Raises ValueError
    where counts and shapes differ.
    """
    raise NotImplementedError
