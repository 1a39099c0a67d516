"""What the cells say: accuracy with its interval, what is heads and what is width, and where the fall lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from headlab.analyses.head_count import HeadCount, heads_needed
from headlab.analyses.study.retrieval.real.plans import FAMILIES, Family
from headlab.analyses.study.retrieval.real.runs import Found
from headlab.interp.interval import Interval
from headlab.interp.statistics import Estimate, mean

RESAMPLES = 2000


@dataclass(frozen=True)
class Deficit:
    """What one head lacks against the head count at which both families have the same model.

    heads: that head count. growing, fixed: its accuracy minus that of one head, with a fixed number of numbers a head
    and with a fixed total. width: the share of the first that the fixed total takes away, 1 - fixed / growing.
    """

    data: str
    length: int
    heads: int
    growing: Estimate
    fixed: Estimate
    width: Estimate


def frame(found: Sequence[Found]) -> pd.DataFrame:
    """One row a seed: data, source, family, length, heads, d_model, d_head, parameters, seed, accuracy, held_accuracy,
    rank, held_rank."""
    return pd.DataFrame(
        [
            {
                "data": each.plan.kind,
                "source": each.source,
                "family": m.cell.family,
                "length": m.cell.length,
                "heads": m.cell.heads,
                "d_model": m.cell.model,
                "d_head": m.cell.head,
                "parameters": m.parameters,
                "seed": seed,
                "accuracy": m.accuracy[k],
                "held_accuracy": m.held_accuracy[k],
                "rank": m.rank[k],
                "held_rank": m.held_rank[k],
            }
            for each in found
            for m in each.cells
            for k, seed in enumerate(m.seeds)
        ]
    )


def error_table(found: Found, family: Family) -> pd.DataFrame:
    """Columns heads, length, seed, error: the share of training sequences that are wrong.

    A seed without a wrong one counts half a sequence, so that every error has a logarithm.
    """
    rows = [
        {
            "heads": m.cell.heads,
            "length": m.cell.length,
            "seed": seed,
            "error": max(1 - accuracy, 0.5 / found.plan.train),
        }
        for m in found.cells
        if m.cell.family == family
        for seed, accuracy in zip(m.seeds, m.accuracy, strict=True)
    ]
    return pd.DataFrame(rows, columns=["heads", "length", "seed", "error"])


def readings(found: Sequence[Found]) -> dict[tuple[str, Family], HeadCount]:
    """The number of heads needed, read off each table with three head counts or more: (data, family) -> answer."""
    answers: dict[tuple[str, Family], HeadCount] = {}
    for each in found:
        for family in FAMILIES:
            table = error_table(each, family)
            if len(each.heads(family)) > 2:
                answers[each.plan.kind, family] = heads_needed(table, complete=False)
    return answers


def deficits(found: Sequence[Found]) -> list[Deficit]:
    """One a data set and length at which one head of both families and the model that they share were measured."""
    rows = []
    for each in found:
        meeting = each.plan.meeting()
        for length in each.lengths() if meeting else ():
            assert meeting is not None
            cells = [
                each.cell("growing", length, 1),
                each.cell("fixed", length, 1),
                each.cell("growing", length, meeting),
            ]
            if all(cells):
                rows.append(_deficit(each.plan.kind, length, meeting, *[cell.accuracy for cell in cells if cell]))
    return rows


def _deficit(data: str, length: int, heads: int, *accuracies: tuple[float, ...]) -> Deficit:
    def values(narrow: Any, wide: Any, many: Any) -> tuple[Any, Any, Any]:
        growing, fixed = many - narrow, many - wide
        return growing, fixed, 1 - fixed / np.where(growing == 0, np.nan, growing)

    drawn = [np.asarray(each)[_resampled(len(each), number)].mean(1) for number, each in enumerate(accuracies)]
    spread, exact = values(*drawn), values(*(np.mean(each) for each in accuracies))
    return Deficit(
        data, length, heads, *(_estimate(float(v), s, len(accuracies[0])) for v, s in zip(exact, spread, strict=True))
    )


def _resampled(count: int, number: int) -> np.ndarray:
    return np.random.default_rng([count, number]).integers(count, size=(RESAMPLES, count))


def _estimate(value: float, spread: np.ndarray, count: int) -> Estimate:
    if not np.isfinite(value) or not np.isfinite(spread).any():
        return Estimate(float("nan"), None, count)
    low, high = np.nanpercentile(spread, [2.5, 97.5])
    return Estimate(value, Interval(min(float(low), value), max(float(high), value), 0.95), count)


def pooled_width(rows: Sequence[Deficit]) -> Estimate | None:
    """The mean share of the one-head deficit that is width, over data sets and lengths, and its t interval over
    these; None where nothing was measured, or where one head lacks nothing.
    """
    shares = [row.width.value for row in rows if np.isfinite(row.width.value)]
    return mean(shares) if shares else None


def reached(found: Found, family: Family, bar: float) -> int | None:
    """The smallest head count from which on the mean training accuracy is at least `bar` at every length; None where
    even the largest is below."""
    answer = None
    for heads in reversed(found.heads(family)):
        cells = [cell for t in found.lengths() if (cell := found.cell(family, t, heads))]
        if min(float(np.mean(cell.accuracy)) for cell in cells) < bar:
            break
        answer = heads
    return answer


def accuracy(found: Found, family: Family, length: int, heads: int, *, held: bool = False) -> Estimate | None:
    """Mean accuracy of a cell over its seeds with its interval; held: on the sequences held out."""
    cell = found.cell(family, length, heads)
    return None if cell is None else mean(cell.held_accuracy if held else cell.accuracy)
