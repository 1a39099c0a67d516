"""The numbers that the claims on endpoint selection are judged by."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import log2
from typing import Any, cast

import numpy as np

from headlab.analyses.claims import Evidence
from headlab.analyses.study.record import Record
from headlab.interp.statistics import median, share

SATURATED_FROM = 8.0  # sink strength M


def _constructed(record: Record, claim: str) -> Evidence:
    rows = record.rows("constructed", claim=claim)
    values = {
        "models": len(rows),
        "violations": sum(row["errors"] > 0 for row in rows),
        "graphs": len({row["graph"] for row in rows}),
        "largest_n": max(row["vertices"] for row in rows),
        "margin": min(row["margin"] for row in rows),
    }
    return Evidence(values)


def _complete(row: dict[str, Any]) -> bool:
    return row["graph"].startswith("complete")


def _least_error(record: Record) -> Evidence:
    rows = [row for row in record.rows("constructed", claim="E3") if row["mfas"] is not None]
    first = record.rows("constructed", claim="E3")[0]
    values = {
        "models": len(rows),
        "violations": sum(row["errors"] != row["mfas"] for row in rows),
        "graphs": len({row["graph"] for row in rows}),
        "graph": first["graph"],
        "errors": first["errors"],
        "mfas": first["mfas"] if first["mfas"] is not None else "unknown",
    }
    return Evidence(values)


def _two_heads(record: Record, claim: str) -> Evidence:
    rows = record.rows("constructed", claim=claim)
    given = _constructed(record, claim)
    return Evidence({**given.values, "largest_n": max(row["vertices"] for row in rows if _complete(row))})


def _narrow(record: Record) -> Evidence:
    precision = record.rows("precision")
    ratios = [row["bits"] / log2(row["vertices"]) for row in precision if row["bits"] is not None]
    bits = max(ratios) if len(ratios) == len(precision) else None
    return Evidence({**_two_heads(record, "E5").values, "precision": precision, "bits_per_log_n": bits})


def one_head_models(record: Record) -> list[dict[str, Any]]:
    """Every trained one-head model of the theorem's class on a graph with a cycle."""
    rows = [row | {"graph": record.one("graphs")["graph"]} for row in record.rows("models", constructed=False)]
    rows += [row for row in record.rows("trainings") if not row["induction"]]
    return [row for row in rows if row["heads"] == 1 and row["in_class"] and row["mfas"] > 0]


def _violations(rows: Sequence[dict[str, Any]]) -> int:
    return sum(row["errors"] < row["mfas"] or not row["certified"] for row in rows)


def _no_one_head(record: Record) -> Evidence:
    rows = one_head_models(record)
    wrong = _violations(rows)
    values = {
        "models": len(rows),
        "violations": wrong,
        "graphs": len({row["graph"] for row in rows}),
        "widths": sorted({row["width"] for row in rows}) or [0],
        "fewest_above": min((row["errors"] - row["mfas"] for row in rows), default=0),
    }
    return Evidence(values, share(wrong, len(rows)).interval if rows else None, len(rows) or None)


def _induction(record: Record) -> Evidence:
    two, one = record.rows("constructed", claim="E6"), record.rows("trainings", claim="E6")
    wrong = sum(row["errors"] > 0 for row in two)
    values = {
        "models": len(two) + len(one),
        "violations": wrong + _violations(one) + sum(row["errors"] == 0 for row in one),
        "two": len(two),
        "two_wrong": wrong,
        "one": len(one),
        "one_fewest": min(row["errors"] for row in one),
        "graph": one[0]["graph"],
        "mfas": one[0]["mfas"],
    }
    return Evidence(values, seeds=len(one))


def _named(record: Record, claim: str) -> Evidence:
    rows = record.rows("trainings", claim=claim)
    accuracy = [row["accuracy"] for row in rows]
    sizes = sorted({row["vertices"] for row in rows})
    values = {
        "accuracy": min(accuracy),
        "accuracy_best": max(accuracy),
        "runs": len(rows),
        "perfect": sum(row["errors"] == 0 for row in rows),
        "sizes": sizes,
        "seeds": len(rows) // len(sizes),
    }
    return Evidence(values, median(accuracy).interval, len(rows) // len(sizes))


def _cross_entropy(record: Record) -> Evidence:
    rows = record.rows("trainings", claim="E9")
    middle = median([row["accuracy"] for row in rows])
    values = {
        "accuracy_best": max(row["accuracy"] for row in rows),
        "accuracy_median": middle.value,
        "seeds": len(rows),
        "vertices": rows[0]["vertices"],
    }
    return Evidence(values, middle.interval, len(rows))


def _bounded(record: Record) -> Evidence:
    rows, usual = record.rows("trainings", claim="B2"), record.rows("trainings", claim="E9")
    at_optimum = share(sum(row["errors"] == row["mfas"] for row in rows), len(rows))
    tied = median([row["accuracy"] for row in usual])
    values = {
        "accuracy_bounded": max(row["accuracy"] for row in rows),
        "accuracy_usual": tied.value,
        "accuracy_usual_high": tied.high,
        "at_optimum": at_optimum.successes,
        "seeds": len(rows),
    }
    return Evidence(values, at_optimum.interval, len(rows))


def _growing(record: Record) -> Evidence:
    rows = record.rows("trainings", claim="E11")
    graphs = dict.fromkeys(row["graph"] for row in rows)
    cells = [
        {"mfas": own[0]["mfas"], "best": min(row["errors"] for row in own)}
        for graph in graphs
        if (own := [row for row in rows if row["graph"] == graph])
    ]
    over = median([row["errors"] - row["mfas"] for row in rows])
    excess = [cell["best"] - cell["mfas"] for cell in cells]
    values = {
        "cells": cells,
        "excess_largest": max(excess),
        "excess_smallest": min(excess),
        "median_excess": over.value,
    }
    return Evidence(values, over.interval, len(rows) // len(cells))


def _feed_forward(record: Record) -> Evidence:
    rows = record.rows("trainings", claim="E12")
    two = next(row for row in record.rows("trainings", claim="E10") if row["graph"] == rows[0]["graph"])
    solved = share(sum(row["errors"] == 0 for row in rows), len(rows))
    values = {
        "share_solved": solved.value,
        "share_solved_high": solved.high,
        "solved": solved.successes,
        "seeds": len(rows),
        "vertices": rows[0]["vertices"],
        "parameters": rows[0]["parameters"],
        "parameters_two": two["parameters"],
        "parameter_ratio": rows[0]["parameters"] / two["parameters"],
    }
    return Evidence(values, solved.interval, len(rows))


def _pairs(record: Record) -> Evidence:
    frame = record.table("importance")
    frame["excess"] = frame.pair_loss - frame.first_loss - frame.second_loss
    chosen, cells, by_model = None, [], frame.groupby(["model", "metric", "number"], sort=False).excess.mean()
    for (model, metric), each in by_model.groupby(level=["model", "metric"], sort=False):
        middle = median(each.to_numpy())
        cells.append(
            {
                "model": model,
                "metric": metric.replace("_", " "),
                "excess": middle.value,
                "low": middle.interval and middle.low,
                "high": middle.interval and middle.high,
                "models": len(each),
            }
        )
        if (model, metric) == ("two learned heads", "accuracy"):
            chosen = middle
    if chosen is None:
        raise KeyError("no two learned heads were ablated with accuracy as the metric")
    low, high = chosen.interval or (None, None)
    values = {"excess": chosen.value, "excess_low": low, "excess_high": high, "cells": cells}
    return Evidence(values, chosen.interval, chosen.count)


def _outside(record: Record) -> Evidence:
    rows = record.rows("layer_norm")
    over = [row for row in rows if row["errors"] < row["mfas"]]
    perfect = share(sum(row["errors"] == 0 for row in rows), len(rows))
    values = {
        "models": len(rows),
        "models_past": len(over),
        "models_unflagged": sum(bool(row["in_class"]) for row in over),
        "perfect": perfect.successes,
        "vertices": rows[0]["vertices"],
        "best_without": max((row["accuracy_without_bias"] for row in over), default=None),
    }
    return Evidence(values, perfect.interval, len(rows))


def _order(record: Record) -> Evidence:
    graph = record.one("graphs")
    rows = record.rows("models", way=graph["best_way"])
    inside = [row for row in rows if row["in_class"]]
    best = next(row for row in rows if row["seed"] == graph["best_seed"])
    slack = [row["errors"] - row["given_up"] for row in inside]
    middle, few = median(slack), max(1.0, 0.02 * 2 * graph["arcs"])
    values = {
        "given_up": best["given_up"],
        "errors": best["errors"],
        "excess": middle.value,
        "excess_of_few": middle.value / few,
        "excess_smallest": min(slack),
        "few": few,
        "seeds": len(inside),
    }
    return Evidence(values, middle.interval, len(inside))


def _edges(record: Record) -> Evidence:
    frame = cast("Any", record.table("edges"))
    saturated = frame[(frame.noise == 0) & (frame.sink >= SATURATED_FROM)]
    eap, noisy = saturated[saturated.method == "eap"], frame[(frame.noise > 0) & (frame.method == "eap")]
    values = {
        "cells": len(eap),
        "auroc_eap": eap.auroc.min(),
        "auroc_exact": frame[(frame.noise == 0) & (frame.method == "exact")].auroc.min(),
        "auroc_random": eap.random_auroc.mean(),
        "ratio_smallest": eap.smallest_ratio.min(),
        "noise": [{"noise": noise, "auroc": each.auroc.median()} for noise, each in noisy.groupby("noise")],
    }
    least = noisy[noisy.noise == noisy.noise.min()]
    interval = median(np.asarray(least.auroc)).interval if len(least) else None
    return Evidence(values, interval, frame[frame.noise > 0].draw.nunique() or None)


EVIDENCE = {
    "E1": (partial(_constructed, claim="E1"), "constructed"),
    "E2": (_no_one_head, "graph"),
    "E3": (_least_error, "constructed"),
    "E4": (partial(_two_heads, claim="E4"), "constructed"),
    "E5": (_narrow, "constructed", "precision"),
    "E6": (_induction, "constructed", "induction"),
    "E7": (partial(_named, claim="E7"), "trainings"),
    "E8": (partial(_named, claim="E8"), "trainings"),
    "E9": (_cross_entropy, "trainings"),
    "E10": (partial(_named, claim="E10"), "trainings"),
    "E11": (_growing, "trainings"),
    "E12": (_feed_forward, "trainings"),
    "E13": (_pairs, "importance"),
    "B1": (_outside, "layer-norm"),
    "B2": (_bounded, "trainings"),
    "B3": (_order, "graph"),
    "B11": (_edges, "edges"),
}


def evidence(record: Record) -> dict[str, Evidence]:
    """Claim id -> evidence, for the claims whose parts were measured."""
    return record.given(EVIDENCE)
