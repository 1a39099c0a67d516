"""The numbers that the claims on sparse XOR are judged by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headlab.analyses.claims import Evidence
from headlab.analyses.study.record import Record
from headlab.interp.interval import Interval
from headlab.interp.statistics import Share, median, share, slope

EQUAL = 1e-12  # largest difference of two float64 computations that counts as none
LARGE = 1000  # bits from which "with high probability" is asked


def pooled(rows: list[dict[str, Any]], count: str) -> Share:
    """The share of `count` among the seeds of all rows."""
    return share(sum(row[count] for row in rows), sum(row["seeds"] for row in rows))


def _one_step(record: Record) -> Evidence:
    cells = record.rows("steps", group="size")
    large = [cell for cell in cells if cell["bits"] >= LARGE]
    last, together = max(cells, key=lambda cell: cell["bits"]), pooled(large, "one_to_one")
    values = {
        "share": min(cell["one_to_one"] / cell["seeds"] for cell in large),
        "share_low": together.low,
        "share_largest_high": pooled([last], "one_to_one").high,
        "cells": [
            {"bits": cell["bits"], "width": cell["width"], "share": cell["one_to_one"] / cell["seeds"]}
            for cell in cells
        ],
        "timed": max(record.rows("scale"), key=lambda row: row["bits"], default=None),
    }
    return Evidence(values, together.interval, together.trials)


def _sharp(record: Record) -> Evidence:
    cells = record.rows("steps", group="size")
    sharp, split = pooled(cells, "sharp"), sum(cell["one_to_one"] for cell in cells)
    values = {
        "share": sharp.value,
        "share_high": sharp.high,
        "sharp": sharp.successes,
        "seeds": sharp.trials,
        "share_of_split": sharp.successes / split,
        "attention_lowest": min(cell["attention_lowest"] for cell in cells),
        "loss_largest": max(cell["loss_largest"] for cell in cells),
    }
    return Evidence(values, sharp.interval, sharp.trials)


def _maps(record: Record) -> Evidence:
    seeds = record.table("map_seeds")
    middle = seeds.groupby(["steps", "start", "map"])[["alignment", "loss"]].median()
    once, many = middle.loc["one"].loc["antisymmetric"], middle.loc["many"]
    others = many.drop(index="softmax", level="map")
    rows = [row for row in record.rows("maps", start="independent") if row["map"] != "softmax"]
    chosen = seeds.query("steps == 'one' and start == 'antisymmetric' and map == 'softmax'")
    values = {
        "alignment_softmax": once.alignment["softmax"],
        "alignment_others": once.alignment.drop("softmax").max(),
        "loss_others": others.loss.min(),
        "loss_others_largest": others.loss.max(),
        "share_apart": pooled(rows, "one_to_one").value,
        "steps": max(row["steps"] for row in record.rows("maps")),
    }
    return Evidence(values, median(chosen.alignment.to_numpy()).interval, len(chosen))


def _angles(record: Record) -> Evidence:
    def at(angle: float) -> Share:
        return pooled(record.rows("angles", angle=angle), "together")

    opposite, orthogonal, every = at(180.0), at(90.0), sorted({row["angle"] for row in record.rows("angles")})
    starts = {start: pooled(rows, "together") for start, rows in by_start(record).items()}
    values = {
        "difference_low": orthogonal.low - opposite.high,
        "difference_high": orthogonal.high - opposite.low,
        "share_opposite": opposite.value,
        "share_orthogonal": orthogonal.value,
        "angles": [{"angle": angle, "share": at(angle).value} for angle in every],
        "starts": {start: each.value for start, each in starts.items()},
        "bits": sorted({row["bits"] for row in record.rows("angles")}),
    }
    return Evidence(values, opposite.interval, opposite.trials)


def by_start(record: Record) -> dict[str, list[dict[str, Any]]]:
    """Start -> its cells, in the order of the record."""
    rows = record.rows("steps", group="start")
    return {start: [row for row in rows if row["start"] == start] for start in dict.fromkeys(r["start"] for r in rows)}


def _many_samples(record: Record) -> Evidence:
    return _samples(record, "many steps")


def _samples(record: Record, main: str = "one step") -> Evidence:
    fits = {
        (row["method"], row["which"], row["by"]): row for row in record.rows("exponents")
    }  # (method, which, by) -> row
    once, many = fits["one step", "one_to_one", "bits"], fits["many steps", "one_to_one", "bits"]

    def at_half(method: str) -> dict[str, Any]:
        needed = record.rows("samples_needed", method=method, which="one_to_one", by="bits")
        return max(needed, key=lambda row: row["size"])

    enough = [
        {"bits": row["bits"], "share": row["one_to_one"] / row["seeds"]}
        for row in record.rows("samples", method="many steps")
        if row["samples"] == 16 * row["bits"]
    ]
    values = {
        "one_step": once["value"],
        "one_step_low": once["low"],
        "one_step_high": once["high"],
        "many": many["value"],
        "many_low": many["low"],
        "many_high": many["high"],
        "wide": fits["many steps, m = d", "one_to_one", "bits"],
        "support": fits["one step", "on_support", "bits"],
        "support_by_width": fits["one step", "on_support", "width"],
        "at_half": {"one_step": at_half("one step"), "many": at_half("many steps")},
        "at_16_d": enough,
        "level": once["level"],
    }
    chosen = once if main == "one step" else many
    seeds = [row["seeds"] for row in record.rows("samples", method=main)]
    return Evidence(values, Interval(chosen["low"], chosen["high"], 0.95), min(seeds))


def _equal(record: Record) -> Evidence:
    rows = record.rows("equality")
    worst = [max(row["transformer"], row["loss"], row["gradient"]) for row in rows]
    values = {
        "models": len(rows),
        "violations": sum(each > EQUAL for each in worst),
        "largest": max(worst),
        "maps": list(dict.fromkeys(row["map"] for row in rows)),
        "heads": max(row["heads"] for row in rows),
    }
    return Evidence(values)


def _beyond_two(record: Record) -> Evidence:
    rows = record.rows("parity", method="one-step")
    shares = [pooled([row], "one_to_one") for row in rows]
    heads = [
        {
            "heads": count,
            "share": pooled(own, "one_to_one").value,
            "support": pooled(own, "on_support").value,
            "chance": chance_of(count),
        }
        for count in dict.fromkeys(row["heads"] for row in rows)
        if (own := [row for row in rows if row["heads"] == count])
    ]
    best = max(shares, key=lambda each: each.value)
    values = {"share_highest": best.value, "share_lowest": min(each.value for each in shares), "heads": heads}
    return Evidence(values, best.interval, rows[0]["seeds"])


def chance_of(heads: int) -> float:
    """One to one when every head takes a target at random: k! / k^k."""
    return float(np.prod(np.arange(1, heads + 1) / heads))


def _normalised(record: Record) -> Evidence:
    rows = record.rows("parity", method="normalised")
    shares, total = [pooled([row], "one_to_one") for row in rows], pooled(rows, "one_to_one")
    turned = [row["one_to_one"] / row["seeds"] for row in record.rows("parity", method="in-turn")]
    values = {
        "share_lowest": min(each.value for each in shares),
        "share_lowest_high": min(each.high for each in shares),
        "right": total.successes,
        "trainings": total.trials,
        "heads": sorted({row["heads"] for row in rows}),
        "bits": sorted({row["bits"] for row in rows}),
        "in_turn": [min(turned), max(turned)] if turned else None,
    }
    return Evidence(values, total.interval, rows[0]["seeds"])


def _first_gradient(record: Record) -> Evidence:
    seeds = record.table("first_gradient")
    ratio = (seeds.relevant / seeds.background).groupby(seeds.bits).median()
    values: Mapping[str, Any] = {
        "ratio": ratio.min(),
        "ratio_largest": ratio.max(),
        "bits": [int(each) for each in ratio.index],
    }
    if len(ratio) > 2:
        growth = slope(np.log(ratio.index.to_numpy(float)), np.log(ratio.to_numpy()))
    else:  # two sizes have no residual: the spread is over seeds
        first, last = (np.log(each.relevant / each.background) for _, each in seeds.groupby("bits"))
        span = np.log(ratio.index[-1] / ratio.index[0])
        growth = median((last.to_numpy() - first.to_numpy()) / span)
    values = {**values, "growth": growth.value, "growth_low": growth.low, "growth_high": growth.high}
    return Evidence(values, growth.interval, int(seeds.groupby("bits").size().to_numpy().min()))


SAMPLED = ("samples-one-step", "samples-many-steps", "samples-wide", "samples-by-width")
EVIDENCE = {
    "X1": (_one_step, "one-step"),
    "X3": (_maps, "maps"),
    "X4": (_sharp, "one-step"),
    "X5": (_angles, "angles", "starts"),
    "X6": (_samples, *SAMPLED),
    "X7": (_equal, "equality"),
    "X8": (_beyond_two, "parity"),
    "X10": (_first_gradient, "first-gradient"),
    "B7": (_many_samples, *SAMPLED),
    "B8": (_normalised, "parity"),
}


def evidence(record: Record) -> dict[str, Evidence]:
    """Claim id -> evidence, for the claims whose parts were measured."""
    return record.given(EVIDENCE)
