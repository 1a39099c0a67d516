"""The figures of the path-finding report, drawn from the record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from headlab.analyses.claims import load_claims
from headlab.analyses.study.record import Record
from headlab.analyses.study.tree.circuits import RIGHT
from headlab.analyses.study.tree.evidence import ROLES, accuracies, by_depth, two_headed
from headlab.analyses.study.tree.measure import CONTRAST_ROLE
from headlab.analyses.study.words import Words
from headlab.interp.render import (
    Axis,
    Curve,
    CurvePanel,
    Figure,
    Head,
    Level,
    Phase,
    ScoreStrip,
    attention_patterns,
    curve_chart,
    effect_grid,
    usage_chart,
)

LETTER = {"backward": "A", "reverse": "B"}
PER_CENT = "paths right, %"
WHOLE = Axis(domain=(0, 100), ticks=(0, 50, 100))
UNIT = Axis(domain=(0, 1), ticks=(0, 0.5, 1))


def _over_seeds(groups: dict[int, np.ndarray], label: str, heads: Any) -> Curve:
    """Accuracy in per cent: the mean as a line, all seeds as a band."""
    values = [100 * each for each in groups.values()]
    low, high = [float(each.min()) for each in values], [float(each.max()) for each in values]
    return Curve(
        list(groups), [float(v.mean()) for v in values], low=low, high=high, label=label, heads=heads, points=True
    )


def _accuracy(record: Record, kind: str, **chosen: Any) -> dict[int, np.ndarray]:
    return {depth: accuracies(rows) for depth, rows in by_depth(record, kind, **chosen).items()}


def accuracy(record: Record, words: Words) -> Figure:
    """Whole paths right over the depth of the goal: two heads, one head, the paper, no chain of thought."""
    two, one = _accuracy(record, "forward", heads=2), _accuracy(record, "forward", heads=1)
    depths, paper = sorted(two), load_claims()["T2"].figures
    whole = [_over_seeds(two, "two heads", ("A", "B")), _over_seeds(one, "one head", "one")]
    without = {depth: max(accuracies(rows)) for depth, rows in by_depth(record, "without-chain").items()}
    if without:
        best = [100 * float(value) for value in without.values()]
        whole.append(Curve(list(without), best, label="no chain, best", heads="muted", dash=True, points=True))
    near = [
        _over_seeds(two, "two heads", ("A", "B")),
        Curve(
            depths,
            [100 * paper[f"d{depth}"] for depth in depths],
            label="paper, second-hand, 4 to 8 heads",
            heads="muted",
            dash=True,
            points=True,
        ),
    ]
    rows = record.rows("models", kind="forward", heads=2)
    return curve_chart(
        [
            CurvePanel(PER_CENT, whole, WHOLE, height=120),
            CurvePanel("the same, near 100", near, Axis(domain=(93, 100.2), ticks=(94, 96, 98, 100))),
        ],
        axis=Axis("depth of the goal", domain=(min(depths), max(depths)), ticks=depths, scale="linear"),
        **words("accuracy", paths=rows[0]["paths"], seeds=len(two[depths[0]])),
    )


def layers(record: Record, words: Words) -> Figure | None:
    """Without a chain of thought: paths right over the number of layers, a curve a depth, and what guessing gives."""
    rows = record.rows("models", kind="without-chain")
    tables = {
        depth: {row["layers"]: 100 * row["path_accuracy"] for row in rows if row["depth"] == depth}
        for depth in sorted({row["depth"] for row in rows})
    }
    tables = {depth: dict(sorted(table.items())) for depth, table in tables.items() if len(table) > 1}
    if not tables:
        return None
    curves = [
        Curve(list(table), list(table.values()), label=f"depth {depth}", fade=0.2 * rank, points=True)
        for rank, (depth, table) in enumerate(tables.items())
    ]
    least = min(tables)
    levels = [Level(100 * record.one("guesses", depth=least)["share"], f"guessing, depth {least}", kind="chance")]
    value, at, depth = max((value, at, depth) for depth, table in tables.items() for at, value in table.items())
    return curve_chart(
        [CurvePanel(PER_CENT, curves, Axis(domain=(0, max(30.0, 10 * np.ceil(value / 10)))), levels)],
        axis=Axis("layers", scale="linear", ticks=range(1, 7)),
        **words("layers", best=value / 100, layers=at, depth=depth, steps=rows[0]["steps"]),
    )


def shown_model(record: Record, job: str) -> dict[str, Any]:
    """The instruments' row of the seed that a job shows."""
    return record.one("instruments", job=job, seed=record.one("shown", job=job)["seed"])


def phases(record: Record, words: Words) -> Figure:
    """One seed over training: accuracy by stage, what its heads attend to, and the specialisation, with the phases."""
    row, job = shown_model(record, "forward-h2-d5"), "forward-h2-d5"
    order = ROLES if row["first"] == "backward" else ROLES[::-1]
    spans = {role: (row[f"usage {role} from"], row[f"usage {role} to"]) for role in ROLES}
    marks = [Phase(0, "I", "search")]
    marks += [Phase(spans[role][0], numeral, f"{role} heads form") for numeral, role in zip(("II", "III"), order)]
    marks.append(Phase(max(end for _, end in spans.values()), "IV", "both"))
    marks = [mark for k, mark in enumerate(marks) if k == 0 or float(mark.start) > float(marks[k - 1].start)]

    def curve(name: str, label: str, scale: float = 1.0, **look: Any) -> Curve:
        points = record.table("curves", job=job, curve=name)
        return Curve(points.step.to_numpy(), scale * points.value.to_numpy(), label=label, **look)

    answers = [curve(role, role, 100.0, heads=LETTER[role]) for role in ROLES]
    usage = [curve(f"usage {role}", role, heads=LETTER[role]) for role in ROLES]
    return curve_chart(
        [
            CurvePanel("right answers by stage, %", answers, WHOLE),
            CurvePanel("usage of the best head", usage, UNIT),
            CurvePanel("specialisation", [curve("specialisation", "S")], UNIT),
        ],
        axis=Axis("training step", scale="log1p"),
        phases=marks,
        **words("phases", order=order, spans=[spans[role] for role in order], **row),
    )


def usage(record: Record, words: Words) -> Figure:
    """What the two heads of one model do, beside the score of all seeds, untrained models and the undivided control."""
    row = shown_model(record, "forward-h2-d5")
    own = {
        (each["head"], each["role"]): each["usage"]
        for each in record.rows("usage", job="forward-h2-d5", seed=row["seed"])
    }
    heads = [row["acting_backward"], row["acting_reverse"]]
    scores = np.array([each["specialisation"] for each in two_headed(record)])
    fresh = [each["specialisation"] for each in record.rows("untrained")]
    return usage_chart(
        np.array([[own[head, role] for role in ROLES] for head in heads]),
        heads=[Head(LETTER[role], f"0.{head}") for role, head in zip(ROLES, heads, strict=True)],
        roles=list(ROLES),
        role_notes=["the node's edge", "the node's BACK token"],
        score=ScoreStrip(
            scores,
            fresh,
            "specialisation S",
            "all two-head models",
            chance_label=f"untrained, {len(fresh)} models",
        ),
        **words("usage", middle=float(np.median(scores)), fresh=max(fresh), **row),
    )


def patched(record: Record, words: Words) -> Figure:
    """What a patch of the right head and of the other recovers at the query, per contrast."""
    row = shown_model(record, "forward-h2-d5")
    rows = record.rows("recovery", job="forward-h2-d5", seed=row["seed"])
    values = np.array([[each["right"] for each in rows], [each["other"] for each in rows]])
    roles = [{"contrast": each["contrast"], "role": CONTRAST_ROLE[each["contrast"]]} for each in rows]
    return effect_grid(
        values,
        rows=["right", "other"],
        columns=[each["contrast"] for each in rows],
        row_axis="head",
        column_axis="what differs between the runs",
        unit="share of the gap",
        limit=1.0,
        **words("patched", right=float(values[0].min()), other=float(values[1].max()), roles=roles, **row),
    )


def attention(record: Record, words: Words) -> Figure:
    """The two heads' attention on one unseen tree, from the positions that predict."""
    job = "forward-h2-d3"
    row, pattern = shown_model(record, job), record.array("pattern", job)
    keys = [each["token"] for each in record.rows("tokens", job=job)]
    heads = zip(ROLES, (row["acting_backward"], row["acting_reverse"]), strict=True)
    return attention_patterns(
        pattern,
        keys[len(keys) - pattern.shape[1] :],
        keys=keys,
        heads=[Head(LETTER[role], f"{role} 0.{head}") for role, head in heads],
        **words("attention", **row),
    )


def circuits(record: Record, words: Words) -> Figure:
    """The four right circuits of a learned model and of the construction, for the first labels."""
    job = "forward-h2-d5"
    row, values = shown_model(record, job), record.array("circuits", job)
    names = [name for role in ROLES for name in RIGHT[role]]
    labels = [str(label) for label in range(values.shape[-1])]
    diagonal = min(row[f"diagonal {name}"] for name in names)
    return effect_grid(
        values.reshape(-1, *values.shape[2:]),
        rows=labels,
        columns=labels,
        panels=[f"{name}, {model}" for name in names for model in ("learned", "constructed")],
        limit=1.0,
        digits=1,
        **words("circuits", diagonal=diagonal, shown=len(labels), of=record.one("shown", job=job)["labels"], **row),
    )


def length(record: Record, words: Words) -> Figure:
    """Models trained at depth 5 on trees of other depths."""
    table = record.table("lengths", job="forward-h2-d5")
    groups = {int(cast("int", depth)): each.path_accuracy.to_numpy() for depth, each in table.groupby("depth")}
    lowest = 100 * table.path_accuracy.min()
    mean = min(float(each.mean()) for each in groups.values())
    return curve_chart(
        [
            CurvePanel(
                PER_CENT,
                [_over_seeds(groups, "two heads", ("A", "B"))],
                Axis(domain=(max(0.0, float(np.floor(lowest - 1))), 100.2)),
            )
        ],
        axis=Axis("depth of the goal", scale="linear"),
        **words("length", mean=mean, depths=list(groups), seeds=len(next(iter(groups.values())))),
    )


def binary(record: Record, words: Words) -> Figure:
    """Perfect binary trees: curriculum and direct training by depth."""
    direct = _accuracy(record, "binary-direct")
    others = record.table("other_depths", job="binary-curriculum-d9")
    other = others[others.stage.isna()].groupby("depth").path_accuracy
    taught = {int(depth): each.to_numpy() for depth, each in other}
    taught[9] = accuracies(record.rows("models", job="binary-curriculum-d9"))
    stages = others[others.stage.notna()].groupby("stage").path_accuracy
    never = {2 * int(stage) + 1: each.to_numpy() for stage, each in stages}
    return curve_chart(
        [
            CurvePanel(
                PER_CENT,
                [
                    _over_seeds(dict(sorted(taught.items())), "curriculum", ("A", "B")),
                    _over_seeds(direct, "direct", "muted"),
                    _over_seeds(never, "tested at 9", "ink"),
                ],
                WHOLE,
            )
        ],
        axis=Axis("depth", scale="linear", ticks=(3, 5, 7, 9)),
        **words("binary", taught=float(taught[9].min()), direct=float(direct[9].max())),
    )


SHOWN: Sequence[str] = ("forward-h2-d5", "untrained")
FIGURES = {
    "accuracy": (accuracy, "forward-h2-d3", "forward-h2-d5"),
    "attention": (attention, "forward-h2-d3"),
    "usage": (usage, *SHOWN),
    "phases": (phases, "forward-h2-d5"),
    "patched": (patched, "forward-h2-d5"),
    "circuits": (circuits, "forward-h2-d5"),
    "length": (length, "forward-h2-d5"),
    "binary": (binary, "binary-curriculum-d9", *(f"binary-direct-d{depth}" for depth in (5, 7, 9))),
    "layers": (layers, "guesses"),
}


def figures(record: Record, words: Words) -> dict[str, Figure | None]:
    """Every figure whose parts were measured, by name."""
    return record.given(FIGURES, words)
