"""`headlab notebooks`: execute the notebooks and write them, with an offline page of each."""

from __future__ import annotations

import time
from typing import Any

from headlab.analyses.commands.tables import print_table
from headlab.analyses.notebooks import execute, page, sources, static, write
from headlab.analyses.options.instruments import Notebooks
from headlab.analyses.progress import progress_bar
from headlab.interp.render.figure import write as write_whole


def run(options: Notebooks) -> dict[str, Any]:
    """Write `NAME.ipynb` and `NAME.html` of each notebook. Raises RuntimeError where a cell fails or warns."""
    chosen = sources(options.names)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    with progress_bar(options.common.json) as report:
        for number, source in enumerate(chosen):
            begin = time.perf_counter()
            notebook = execute(source)
            title = source.stem.lstrip("0123456789_").replace("_", " ").capitalize()
            files = {
                options.out / f"{source.stem}.ipynb": write(static(notebook)),
                options.out / f"{source.stem}.html": page(notebook, f"headlab: {title}"),
            }
            for path, text in files.items():
                write_whole(path, text.encode())
            ipynb, html = files
            rows.append(
                {
                    "name": source.stem,
                    "ipynb": str(ipynb),
                    "html": str(html),
                    "seconds": round(time.perf_counter() - begin, 1),
                    "bytes": ipynb.stat().st_size,
                }
            )
            if report:
                report("notebooks", number + 1, len(chosen))
    return {"out": str(options.out), "notebooks": rows}


def show(result: dict[str, Any]) -> None:
    """Print where they are."""
    columns = ("name", "html", "seconds", "bytes")
    print_table(columns, [[row[column] for column in columns] for row in result["notebooks"]], result["out"])
