"""Short names for a graph's vertices."""

from __future__ import annotations

from collections.abc import Sequence


def short_names(labels: Sequence[str]) -> tuple[str, ...]:
    """The labels without the package that all of them share: rich, rich.text -> rich, text. Others stay as they are.

    Only the first dotted part is taken away, and only where the names then still differ.
    """
    heads = {label.split(".", 1)[0] for label in labels}
    if len(heads) != 1:
        return tuple(labels)
    short = tuple(label.split(".", 1)[-1] for label in labels)
    return short if len(set(short)) == len(labels) else tuple(labels)
