"""The figures of the endpoint selection report, drawn from the record."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pandas as pd

from headlab.analyses.study.esp import diagrams
from headlab.analyses.study.esp.told import median_score, order_of, phases_of
from headlab.analyses.study.record import Record
from headlab.analyses.study.words import Words, plural
from headlab.interp.render import (
    AttentionTile,
    Axis,
    Curve,
    CurvePanel,
    Figure,
    Level,
    Limit,
    ScoreStrip,
    StripRow,
    attention_tiles,
    coloured,
    curve_chart,
    number,
    percent,
    strip_chart,
    usage_chart,
)

LETTERS = ("A", "B")
POSITIONS = ("u", "v", "selector", "#")
TICKS = (0, 3, 10, 30, 100, 300, 1000, 3000, 10000)
SMALL_WIDTH = 620


def strip(record: Record, words: Words) -> Figure:
    """Every seed of every way of making a model against the one-head ceiling."""
    models, ceiling = record.table("models"), words.values["ceiling"]
    ways = list(dict.fromkeys(models.sort_values(["heads", "constructed"], kind="stable").way))
    rows = []
    for way in ways:
        own = models[models.way == way]
        one, errors = own.iloc[0], int(own.errors.min())
        text = words.labels(way, seeds=len(own), q=words.values["q"])
        rows.append(
            StripRow(
                text["label"],
                own.accuracy.to_list(),
                note=text["note"],
                heads=LETTERS if one.heads == 2 else "one",
                result=percent(own.accuracy.max()),
                result_note=plural(errors, "error"),
                marker="diamond" if one.constructed else "dot",
                bounded=bool(one.heads == 1),
            )
        )
    left = max(0.0, np.floor((models.accuracy.min() - 0.02) * 25) / 25)
    ticks = [round(t, 2) for t in np.arange(left, 1.0001, 0.02 if left >= 0.8 else 0.1)]
    text = words.labels("strip")

    def tick(value: float) -> str:
        return percent(value, 0) if value in (ticks[0], ticks[-1]) else number(round(value * 100))

    limit = Limit(
        ceiling,
        label=text["limit"],
        formula=text["formula"],
        beyond=text["beyond"],
        beyond_note=text["beyond_note"],
        short=text["short"],
        short_formula=text["short_formula"],
        short_beyond=("hatched:", "out of reach"),
    )
    return strip_chart(
        rows,
        axis=Axis(text["axis"], domain=(left, 1.0), ticks=ticks, format=tick),
        limit=limit if words.values["graph"]["mfas_lower"] else None,
        result_heading="best seed",
        **words(
            "strip",
            best_one=models[models.heads == 1].accuracy.max(),
            worst_two=models[models.heads == 2].accuracy.min(),
        ),
    )


def order(record: Record, words: Words) -> Figure | None:
    """The order that the best one-head model holds; None where the graph has no cycle."""
    row = record.one("graphs")
    if not row["mfas_lower"]:
        return None
    graph, vertices = order_of(record, "")
    return diagrams.learned_order(graph, vertices, row["mfas_lower"], words=words)


def small_order(record: Record, words: Words) -> Figure | None:
    """The same on the smaller graph, where the study's own is large."""
    row = record.one("small_graphs")
    if row["graph"] == record.one("graphs")["graph"] or not row["mfas_lower"]:
        return None
    graph, vertices = order_of(record, "small_")
    return diagrams.learned_order(graph, vertices, row["mfas_lower"], words=words, width=SMALL_WIDTH, caption="")


def circuit(record: Record, words: Words) -> Figure:
    """Both questions about one arc: token -> head -> logit."""
    graph, _ = order_of(record, "")
    arc = words.values["arc"]
    parts = record.array("logit_parts"), record.array("pair_parts")
    return diagrams.two_head_circuit(graph.labels, arc, *parts, words=words, whose="the seed of median specialisation")


def attention(record: Record, words: Words) -> Figure:
    """Where each head looks at '#', per selector."""
    seed = median_score(record)["seed"]
    tiles, described = [], []
    for letter in LETTERS:
        for level in (1, 2):
            rows = record.rows("attribution", seed=seed, head=letter, selector=level)
            values = [row["attention"] for row in rows]
            top = int(np.argmax(values))
            note = words.labels("attention")["notes"].split("|")[top]
            described.append({"head": letter, "selector": level, "position": POSITIONS[top]})
            tiles.append(AttentionTile(letter, f"selector {level}", values, ["u", "v", str(level), "#"], note=note))
    return attention_tiles(tiles, **words("attention", tiles=described))


def usage(record: Record, words: Words) -> Figure:
    """Who does what, and the specialisation score of all seeds beside chance."""
    scores = record.rows("specialisation")
    trained = [row["specialisation"] for row in scores]
    untrained = [row["specialisation"] for row in record.rows("untrained")]
    odd = [row for row in scores if row["errors"] == 0 and row["specialisation"] < 0.5]
    about = {
        "median": float(np.median(trained)),
        "lowest": min(trained),
        "seeds": len(trained),
        "chance": float(np.median(untrained)),
        "chance95": float(np.quantile(untrained, 0.95)),
        "untrained": len(untrained),
        "odd": odd,
    }
    text = words.labels("usage", **about)
    strip = ScoreStrip(
        trained,
        untrained,
        text["label"],
        note=text["note"],
        heads=LETTERS,
        chance_label=text["chance_label"],
        chance_note=text["chance_note"],
        value_label=text["value_label"],
        value_note=text["value_note"],
    )
    moved, used = record.array("movement"), record.array("usage")
    return usage_chart(
        moved,
        heads=list(LETTERS),
        roles=["first endpoint", "second endpoint"],
        role_notes=["role u", "role v"],
        texts=[[percent(value, 1) for value in row] for row in moved],
        notes=[[f"usage {value:.2f}" for value in row] for row in used],
        score=strip,
        **words("usage", **about),
    )


def matrices(record: Record, words: Words) -> Figure:
    """QK and OV, learned beside constructed, on the graph that is small enough."""
    graph = record.one("small_graphs")
    both = {
        side: list(zip(record.array(f"{side}_qk"), record.array(f"{side}_ov"), strict=True))
        for side in ("learned", "built")
    }
    middle, chance = record.table("comparison").median(), record.one("untrained_comparison")
    lines = [
        words.labels("matrices", qk=row["qk"], ov=row["ov"], in_use=row["in_use"])["similarity"]
        for row in record.rows("shown_comparison")
    ]
    about = {"seeds": len(record.rows("comparison")), "qk": middle.qk, "ov": middle.ov, "chance": chance}
    return diagrams.matrices(
        graph["graph"], graph["vertices"], both["learned"], both["built"], lines, words=words, **about
    )


def curves(record: Record, words: Words) -> Figure:
    """Accuracy of two heads and of the best one-head method over training, and the two-head specialisation."""
    table = cast("Any", record.table("curves"))
    two, one = table[table.way == "two-heads"], table[table.way == words.values["graph"]["best_way"]]
    phases, rule = phases_of(record)

    def curve(own: pd.DataFrame, column: str, scale: float, **more: Any) -> Curve:
        each = cast("pd.DataFrame", own.groupby("step")[column].agg(["median", "min", "max"]) * scale)
        return Curve(
            each.index.to_list(),
            each["median"].to_numpy(),
            low=each["min"].to_numpy(),
            high=each["max"].to_numpy(),
            **more,
        )

    ceiling, lower = words.values["ceiling"], words.values["graph"]["mfas_lower"]
    text = words.labels("curves")
    panels = [
        CurvePanel(
            "accuracy",
            [
                curve(two, "accuracy", 100.0, heads=LETTERS, label=text["two"]),
                curve(one, "accuracy", 100.0, heads="one", label=coloured("one head", "one"), note=text["one_note"]),
            ],
            axis=Axis(domain=(0, 102), ticks=(0, 50, 100), format=("0", "50", percent(1.0, 0))),
            levels=[Level(100 * ceiling, f"ceiling {percent(ceiling)}")] if lower else [],
        ),
        CurvePanel(
            "specialisation S",
            [curve(two, "specialisation", 1.0, heads=LETTERS)],
            axis=Axis(domain=(0, 1.02), ticks=(0, 0.5, 1)),
            levels=[Level(words.values["chance"], f"chance {words.values['chance']:.2f}", kind="chance")],
            height=110,
        ),
    ]
    last = max(two.step.max(), one.step.max())
    end = {name: own[own.step == own.step.max()].accuracy.median() for name, own in (("two", two), ("one", one))}
    return curve_chart(
        panels,
        axis=Axis("training step (log scale)", scale="log1p", ticks=[step for step in TICKS if step <= last]),
        phases=phases,
        **words("curves", end=end, seeds=two.seed.nunique(), rule=rule),
    )


FIGURES = {
    "strip": (strip, "graph"),
    "order": (order, "graph"),
    "small_order": (small_order, "graph", "small-graph"),
    "circuit": (circuit, "graph"),
    "attention": (attention, "graph"),
    "usage": (usage, "graph"),
    "matrices": (matrices, "small-graph"),
    "curves": (curves, "graph"),
}


def figures(record: Record, words: Words) -> dict[str, Figure | None]:
    """Every figure whose parts were measured, by name."""
    return record.given(FIGURES, words)
