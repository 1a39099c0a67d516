"""The record of the built-in instruments on the ladder, which ships with the package: tidy tables, eight seeds."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from scipy import stats

from headlab.analyses.calibrate.instruments import FEW_SEEDS
from headlab.analyses.calibrate.ladder import NAMES
from headlab.analyses.calibrate.protocol import APART, Calibration, Cell, calibrate_built_in
from headlab.analyses.calibrate.summary import by_kind, mean_of
from headlab.analyses.calibrate.tasks import SETTINGS
from headlab.analyses.calibrate.trained import TRAINED
from headlab.interp.statistics import mean, median

SEEDS = 8
FIGURES = ("auroc", "faithfulness", "recall", "contested")
REFERENCE = ("exact", "exact signed", "exact in context")  # where the truth is measured by exact patching
FORETELLING = tuple(name for name in NAMES if name != "as built")


def load_record() -> dict[str, Any]:
    """The record that ships with the package. Raises FileNotFoundError where it is missing."""
    return json.loads(files("headlab.analyses").joinpath("records", "calibration.json").read_text(encoding="utf-8"))


def make_record(*, seeds: Sequence[int] = range(SEEDS), jobs: int = 1) -> dict[str, Any]:
    """Run the built-in instruments on the whole ladder and beside it, on edges, heads and causal variables."""
    from headlab.analyses.calibrate.variables import measure_all

    edges = calibrate_built_in(rungs=(*NAMES, *APART), seeds=seeds, jobs=jobs)
    heads = calibrate_built_in(level="heads", rungs=tuple(NAMES), seeds=list(seeds)[:FEW_SEEDS], jobs=jobs)
    return {
        "version": version("headlab"),
        "seeds": len(seeds),
        "seeds_by_task": dict.fromkeys(SETTINGS, len(seeds)),
        "edges": tables(edges),
        "heads": tables(heads),
        "foretells": foretells(edges),
        "variables": measure_all(seeds=seeds, jobs=jobs),
    }


def write_record(record: dict[str, Any], path: str | Path) -> None:
    """Write a record as it ships: one row a line."""
    text = json.dumps(record, ensure_ascii=False)
    Path(path).write_text(text.replace('}, {"', '},\n{"') + "\n", encoding="utf-8")


def tables(found: Calibration, reference: str = "exact") -> dict[str, Any]:
    """What the page, the guide and the claims read: one row per task, rung, kind and method; rungs (whose state the
    cells of `reference` hold); methods."""
    groups: dict[tuple[str, str, str, str], list[Cell]] = {}
    for cell in found.cells:
        groups.setdefault((cell.task, cell.rung, cell.kind, cell.method), []).append(cell)
    return {
        "cells": [_row(cells) for cells in groups.values()],
        "rungs": [_rung(found, *key, reference) for key in dict.fromkeys(key[:3] for key in groups)],
        "methods": [_method(found, name) for name in found.methods],
    }


def _row(cells: list[Cell]) -> dict[str, Any]:
    first, scored = cells[0], [cell for cell in cells if cell.scored]
    row: dict[str, Any] = {"task": first.task, "rung": first.rung, "kind": first.kind, "method": first.method}
    row |= {"seeds": len(cells), "scored": len(scored)}
    for name in FIGURES:
        row[name] = _rounded(mean_of(scored, name))
    values = [cell.auroc for cell in scored if cell.auroc is not None]
    interval = mean(values).interval if len(values) > 1 else None
    row["auroc_interval"] = None if interval is None else [_rounded(interval.low), _rounded(interval.high)]
    row["seconds"] = _rounded(mean_of(scored, "seconds"))
    row["passes"] = None if not scored else [_rounded(mean_of(scored, name)) for name in ("forward", "backward")]
    return row


def _rung(found: Calibration, task: str, rung: str, kind: str, reference: str) -> dict[str, Any]:
    cells = found.select(task=task, rung=rung, kind=kind, method=reference)
    held = [cell for cell in cells if cell.state not in ("void", "open")]
    gaps = [cell.gap for cell in held]
    return {
        "task": task,
        "rung": rung,
        "kind": kind,
        "state": held[0].state if held else cells[0].state,
        "seeds": len(cells),
        "held": len(held),
        "gap": _rounded(min(gaps)) if gaps and math.isfinite(min(gaps)) else None,
        "true": cells[0].true,
        "items": cells[0].items,
        "whole": _rounded(mean_of(held, "whole")),
    }


def _method(found: Calibration, method: str) -> dict[str, Any]:
    kinds = {}
    for summary in by_kind(found, method):
        text = summary.sentence
        kinds[summary.kind] = {"passed": summary.passed, "scored": summary.scored, "first": summary.first, "text": text}
    scored = [cell for cell in found.select(method=method) if cell.scored]
    return {
        "method": method,
        "kinds": kinds,
        "relative": _rounded(_relative(found, method)),
        "forward": _rounded(mean_of(scored, "forward")),
        "backward": _rounded(mean_of(scored, "backward")),
    }


def _relative(found: Calibration, method: str) -> float | None:
    """CPU time over that of exact patching on the same cells."""
    key = ("task", "rung", "kind", "seed")
    exact = {tuple(getattr(c, k) for k in key): c.seconds for c in found.select(method="exact") if c.scored}
    pairs = [(c.seconds, exact.get(tuple(getattr(c, k) for k in key))) for c in found.select(method=method) if c.scored]
    both = [(own, base) for own, base in pairs if base]
    return sum(own for own, _ in both) / sum(base for _, base in both) if both else None


def foretells(found: Calibration) -> list[dict[str, Any]]:
    """Per kind: does the ladder rank instruments as trained models do?

    For each task and seed, Spearman's correlation over instruments between the mean AUROC on the shaken rungs and the
    AUROC on that seed's trained model. Exact patching has no part: the trained models' truth is measured by it.
    """
    rows = []
    for kind in dict.fromkeys(cell.kind for cell in found.cells):
        values, tasks = [], set()
        for task, seed in dict.fromkeys((cell.task, cell.seed) for cell in found.cells):
            ladder, wild = {}, {}
            for method in found.methods:
                if method in REFERENCE:
                    continue
                cells = found.select(task=task, seed=seed, kind=kind, method=method)
                rungs = mean_of([c for c in cells if c.rung in FORETELLING and c.scored], "auroc")
                own = mean_of([c for c in cells if c.rung == TRAINED and c.scored], "auroc")
                if rungs is not None and own is not None:
                    ladder[method], wild[method] = rungs, own
            if len(ladder) > 2 and len(set(wild.values())) > 1 and len(set(ladder.values())) > 1:
                correlation = cast("Any", stats.spearmanr(list(ladder.values()), list(wild.values())))
                values.append(float(correlation.statistic))
                tasks.add(task)
        estimate = median(values) if len(values) > 1 else None
        rows.append(
            {
                "kind": kind,
                "spearman": _rounded(None if estimate is None else estimate.value),
                "interval": None
                if estimate is None or estimate.interval is None
                else [_rounded(estimate.interval.low), _rounded(estimate.interval.high)],
                "models": len(values),
                "tasks": sorted(tasks),
            }
        )
    return rows


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")


if __name__ == "__main__":  # python -m headlab.analyses.calibrate.record FILE JOBS: makes the record anew
    import sys

    write_record(make_record(jobs=int(sys.argv[2])), sys.argv[1])
