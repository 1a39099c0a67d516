"""What the words of the sparse XOR page need besides the evidence."""

from __future__ import annotations

from typing import Any

from headlab.analyses.study.record import Record
from headlab.analyses.study.xor.evidence import by_start, pooled


def told(record: Record) -> dict[str, Any]:
    """Sizes and shares by name."""
    last = max(record.rows("steps", group="size"), key=lambda cell: cell["bits"])
    return {
        "last": {"bits": last["bits"], "share": last["one_to_one"] / last["seeds"]},
        "auroc": min((row["limit_auroc"] for row in record.rows("trained")), default=None),
        "together": {start: pooled(rows, "together").value for start, rows in by_start(record).items()},
        "shown": next(iter(record.rows("shown")), None),
    }


def smallest_networks(record: Record, enough: float = 0.9) -> dict[int, dict[str, Any]]:
    """Bits -> the network with the fewest parameters that at least that share of the seeds learn with."""
    best: dict[int, dict[str, Any]] = {}
    for row in sorted(record.rows("networks"), key=lambda row: row["parameters"]):
        if row["learned"] >= enough * row["seeds"]:
            best.setdefault(row["bits"], row)
    return dict(sorted(best.items()))
