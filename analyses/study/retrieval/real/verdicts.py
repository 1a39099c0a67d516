"""The claims on real data: where the fall lies for passages and for pictures, and what of it is width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headlab.analyses.claims import Measurement, Verdict, judge_figure, judge_statement, load_claims
from headlab.analyses.study.retrieval.real.plans import FAMILIES
from headlab.analyses.study.retrieval.real.readings import Deficit, accuracy, pooled_width, reached, readings
from headlab.analyses.study.retrieval.real.runs import Found
from headlab.interp.render import percent
from headlab.interp.statistics import Estimate, mean

FULL_PICTURES = 50_000  # training pictures of CIFAR-10
MARCO = "MS MARCO"
TOLERANCE = 0.01  # of an accuracy


def passages_claim(found: Found, command: str) -> Measurement | None:
    """R8. Judged against the paper's figures at T = 64 on MS MARCO only. On other passages the verdict is
    `not reached`: how many heads are needed belongs to the data, so our figures neither support nor refute it. None
    where 8 and 12 heads were not measured."""
    longest = max(found.lengths(), default=0)
    eight, twelve = (accuracy(found, "growing", longest, heads) for heads in (8, 12))
    if eight is None or twelve is None:
        return None
    paper = load_claims()["R8"].figures
    verdict: Verdict = "not reached"
    if found.source == MARCO and longest == 64:
        verdict = _both((eight, paper["h8_T64"]), (twelve, paper["h12_T64"]))
    alike = found.baseline.get(longest)
    beside = f"; the most similar frozen embedding is right in {percent(alike[1], 1)}" if alike else ""
    return Measurement(
        "R8",
        verdict,
        f"{found.plan.train} questions, {found.source}, T = {longest}: training accuracy {shown(eight)} with 8 heads, "
        f"{shown(twelve)} with 12. {reach_sentence(found, paper['h12_T64'])} Held out, 12 heads: "
        f"{shown(accuracy(found, 'growing', longest, 12, held=True))} (chance "
        f"{percent(1 / longest, 1)}){beside}.",
        figures_of(found) | {"most_similar": {str(t): list(v) for t, v in found.baseline.items()}},
        command,
        paper="MS MARCO, T = 64: .932 with 8 heads, .991 with 12",
        interval=twelve.interval,
        seeds=found.plan.seeds,
    )


def pictures_claim(found: Found, command: str) -> Measurement | None:
    """R9. Judged against the paper's figures where all of CIFAR-10's training pictures are trained on. On fewer the
    verdict is `not reached`: what can be fitted depends on how many pictures there are and how long they are trained
    on, so that our figures do not place the fall on the full set. None where 8 and 10 heads were not measured."""
    eight, ten = over_lengths(found, 8), over_lengths(found, 10)
    if eight is None or ten is None:
        return None
    paper = load_claims()["R9"].figures
    whole = found.plan.train >= FULL_PICTURES
    verdict: Verdict = "not reached"
    if whole:
        verdict = _both((eight, paper["h8"]), (ten, paper["h10"]))
    part = (
        ""
        if whole
        else f" One picture in {round(FULL_PICTURES / found.plan.train)} and {found.plan.steps()} steps: our figures "
        "do not compare with those of the full set."
    )
    return Measurement(
        "R9",
        verdict,
        f"{found.plan.train} pictures, {found.source}, T = {listed(found.lengths())}: training accuracy "
        f"{shown(eight)} with 8 heads, {shown(ten)} with 10 (held out {shown(over_lengths(found, 10, held=True))}). "
        f"{reach_sentence(found, paper['h10'][0])}{part}",
        figures_of(found),
        command,
        paper="full set: .90 to .95 with 8 heads, .96 to .98 with 10",
        interval=ten.interval,
        seeds=found.plan.seeds,
    )


def width_claim(rows: Sequence[Deficit], command: str, *, seeds: int) -> Measurement | None:
    """B10, over the lengths of digits and pictures. Holds: the share of the one-head deficit that a fixed total width
    takes away is above one half with its whole interval. Fails: it is below one half with its whole interval. None
    where nothing was measured."""
    images = [row for row in rows if row.data in ("digits", "pictures")]
    share = pooled_width(images)
    if share is None:
        return None
    each = "; ".join(
        f"{row.data} T = {row.length}: {points(row.growing.value)} to {points(row.fixed.value)}" for row in images
    )
    return Measurement(
        "B10",
        judge_statement(share.low > 0.5, share.high < 0.5),
        f"What one head lacks against {images[0].heads} heads, in points of training accuracy, from a fixed width a "
        f"head to a fixed total: {each}. {percent(share.value, 0)} [{percent(share.low, 0)}, {percent(share.high, 0)}] "
        "of it is width.",
        {
            "share": share.value,
            "cells": [
                {
                    "data": row.data,
                    "length": row.length,
                    "heads": row.heads,
                    "growing": [row.growing.value, *(row.growing.interval or ())],
                    "fixed": [row.fixed.value, *(row.fixed.interval or ())],
                    "width": [row.width.value, *(row.width.interval or ())],
                }
                for row in rows
            ],
        },
        command,
        interval=share.interval,
        seeds=seeds,
    )


def _both(*pairs: tuple[Estimate, Any]) -> Verdict:
    verdicts: list[Verdict] = [judge_figure(made.value, figure, tolerance=TOLERANCE) for made, figure in pairs]
    return worse(*verdicts)


def worse(*verdicts: Verdict) -> Verdict:
    """The least favourable of verdicts on figures."""
    order: tuple[Verdict, ...] = ("fails", "not reached", "holds", "exceeds")
    return min(verdicts, key=order.index)


def reach_sentence(found: Found, bar: float) -> str:
    """From how many heads on the paper's later figure is had at every length, in both families, and what the table
    of errors says."""
    grown, fixed = (reached(found, family, bar) for family in FAMILIES)
    total = found.plan.total
    parts = [
        f"{percent(bar, 1)} at every length "
        + (f"from {grown} heads on" if grown else "with no head count measured")
        + f" at {found.plan.width} numbers a head (growing), "
        + (f"from {fixed} on" if fixed else "with none")
        + f" at {total} in all (fixed)."
    ]
    answers = readings([found])
    read = [
        f"{'beyond range' if answer.needed is None else answer.needed} ({percent(answer.probability, 0)}) {family}"
        for family, answer in ((name, answers.get((found.plan.kind, name))) for name in FAMILIES)
        if answer is not None
    ]
    if read:
        parts.append(f"Heads needed by the change point of the errors: {', '.join(read)}.")
    return " ".join(parts)


def over_lengths(found: Found, heads: int, *, held: bool = False) -> Estimate | None:
    """Accuracy with a fixed width a head, over all lengths and seeds."""
    cells = [cell for length in found.lengths() if (cell := found.cell("growing", length, heads))]
    values = [value for cell in cells for value in (cell.held_accuracy if held else cell.accuracy)]
    return mean(values) if values else None


def figures_of(found: Found) -> dict[str, Any]:
    """The accuracies of every cell, JSON-ready: family -> length -> heads -> [mean, low, high, held-out mean]."""
    table: dict[str, Any] = {"train": found.plan.train, "source": found.source}
    for family in FAMILIES:
        table[family] = {
            str(length): {
                str(heads): [made.value, *(made.interval or (None, None)), float(np.mean(cell.held_accuracy))]
                for heads in found.heads(family)
                if (cell := found.cell(family, length, heads)) and (made := accuracy(found, family, length, heads))
            }
            for length in found.lengths()
        }
    return table


def shown(value: Estimate | None) -> str:
    """`93.2 % [92.0 %, 94.1 %]`."""
    if value is None:
        return "not measured"
    ends = f" [{percent(value.low, 1)}, {percent(value.high, 1)}]" if value.interval else ""
    return f"{percent(value.value, 1)}{ends}"


def points(share: float) -> str:
    """A difference of accuracies in points."""
    return f"{100 * share:.0f}"


def listed(values: Sequence[int]) -> str:
    """`16, 25, 36`."""
    return ", ".join(map(str, values))
