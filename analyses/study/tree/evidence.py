"""The numbers that the claims on path finding are judged by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from headlab.analyses.claims import Evidence
from headlab.analyses.study.record import Record
from headlab.interp.statistics import Share, median, share

UNDIVIDED = 0.05  # a specialisation that counts as none
RIGHT = 0.99  # path accuracy that counts as right
DEPTHS = (3, 5, 7, 10)
ROLES = ("backward", "reverse")
Rows = list[dict[str, Any]]


def accuracies(rows: Iterable[dict[str, Any]]) -> np.ndarray:
    """Path accuracy of each row."""
    return np.array([row["path_accuracy"] for row in rows])


def pooled(rows: Rows) -> Share:
    """The share of right paths over all rows."""
    paths = sum(row["paths"] for row in rows)
    return share(paths - sum(row["errors"] for row in rows), paths)


def by_depth(record: Record, kind: str, **chosen: Any) -> dict[int, Rows]:
    """depth -> the models of a kind, by depth."""
    rows = record.rows("models", kind=kind, **chosen)
    return {depth: [row for row in rows if row["depth"] == depth] for depth in sorted({row["depth"] for row in rows})}


def _by_depth(record: Record, kind: str, heads: int) -> Evidence:
    """T1 and T2: the mean accuracy at each depth, and the steps to it."""
    groups = by_depth(record, kind, heads=heads)
    rows = [
        {
            "depth": depth,
            "accuracy": float(accuracies(group).mean()),
            "lowest": float(accuracies(group).min()),
            "reached": _middle([row["steps_to_0.95"] for row in group]),
        }
        for depth, group in groups.items()
    ]
    largest = groups[max(groups)]
    values: dict[str, Any] = {f"d{row['depth']}": row["accuracy"] for row in rows}
    values |= {"heads": heads, "rows": rows, "steps": largest[0]["steps"], "lowest": min(r["lowest"] for r in rows)}
    if kind == "forward":
        scores = [row["specialisation"] for row in record.rows("instruments", kind=kind, heads=heads)]
        values |= {"specialisation": float(np.median(scores)), "specialisation_lowest": min(scores)}
    return Evidence(values, pooled(largest).interval, len(largest))


def _middle(steps: list[int | None]) -> float | None:
    """The median of steps, where all seeds arrived."""
    return None if any(step is None for step in steps) else float(np.median([step for step in steps if step]))


def _without_chain(record: Record) -> Evidence:
    """T3: the shallow model without a chain beside the same depth with it, and what more layers bring."""
    rows = []
    for depth, group in by_depth(record, "without-chain").items():
        table = {row["layers"]: row["path_accuracy"] for row in group}
        with_chain = float(accuracies(record.rows("models", kind="forward", heads=2, depth=depth)).mean())
        best = max(table, key=lambda layers: table[layers])
        rows.append({"depth": depth, "one": table[1], "best": table[best], "layers": best, "with_chain": with_chain})
        rows[-1]["guess"] = record.one("guesses", depth=depth)["share"]
    values = {f"forward_d{row['depth']}": row["one"] for row in rows}
    values |= {
        "rows": rows,
        "gap_lowest": min(row["with_chain"] - row["one"] for row in rows),
        "gain_lowest": min(row["best"] - row["one"] for row in rows),
        "steps": record.rows("models", kind="without-chain")[0]["steps"],
    }
    return Evidence(values, None, 1)


def _more_heads(record: Record) -> Evidence:
    """T4: steps to 95 % of paths and accuracy at depth 5, by the number of heads."""
    rows = []
    for heads in (2, 4, 6, 8):
        group = record.rows("models", kind="forward", heads=heads, depth=5)
        rows.append({"heads": heads, "accuracy": float(accuracies(group).mean()), "seeds": len(group)})
        rows[-1]["reached"] = _middle([row["steps_to_0.95"] for row in group])
    first, last = rows[0], rows[-1]
    known = first["reached"] is not None and last["reached"] is not None
    values = {f"h{row['heads']}": row["accuracy"] for row in rows}
    values |= {
        "rows": rows,
        "speedup": first["reached"] / last["reached"] if known else None,
        "gain": last["accuracy"] - first["accuracy"],
    }
    two = record.rows("models", kind="forward", heads=2, depth=5)
    return Evidence(values, pooled(two).interval, min(row["seeds"] for row in rows))


def _number_of_heads(record: Record) -> Evidence:
    """T5: two heads, one head, and four where they were trained."""
    two, one = (record.rows("models", kind="forward", heads=heads) for heads in (2, 1))
    four = record.rows("models", kind="forward", heads=4)
    values = {
        "accuracy_two": float(accuracies(two).min()),
        "accuracy_one": float(accuracies(one).max()),
        "accuracy_four": float(accuracies(four).min()) if four else None,
        "models": len(two),
        "depths": sorted({row["depth"] for row in two}),
    }
    return Evidence(values, pooled(two).interval, len(two))


def _constructions(record: Record) -> Evidence:
    rows = record.rows("constructed")
    wrong = [row["paths"] - min(row["generated"], row["teacher_forced"]) for row in rows]
    deepest = {shape: max(row["depth"] for row in rows if row["shape"] == shape) for shape in ("random", "binary")}
    return Evidence({"paths": sum(row["paths"] for row in rows), "violations": sum(wrong), "deepest": deepest})


def two_headed(record: Record) -> Rows:
    """The instruments' rows of two-head models trained forward."""
    return record.rows("instruments", kind="forward", heads=2)


def _division(record: Record) -> Evidence:
    """T7: a model divides where each role dies without its own heads and lives without the other's."""
    rows = two_headed(record)
    own = [max(_known(row[f"{role} without {role}"], 1.0) for role in ROLES) for row in rows]
    other = [min(_known(row[f"{a} without {b}"], 0.0) for a, b in (ROLES, ROLES[::-1])) for row in rows]
    divided = sum(gone < 0.5 and kept >= 0.98 for gone, kept in zip(own, other, strict=True))
    scores, parted = [row["specialisation"] for row in rows], share(divided, len(rows))
    values = {
        "share_divided": parted.value,
        "divided": divided,
        "models": len(rows),
        "specialisation": float(np.median(scores)),
        "specialisation_lowest": min(scores),
        "untrained": max(row["specialisation"] for row in record.rows("untrained")),
        "own_highest": max(own),
        "other_lowest": min(other),
    }
    return Evidence(values, parted.interval, len(rows))


def _known(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _unseen(record: Record) -> Evidence:
    """T8: training's own kind of trees beside trees that training never showed, and other depths."""
    rows = [row for row in record.rows("unseen") if row["kind"] != "labels"]
    lengths = record.table("lengths", job="forward-h2-d5")
    near = lengths[lengths.depth <= 20]
    values = {
        "rows": record.rows("unseen"),
        "accuracy_unseen": min(row["unseen"] for row in rows),
        "gap": max(row["seen"] - row["unseen"] for row in rows),
        "accuracy_other_depths": float(near.path_accuracy.min()),
        "deepest": int(near.depth.max()),
    }
    by_seed = near.groupby("seed").path_accuracy.min().to_numpy()
    return Evidence(values, median(by_seed).interval, len(by_seed))


def _which_first(record: Record, role: str) -> Evidence:
    """T9 and B4: which role's heads formed first, in all trainings whose roles were followed."""
    rows = [*two_headed(record), *record.rows("instruments", kind="plain-descent")]
    counts = {each: sum(row["first"] == each for row in rows) for each in ROLES}
    first = share(counts[role], len(rows))
    values = {
        "share_first": first.value,
        "share_other": counts[ROLES[1 - ROLES.index(role)]] / len(rows),
        "backward": counts["backward"],
        "reverse": counts["reverse"],
        "trainings": len(rows),
    }
    return Evidence(values, first.interval, len(rows))


def _two_at_ten(record: Record) -> Evidence:
    rows = record.rows("models", kind="forward", heads=2, depth=10)
    found = accuracies(rows)
    values = {"accuracy_mean": float(found.mean()), "accuracy_lowest": float(found.min()), "paths": rows[0]["paths"]}
    return Evidence(values, pooled(rows).interval, len(rows))


def _curriculum(record: Record) -> Evidence:
    """B6: perfect binary trees by curriculum, directly, and at depth 9 before it was trained on."""
    taught, straight = by_depth(record, "binary-curriculum"), by_depth(record, "binary-direct")
    never = record.table("other_depths", job="binary-curriculum-d9", depth=9).groupby("stage").path_accuracy
    values = {
        "accuracy_curriculum": float(np.median(accuracies(taught[7]))),
        "accuracy_direct": float(accuracies(straight[7]).max()),
        "rows": [
            {"depth": depth, "median": float(np.median(each)), "lowest": float(each.min())}
            for depth, each in ((depth, accuracies(group)) for depth, group in taught.items())
        ],
        "direct": [{"depth": depth, "best": float(accuracies(group).max())} for depth, group in straight.items()],
        "never": float(never.median().max()),
    }
    return Evidence(values, median(accuracies(taught[7])).interval, len(taught[7]))


def _not_implied(record: Record) -> Evidence:
    """B9: models that are right without dividing the work."""
    rows = record.rows("models", kind="control")
    scores = {row["seed"]: row["specialisation"] for row in record.rows("instruments", kind="control")}
    own = np.array([scores[row["seed"]] for row in rows])
    right = accuracies(rows) >= RIGHT
    undivided = share(int((right & (own <= UNDIVIDED)).sum()), len(rows))
    values = {
        "count_undivided": undivided.successes,
        "count_below_half": int((right & (own < 0.5)).sum()),
        "right": int(right.sum()),
        "models": len(rows),
        "lowest": float(own[right].min(initial=1.0)),
        "median": float(np.median(own)),
        "accuracy": float(accuracies(rows).mean()),
    }
    return Evidence(values, undivided.interval, len(rows))


TWO = tuple(f"forward-h2-d{depth}" for depth in DEPTHS)
ALONE = tuple(f"backward-h1-d{depth}" for depth in DEPTHS)
LAYERED = tuple(f"without-chain-l1-d{depth}" for depth in DEPTHS)
EVIDENCE = {
    "T1": (lambda record: _by_depth(record, "backward", 1), *ALONE),
    "T2": (lambda record: _by_depth(record, "forward", 2), *TWO),
    "T3": (_without_chain, "guesses", *TWO, *LAYERED),
    "T4": (_more_heads, *(f"forward-h{heads}-d5" for heads in (2, 4, 6, 8))),
    "T5": (_number_of_heads, "forward-h2-d5", "forward-h1-d5"),
    "T6": (_constructions, "constructed"),
    "T7": (_division, "untrained", "forward-h2-d5"),
    "T8": (_unseen, "forward-h2-d5"),
    "T9": (lambda record: _which_first(record, "backward"), "forward-h2-d5"),
    "B4": (lambda record: _which_first(record, "reverse"), "forward-h2-d5"),
    "B5": (_two_at_ten, "forward-h2-d10"),
    "B6": (_curriculum, "binary-curriculum-d7", "binary-curriculum-d9", *(f"binary-direct-d{d}" for d in (5, 7, 9))),
    "B9": (_not_implied, "control-one-hot-wide"),
}


def evidence(record: Record) -> dict[str, Evidence]:
    """Claim id -> evidence, for the claims whose parts were measured."""
    return record.given(EVIDENCE)
