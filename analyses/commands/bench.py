"""`headlab bench`: ratios of CPU time against a peer, measured in one run."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from analyses.commands.tables import print_table
from analyses.options.instruments import Bench


def run(options: Bench) -> dict[str, Any]:
    """The JSON of `headlab bench`."""
    return import_module(f"analyses.bench_{options.name}").run(quick=options.quick)


def show(result: dict[str, Any]) -> None:
    """Print it for a reader."""
    rows = []
    for case in result["cases"]:
        ratio, work = case["ratio"], case.get("work")
        share = work["ours"] / work["floor"] if work else None
        rows.append(
            [case["case"], case["peer"], ratio["min"], ratio["median"], ratio["max"], case["max_difference"], share]
        )
    columns = ["case", "peer", "ratio min", "median", "max", "largest difference", "work / floor"]
    print_table(columns, rows, title=f"{result['name']}, {result['threads']} thread(s); ratio = peer's CPU time / ours")
