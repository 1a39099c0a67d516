"""The folder that a study writes: asked for before the work begins, and filled with whole files only."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from headlab.interp.errors import RequestError
from headlab.interp.render import Figure
from headlab.interp.render.figure import write
from headlab.models.bundle import write_json


def require_folder(out: Path) -> None:
    """Make `out` where it is not there. Raises ValueError where it is a file or cannot be written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise RequestError(f"the folder '{out}' cannot be written ({error.strerror}): choose another --out") from None


def write_file(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all, and make its folder where it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, data)


def write_report(
    out: Path,
    page: str,
    results: Mapping[str, Any],
    tables: Mapping[str, pd.DataFrame],
    figures: Mapping[str, Figure | None],
) -> dict[str, Any]:
    """Write tables/NAME.csv, figures/NAME.svg (where there is a figure), results.json and, last, index.html.

    Returns `results` with the page's path as `report`.
    """
    for name, frame in tables.items():
        write_file(out / "tables" / f"{name}.csv", frame.to_csv(index=False).encode())
    for name, figure in figures.items():
        if figure is not None:
            write_file(out / "figures" / f"{name}.svg", figure.standalone_svg().encode())
    write_json(out / "results.json", results)
    write_file(out / "index.html", page.encode())
    return {**results, "report": str(out / "index.html")}
