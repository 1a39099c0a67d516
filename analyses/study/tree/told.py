"""What the words of the path-finding page need besides the evidence."""

from __future__ import annotations

from typing import Any

import numpy as np

from headlab.analyses.study.record import Record
from headlab.analyses.study.tree.evidence import accuracies, by_depth, two_headed


def told(record: Record) -> dict[str, Any]:
    """Sizes and shares by name, and this study's part of the overview."""
    two, one = by_depth(record, "forward", heads=2), record.rows("models", kind="forward", heads=1)
    formed = two_headed(record)
    control = record.rows("instruments", kind="control")
    held = record.rows("lengths", job="forward-h2-d5")
    by_heads = {
        heads: (100 * accuracies(rows)).tolist()
        for heads in range(1, 9)
        if (rows := record.rows("models", kind="forward", heads=heads, depth=5))
    }
    return {
        "lowest": min(float(accuracies(rows).min()) for rows in two.values()),
        "deepest": max(two),
        "one_highest": float(accuracies(one).max()),
        "reverse_first": sum(row["first"] == "reverse" for row in formed),
        "trainings": len(formed),
        "constructed_paths": sum(row["paths"] for row in record.rows("constructed")),
        "faster": next((row["ratio"] for row in record.rows("generation")), None),
        "control": {
            "accuracy": float(accuracies(record.rows("models", kind="control")).mean()),
            "lowest": min(row["specialisation"] for row in control),
            "median": float(np.median([row["specialisation"] for row in control])),
        }
        if control
        else None,
        "other_depths": sorted({row["depth"] for row in held}),
        "by_heads": {
            "what": "paths right at depth 5, %",
            "scale": "linear",
            "chance": 0.0,
            "values": {str(heads): values for heads, values in by_heads.items()},
        },
    }
