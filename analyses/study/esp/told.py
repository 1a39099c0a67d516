"""What the words and figures of the endpoint selection page need besides the evidence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from headlab.analyses.study.esp.two_heads import shown_arc
from headlab.analyses.study.record import Record
from headlab.interp.render import Phase
from headlab.models.esp.graphs import Digraph
from headlab.models.esp.recipes import plan as recipe_of
from headlab.models.esp.task import EspTask


def order_of(record: Record, prefix: str) -> tuple[Digraph, list[int]]:
    """The graph of a part (`small_` of the smaller one), and its vertices in the order that one head holds."""
    vertices = record.rows(f"{prefix}vertices")
    arcs = tuple((row["tail"], row["head"]) for row in record.rows(f"{prefix}arcs"))
    graph = Digraph(record.one(f"{prefix}graphs")["graph"], tuple(row["label"] for row in vertices), arcs)
    return graph, [row["vertex"] for row in sorted(vertices, key=lambda row: row["place"])]


def median_score(record: Record) -> dict[str, Any]:
    """The row of the seed that the figures show."""
    return record.one("specialisation", shown=True)


def told(record: Record) -> dict[str, Any]:
    """The graph, its ceiling, the best models, and the part of the overview."""
    row, (graph, _) = record.one("graphs"), order_of(record, "")
    trained = record.table("models", constructed=False)
    one, two = trained[trained.way == row["best_way"]], trained[trained.way == "two-heads"]
    scores = record.table("specialisation")
    divided = scores[scores.specialisation >= 0.5]
    own = [
        min(each["attention"] for each in record.rows("attribution", seed=seed) if _at_own_endpoint(each))
        for seed in divided.seed
    ]
    pairs = graph.constraints()
    return {
        "graph": row,
        "ceiling": 1 - row["mfas_lower"] / (2 * row["arcs"]),
        "exact": row["mfas_lower"] == row["mfas_upper"],
        "questions": 2 * row["arcs"],
        "both": sum(u < v and (v, u) in pairs for u, v in pairs),
        "arc": shown_arc(graph),
        "best_two": two.accuracy.max(),
        "lowest_two": two.accuracy.min(),
        "seeds_two": len(two),
        "odd": int(((scores.errors == 0) & (scores.specialisation < 0.5)).sum()),
        "samples": int(scores.samples.iloc[0]),
        "least_attention": min(own, default=0.0),
        "divided": len(divided),
        "chance": float(np.median([each["specialisation"] for each in record.rows("untrained")])),
        "q": recipe_of(EspTask(graph), heads=1, method="gce").recipe.q,
        "small": _small(record),
        "by_heads": {
            "what": "questions right, %",
            "scale": "linear",
            "chance": None,
            "values": {str(heads): (100 * each.accuracy).to_list() for heads, each in ((1, one), (2, two))},
        },
    }


def _at_own_endpoint(row: dict[str, Any]) -> bool:
    return (row["head"], row["selector"], row["position"]) in (("A", 1, "u"), ("B", 2, "v"))


def _small(record: Record) -> dict[str, Any] | None:
    """The smaller graph, the best one-head method on it, and how alike its two-head models are to the construction."""
    if not record.has("small-graph"):
        return None
    row = record.one("small_graphs")
    row["similarity"] = record.table("comparison").in_use.median()
    if row["best_way"] is None:
        return row
    rows = record.rows("small_models", way=row["best_way"])
    best = min(rows, key=lambda each: (each["errors"], each["seed"]))
    return {
        **row,
        "errors": best["errors"],
        "accuracy": best["accuracy"],
        "given_up": best["given_up"] or 0,
        "at_best": sum(each["errors"] == best["errors"] for each in rows),
        "seeds": len(rows),
    }


def phases_of(record: Record) -> tuple[list[Phase], dict[str, Any] | None]:
    """The phases of two-head training by stated rules, and their steps; none where a rule is not met.

    II begins where 95 % of the median seed's answers are one of the two endpoints, III where its specialisation
    passes 0.5, IV where every seed is right on every question.
    """
    table = record.table("curves", way="two-heads")
    middle = table.groupby("step")[["endpoint_share", "specialisation"]].median()
    copied, divided = _first(middle.endpoint_share, 0.95), _first(middle.specialisation, 0.5)
    solved = [row["solved"] for row in record.rows("models", way="two-heads")]
    if copied is None or divided is None or None in solved or not copied < divided:
        return [], None
    last = max(solved)
    phases = [Phase(0, "I", "search", "answers anything"), Phase(copied, "II", "copy"), Phase(divided, "III", "split")]
    if last > divided:
        phases.append(Phase(last, "IV", "solved", "every seed 100 %"))
    return phases, {"copied": copied, "divided": divided, "last": last}


def _first(values: pd.Series, level: float) -> int | None:
    reached = values.index[(values >= level).to_numpy()]
    return int(reached[0]) if len(reached) else None
