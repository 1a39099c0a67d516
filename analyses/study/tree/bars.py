"""What the project asked of path finding, and whether it was met."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headlab.analyses.study.bars import Bar, least, median_least, median_most, most
from headlab.analyses.study.tree.findings import Findings
from headlab.analyses.study.tree.records import Look


def bars(found: Findings) -> list[Bar]:
    """Every requirement that this study has figures for; a quick study has fewer."""
    two = [look for name, looks in found.looks.items() if name.startswith("forward-h2") for look in looks]
    own, other = _causes(two)
    rows = [
        least(
            "constructed, written token by token, paths right", 1.0, [b.generated / b.paths for b in found.constructed]
        ),
        *_accuracies(found, "forward-h2", "forward, 2 heads"),
        *_accuracies(found, "backward-h1", "backward, 1 head"),
        most(
            "forward, 1 head, paths right", 0.05, [a for job in found.jobs("forward-h1").values() for a in job.accuracy]
        ),
        least(
            "trained at depth 5, tested at depths to 20, mean over seeds",
            0.99,
            [float(np.mean(row.values)) for row in found.length if row.x <= 20],
            "; ".join(f"depth {row.x:g}: {np.mean(row.values):.4f}" for row in found.length if row.x > 20),
        ),
        least("specialisation, constructed", 0.995, [found.constructed_score]),
        most("specialisation, untrained", 0.01, found.untrained),
        least("specialisation, learned, 2 heads", 0.95, [look.specialisation for look in two]),
        most("a role without its heads", 0.5, own),
        least("the other role without them", 0.98, other),
        least("patching the right head at the query", 0.95, [r for look in two for r, _ in look.recovery.values()]),
        most("patching any other head there", 0.1, [o for look in two for _, o in look.recovery.values()]),
        least(
            "rows whose largest entry is right, four circuits",
            0.99,
            [v for look in two for v in look.diagonal.values()],
        ),
        *_plain_descent(found),
    ]
    rows += _more_heads(found) + _control(found) + _binary(found)
    ratio = found.generation.get("ratio")
    if isinstance(ratio, dict):
        rows.append(least("generation at depth 200, times faster", 5.0, [ratio["median"]]))
    return rows


def _accuracies(found: Findings, kind: str, label: str) -> list[Bar]:
    jobs = found.jobs(kind)
    depths = ", ".join(map(str, jobs))
    return [
        least(f"{label}, every seed", 0.998, [a for job in jobs.values() for a in job.accuracy], f"depths {depths}"),
        least(f"{label}, mean of each depth", 0.999, [float(job.accuracy.mean()) for job in jobs.values()]),
    ]


def _causes(looks: Sequence[Look]) -> tuple[list[float], list[float]]:
    """What is left of each role without its own heads, and of the other role."""
    roles = ("backward", "reverse")
    own = [value for look in looks for role in roles if (value := look.heads.left(role, role)) is not None]
    other = [
        value
        for look in looks
        for gone, role in (roles, roles[::-1])
        if (value := look.heads.left(gone, role)) is not None
    ]
    return own or [1.0], other or [0.0]


def _plain_descent(found: Findings) -> list[Bar]:
    jobs = found.jobs("plain-descent")
    if not jobs:
        return []
    raw = [each["raw"] for rows in found.plain.values() for seed in rows for each in seed.values()]
    centred = [each["centred"] for rows in found.plain.values() for seed in rows for each in seed.values()]
    return [
        least("plain descent, paths right", 0.99, [a for job in jobs.values() for a in job.accuracy]),
        least(
            "plain descent, cosine of a head's block with the construction",
            0.98,
            raw,
            f"{min(centred):.5f} with row and column means removed",
        ),
    ]


def _more_heads(found: Findings) -> list[Bar]:
    names = [name for name in found.looks if name.startswith("forward-h") and not name.startswith("forward-h2")]
    if not names:
        return []
    looks = [look for name in names for look in found.looks[name]]
    own, other = _causes(looks)
    cost = [value for look in looks if (value := look.heads.path_lost.get(None)) is not None]
    return [
        least("specialisation, 4 to 8 heads, median of each", 0.93, [float(np.median(found.scores(n))) for n in names]),
        most("paths lost without the heads of no role, 4 to 8 heads", 0.01, cost or [0.0]),
        median_most("a role without its heads, 4 to 8 heads", 0.5, own),
        least("the other role without them, 4 to 8 heads", 0.98, other),
    ]


def _control(found: Findings) -> list[Bar]:
    name = "control-one-hot-wide"
    if name not in found.looks:
        return []
    right = found.trained[name].accuracy >= 0.99
    scores = found.scores(name)[right]
    note = f"{int((scores <= 0.05).sum())} of {len(scores)} right models; median {np.median(scores):.3f}"
    return [most("specialisation, control, lowest of the right models", 0.05, [scores.min(initial=1.0)], note)]


def _binary(found: Findings) -> list[Bar]:
    if "binary-curriculum-d9" not in found.trained:
        return []
    seven, nine = (found.trained[f"binary-curriculum-d{depth}"].accuracy.tolist() for depth in (7, 9))
    rows = [
        median_least("binary trees of depth 5 by curriculum, 1 024 labels", 0.999, found.taught[5]),
        median_least("binary trees of depth 7 by curriculum, 1 024 labels", 0.999, found.taught[7]),
        median_least("binary trees of depth 9 by curriculum, 1 024 labels", 0.99, nine),
        median_least("binary trees of depth 9, never trained on", 0.99, found.never[3]),
        median_least("binary trees of depth 7 by curriculum, 256 labels", 0.999, seven),
    ]
    for depth in (5, 7, 9):
        values = found.trained[f"binary-direct-d{depth}"].accuracy
        rows.append(
            Bar(f"binary trees of depth {depth}, direct training", "shown beside it", float(values.max()), True)
        )
    return rows
