"""`headlab bench`: ratios of CPU time against a peer, and how far from the floor, measured in one run."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

from headlab.analyses.bench.lower_bound import beside_floor
from headlab.analyses.commands.tables import print_table
from headlab.analyses.options.instruments import Bench


def run(options: Bench) -> dict[str, Any]:
    """The JSON of `headlab bench`: that of the design, with the machine's rate and each case's distance from its floor.

    seconds: CPU seconds of the whole benchmark.
    """
    begun = time.process_time()
    result = import_module(f"headlab.analyses.bench.{options.name}").run(quick=options.quick)
    rates = beside_floor(result["cases"])
    return {**result, "multiply_adds_per_second": rates, "seconds": time.process_time() - begun}


def show(result: dict[str, Any]) -> None:
    """Print it for a reader."""
    rows = []
    for case in result["cases"]:
        ratio, work, floor = case["ratio"], case.get("work"), case.get("floor")
        rows.append(
            [
                case["case"],
                case["peer"],
                f"{ratio['median']:.3g} ({ratio['min']:.3g}..{ratio['max']:.3g})",
                case["max_difference"],
                work["ours"] / work["floor"] if work else None,
                floor["times"] if floor else None,
            ]
        )
    columns = ["case", "peer", "ratio (min..max)", "largest difference", "work / least", "time / floor"]
    print_table(columns, rows, title=f"{result['name']}, {result['threads']} thread(s); ratio = peer's CPU time / ours")
    for dtype, rate in result["multiply_adds_per_second"].items():
        print(f"floor: the least multiply-adds at {rate / 1e9:.1f} G a second, this machine's rate in {dtype}")
