"""The page of a calibration: one matrix per kind of ablation, and every cell with its edges below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from headlab.analyses.calibrate.ladder import NAMES
from headlab.analyses.calibrate.protocol import APART, Calibration, Cell
from headlab.analyses.calibrate.summary import by_kind, cost, mean_of, quote, worst_sentence
from headlab.analyses.study.words import Words
from headlab.interp.render import Details, Figure, Section, effect_grid, report_page

MOST_LINES = 40


def page(found: Calibration, record: Mapping[str, Any] | None = None) -> str:
    """The HTML of a calibration.

    Args:
        found: of one or more methods; the first is the page's.
        record: the built-in instruments' record, whose columns stand beside; None for none.
    """
    method = found.methods[0]
    words = Words("calibrate", _values(found, method, record))
    tables = {} if record is None else record.get(found.level, {})
    sections = []
    for summary in by_kind(found, method):
        figure = _matrix(found, summary.kind, tables.get("cells", ()), words)
        cells = found.select(kind=summary.kind, method=method)
        sections.append(
            Section(
                name=summary.kind,
                heading=[_heading(summary.passed, summary.scored, summary.kind)],
                text=words.fill("section_text", sentence=summary.sentence),
                figures=[figure],
                details=[_details(found, cell) for cell in cells],
                anchor=f"kind-{summary.kind}",
            )
        )
    contested = [cell for cell in found.cells if cell.contested is not None]
    if contested:
        lines = [f"{c.method}, {c.task}, {c.kind}: {c.contested:.0%} above the cut" for c in contested]
        texts = words.fill("contested_text")
        sections.append(
            Section("Contested", ["What it does with a cancelling pair"], texts, details=[Details("Cells", lines)])
        )
    sections.append(Section("Cost", [cost(found, method)], words.fill("apart_text") if _apart(found) else ""))
    return report_page(
        title=str(words.fill("title")),
        kicker=words.fill("kicker"),
        headline=words.lines("headline"),
        summary=words.fill("summary"),
        sections=sections,
        footer=words.fill("footer"),
    )


def _values(found: Calibration, method: str, record: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "method": method,
        "level": found.level,
        "cells": len(found.select(method=method)),
        "tasks": list(dict.fromkeys(cell.task for cell in found.cells)),
        "rungs": len({cell.rung for cell in found.cells}),
        "quote": quote(found, method),
        "record_seeds": "no" if record is None else record["seeds"],
    }


def _apart(found: Calibration) -> bool:
    return any(cell.rung in APART for cell in found.cells)


def _heading(passed: int, scored: int, kind: str) -> str:
    return f"{kind}: {passed} of {scored} rungs passed" if scored else f"{kind}: nothing was scored"


def _matrix(found: Calibration, kind: str, rows: Sequence[Mapping[str, Any]], words: Words) -> Figure:
    """Rungs by methods: the calibration's own methods first, then the record's."""
    own = found.select(kind=kind)
    rungs = [name for name in (*NAMES, *APART) if any(cell.rung == name for cell in own)]
    others = [name for name in dict.fromkeys(row["method"] for row in rows) if name not in found.methods]
    tasks = {cell.task for cell in own}
    values = np.full((2, len(rungs), len(found.methods) + len(others)), np.nan)
    for i, rung in enumerate(rungs):
        for j, method in enumerate(found.methods):
            cells = [cell for cell in own if cell.rung == rung and cell.method == method and cell.scored]
            values[:, i, j] = _pair(mean_of(cells, "auroc"), mean_of(cells, "faithfulness"))
        for j, method in enumerate(others, start=len(found.methods)):
            picked = [row for row in rows if (row["kind"], row["rung"], row["method"]) == (kind, rung, method)]
            picked = [row for row in picked if row["task"] in tasks]
            values[:, i, j] = _pair(*(_mean(row[name] for row in picked) for name in ("auroc", "faithfulness")))
    bands = [(cell.low, cell.high) for cell in own if cell.low is not None and cell.high is not None]
    low, high = ((2 * median(end) - 1) for end in zip(*bands)) if bands else (0.0, 0.0)
    return effect_grid(
        values,
        rows=rungs,
        columns=[*found.methods, *others],
        panels=["AUROC: 0 is chance", "Faithfulness at the true number"],
        limit=1.0,
        missing="not scored",
        **words("matrix", kind=kind, low=low, high=high),
    )


def _pair(auroc: float | None, faithfulness: float | None) -> tuple[float, float]:
    return (
        float("nan") if auroc is None else 2 * auroc - 1,
        float("nan") if faithfulness is None else max(-1.0, min(1.0, faithfulness)),
    )


def _mean(values: Any) -> float | None:
    kept = [value for value in values if value is not None]
    return sum(kept) / len(kept) if kept else None


def _details(found: Calibration, cell: Cell) -> Details:
    """One cell: its state and figures, then its items from the largest score, true ones marked."""
    head = f"{cell.task}, {cell.rung}, seed {cell.seed}: {cell.state}, gap {cell.gap:.3g}"
    if not cell.scored:
        return Details(f"{head}; not scored", [cell.problem or "the truth does not stand here: see the gap"])
    lines = [worst_sentence(cell)]
    lines.append(
        f"recall {cell.recall:.2f} and precision {cell.precision_5:.2f} at 5 % of the largest score; "
        f"{cell.true} of {cell.items} are true; the true circuit itself has faithfulness {cell.whole or 0:.2f}; "
        f"{cell.seconds:.2g} s, {cell.forward:.3g} forward and {cell.backward:.3g} backward passes"
    )
    rows = found.scores.get((cell.task, cell.rung, cell.kind, cell.seed, cell.method), [])
    for name, true, score, exact in rows[:MOST_LINES]:
        lines.append(f"{'●' if true else '○'} {name}: score {score:.3g}, exact effect {exact:.3g}")
    if len(rows) > MOST_LINES:
        lines.append(f"and {len(rows) - MOST_LINES} more")
    return Details(f"{head}; AUROC {cell.auroc:.2f}", lines)
