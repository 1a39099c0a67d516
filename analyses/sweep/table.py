"""The results of a sweep as tables: one row a run, medians and shares by group, two settings compared."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headlab.analyses.sweep.configuration import Unit, known_options
from headlab.analyses.sweep.grid import Sweep
from headlab.analyses.sweep.store import Row, Store
from headlab.interp import statistics
from headlab.interp.errors import RequestError, UnknownName
from headlab.interp.render.figure import write

PARQUET = "results.parquet"
FIGURE = "error"
FIGURES = ("seeds", "failed", "median", "interval", "interval_level", "success", "success_interval", "median_steps")


def frame(units: Sequence[Unit], store: Store) -> pd.DataFrame:
    """One row a finished run of these units: task, options, seed, figures, seconds. Failed runs are left out."""
    collected = [store.rows[key] for unit in units for key in unit.run_keys if key in store.rows]
    return pd.DataFrame([_flat(row) for row in collected if row["error"] is None])


def _flat(row: Row) -> dict[str, Any]:
    options = {name: _cell(value) for name, value in row["options"].items()}
    facts = {name: row[name] for name in ("seconds", "together", "engine", "host", "device", "when", "key")}
    return {"task": row["task"], **options, "seed": row["seed"], **row["measured"], **facts}


def _cell(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value


def write_parquet(units: Sequence[Unit], store: Store) -> Path | None:
    """The finished runs as a Parquet file in the sweep's folder, replaced whole; None where there are none.

    It has the columns that `headlab heads-needed` reads where the sweep is one of retrieval.
    """
    runs = frame(units, store)
    if runs.empty:
        return None
    content = io.BytesIO()
    runs.to_parquet(content, index=False)
    path = store.folder / PARQUET
    write(path, content.getvalue())
    return path


@dataclass(frozen=True)
class Group:
    """The runs of one setting. figure: the median over seeds with its exact interval. success: the share of seeds
    with its exact interval. failed: seeds whose run failed, in neither.
    """

    setting: dict[str, Any]
    figure: statistics.Estimate | None
    success: statistics.Share | None
    steps: float | None
    failed: int

    def to_json(self) -> dict[str, Any]:
        """Figures by name, JSON-ready; null where no run was finished."""
        figure, success = self.figure, self.success
        return {
            **self.setting,
            "seeds": 0 if figure is None else figure.count,
            "failed": self.failed,
            "median": None if figure is None else figure.value,
            "interval": None if figure is None or figure.interval is None else list(figure.interval),
            "interval_level": None if figure is None or figure.interval is None else figure.interval.level,
            "success": None if success is None else success.value,
            "success_interval": None if success is None else list(success.interval),
            "median_steps": self.steps,
        }


def groups(sweep: Sweep, units: Sequence[Unit], store: Store, measure: str | None = None) -> list[Group]:
    """One group for every setting of the options that vary, in the file's order.

    Raises RequestError where nothing was run yet, UnknownName for a figure that was not measured.
    """
    runs = _some(units, store)
    measure = _measured(runs, measure)
    varied = (
        [name for name in sweep.varied if name != "task"] if len({g.task for g in sweep.grids}) == 1 else sweep.varied
    )
    collected: dict[str, tuple[dict[str, Any], list[Row]]] = {}
    for unit in units:
        options = {"task": unit.configuration.task, **unit.configuration.options}
        setting = {name: _cell(options.get(name)) for name in varied}
        rows = collected.setdefault(repr(setting), (setting, []))[1]
        rows += [store.rows[key] for key in unit.run_keys if key in store.rows]
    return [_group(setting, rows, measure) for setting, rows in collected.values()]


def _group(setting: dict[str, Any], rows: Sequence[Row], measure: str) -> Group:
    done = [row["measured"] for row in rows if row["error"] is None and row["measured"].get(measure) is not None]
    failed = sum(row["error"] is not None for row in rows)
    if not done:
        return Group(setting, None, None, None, failed)
    successes = sum(bool(each["success"]) for each in done)
    steps = float(np.median([each["steps_done"] for each in done]))
    figure = statistics.median([float(each[measure]) for each in done])
    return Group(setting, figure, statistics.share(successes, len(done)), steps, failed)


def compare(
    sweep: Sweep, units: Sequence[Unit], store: Store, settings: Sequence[str], measure: str | None = None
) -> list[dict[str, Any]]:
    """Two settings of one option against each other, e.g. heads=1 and heads=2: runs that are alike in all else and in
    their seed are pairs, tested by random signs of their differences. One row for each setting of the other options,
    and one for all pairs together.

    Raises RequestError for settings that are not two of one option that varies, or that have no pairs.
    """
    runs = _some(units, store)
    measure = _measured(runs, measure)
    option, values = _two(sweep, settings)
    others = [name for name in sweep.varied if name not in (option, "task")]
    alike = ["task", *(name for name in runs.columns if name != option and _is_option(sweep, name)), "seed"]
    chosen = runs[runs[measure].notna()].astype({name: str for name in [*alike, option] if name != "seed"})
    first, second = (chosen.loc[chosen[option] == value].set_index(alike)[measure] for value in values)
    both = pd.DataFrame({"first": first, "second": second}).dropna().astype(float).reset_index()
    if both.empty:
        raise RequestError(
            f"no seed has both {settings[0]} and {settings[1]}, alike in all else: there is nothing to pair"
        )
    parts = [("all", both)] if not others else [*both.groupby(others, sort=False), ("all", both)]
    rows = []
    for name, part in parts:
        names = name if isinstance(name, tuple) else (name,) * len(others)
        setting = dict.fromkeys(others, "all") if name == "all" else dict(zip(others, names, strict=True))
        test = statistics.paired_test(part["first"].to_numpy(), part["second"].to_numpy())
        difference = statistics.median((part["first"] - part["second"]).to_numpy())
        rows.append(
            {
                "setting": setting,
                "settings": list(settings),
                "pairs": len(part),
                "medians": [float(np.median(part["first"])), float(np.median(part["second"]))],
                "difference": difference.value,
                "interval": difference.interval and list(difference.interval),
                "interval_level": difference.interval and difference.interval.level,
                "mean_difference": test.difference,
                "p_value": test.p_value,
                "exact": test.exact,
            }
        )
    return rows


def _is_option(sweep: Sweep, name: str) -> bool:
    return any(name in known_options(grid.task) for grid in sweep.grids)


def _two(sweep: Sweep, settings: Sequence[str]) -> tuple[str, tuple[str, str]]:
    parts = [setting.partition("=") for setting in settings]
    names = {name for name, equals, _ in parts if equals}
    if len(parts) != 2 or len(names) != 1 or len({value for _, _, value in parts}) != 2:
        raise RequestError(f"'{' '.join(settings)}' are not two settings of one option: write e.g. heads=1 heads=2")
    option = names.pop()
    if option not in sweep.varied:
        raise RequestError(
            f"'{option}' does not vary in this sweep: what varies is {', '.join(sweep.varied) or 'nothing'}"
        )
    known = {str(_cell(value)) for grid in sweep.grids for value in grid.values.get(option, [])}
    for _, _, value in parts:
        if value not in known:
            raise RequestError(f"{option} is never {value} in this sweep: it is {', '.join(sorted(known))}")
    return option, (parts[0][2], parts[1][2])


def _some(units: Sequence[Unit], store: Store) -> pd.DataFrame:
    runs = frame(units, store)
    if runs.empty:
        raise RequestError(
            f"no run of this sweep is finished in '{store.folder}': run it first, without --table or --plot"
        )
    return runs


def _measured(runs: pd.DataFrame, measure: str | None) -> str:
    measure = measure or FIGURE
    numbers = [name for name in runs.columns if name != "seed" and pd.api.types.is_numeric_dtype(runs[name])]
    if measure not in numbers:
        raise UnknownName(f"the runs have no figure '{measure}': they have {', '.join(numbers)}")
    return measure
