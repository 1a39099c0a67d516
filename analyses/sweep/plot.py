"""Error against heads, a line for each setting of what else varies, with its interval over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headlab.analyses.sweep.configuration import Unit
from headlab.analyses.sweep.grid import Sweep
from headlab.analyses.sweep.store import Store
from headlab.analyses.sweep.table import FIGURE, Group, groups
from headlab.interp.errors import RequestError
from headlab.interp.interval import show_levels
from headlab.interp.render.axis import Axis
from headlab.interp.render.curves import CurvePanel, curve_chart
from headlab.interp.render.figure import Figure
from headlab.interp.render.series import Curve

MOST_LINES = 16
SUCCESS = "success"


def chart(sweep: Sweep, units: Sequence[Unit], store: Store, measure: str | None = None) -> Figure:
    """The chart of a sweep: its x, y and scale are those of the file's [plot], else heads and error.

    Raises RequestError where x does not vary, is not a number, or there would be more than MOST_LINES lines.
    """
    y = measure or sweep.plot.get("y", FIGURE)
    x = sweep.plot.get("x", "heads" if "heads" in sweep.varied else next(iter(sweep.varied), "heads"))
    settings = groups(sweep, units, store, FIGURE if y == SUCCESS else y)
    lines: dict[str, list[Group]] = {}
    for group in settings:
        value = group.setting.get(x)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise RequestError(
                f"{x} is not a number that varies in this sweep: name another as x in [plot] of its file"
            )
        label = ", ".join(f"{name} {told}" for name, told in group.setting.items() if name != x and told is not None)
        lines.setdefault(label, []).append(group)
    if len(lines) > MOST_LINES:
        raise RequestError(f"the chart would have {len(lines)} lines, more than {MOST_LINES}: plot a smaller grid")
    many = len(lines)
    curves = [_curve(x, y, label, rows, i / max(1, many)) for i, (label, rows) in enumerate(lines.items())]
    curves = [curve for curve in curves if curve is not None]
    lowest = min(float(np.nanmin([curve.low, curve.y])) for curve in curves)
    log = bool(sweep.plot.get("log", False)) and lowest > 0 and y != SUCCESS
    counts = [group.figure.count for group in settings if group.figure is not None]
    seeds = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    what = "share of seeds that succeed" if y == SUCCESS else y.replace("_", " ")
    estimates = [group.success if y == SUCCESS else group.figure for group in settings]
    levels = show_levels(each.interval for each in estimates if each is not None)
    kind = f"exact {levels}" if y == SUCCESS else f"medians with {levels}"
    ticks = sorted({group.setting[x] for group in settings})
    return curve_chart(
        [
            CurvePanel(
                what, curves, axis=Axis(scale="log" if log else "linear", domain=(0, 1) if y == SUCCESS else None)
            )
        ],
        title=f"{sweep.name}: {what} against {x}",
        description=f"{what} against {x}, {kind}, for {'; '.join(lines) or 'all runs'}.",
        caption=f"{sweep.name}: {kind} over {seeds} seeds.",
        axis=Axis(x, scale="linear", ticks=ticks if len(ticks) <= MOST_LINES else None),
    )


def _curve(x: str, y: str, label: str, rows: Sequence[Group], place: float) -> Curve | None:
    shown: list[tuple[Any, float, float, float]] = []
    for group in rows:
        value = group.success if y == SUCCESS else group.figure
        if value is not None:
            shown.append((group.setting[x], value.value, value.low, value.high))
    if not shown:
        return None
    shown.sort()
    across, values, low, high = (np.array(column, dtype=float) for column in zip(*shown, strict=True))
    return Curve(across, values, label=label, low=low, high=high, heads="ink", fade=0.6 * place, points=True)


def save(figure: Figure, folder: Path) -> dict[str, str]:
    """Write the chart as picture and as page; the names of both files."""
    saved = {}
    for kind in ("svg", "html"):
        path = folder / f"plot.{kind}"
        figure.save(path)
        saved[kind] = str(path)
    return saved
