"""What a study found, in a headline and a few sentences: the head of its page, and its part of the overview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headlab.interp.render import Rich
from headlab.interp.render.text import plain


@dataclass(frozen=True)
class ByHeads:
    """One quantity of trained models by their number of heads.

    values: heads -> one value a seed. what: the quantity with its unit. scale: of its axis. chance: the value of a
    model that has learned nothing, where the axis shows it.
    """

    what: str
    values: Mapping[int, Sequence[float]]
    scale: Literal["linear", "log"] = "linear"
    chance: float | None = None


@dataclass(frozen=True)
class Opening:
    """headline: its lines. summary: two or three sentences."""

    headline: Sequence[Rich]
    summary: str
    by_heads: ByHeads | None = None

    def to_json(self) -> dict[str, Any]:
        """As results.json holds it, without colours."""
        heads = self.by_heads
        return {
            "headline": [plain(line) for line in self.headline],
            "summary": self.summary,
            "by_heads": None
            if heads is None
            else {
                "what": heads.what,
                "scale": heads.scale,
                "chance": heads.chance,
                "values": {str(count): list(values) for count, values in heads.values.items()},
            },
        }
