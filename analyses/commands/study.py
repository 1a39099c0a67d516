"""`headlab study`: the main job of one system, ending in a report that opens offline."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from headlab.analyses.commands.tables import print_table
from headlab.analyses.progress import progress_bar


def run(options: Any) -> dict[str, Any]:
    """The study's results as JSON: where the report is, the claims with their verdicts, what was skipped."""
    name = type(options).__module__.rsplit(".", 1)[-1]  # of a system, or `all`
    with progress_bar(quiet=options.common.json) as report:
        return import_module(f"headlab.analyses.study.{name}").run(options, report)


def show(result: dict[str, Any]) -> None:
    """Print the verdicts, what was skipped and where the report is."""
    rows = [[row["id"], row["verdict"], row["summary"]] for row in result["claims"]]
    print_table(["claim", "verdict", "measured"], rows)
    if result.get("skipped"):
        print(f"not in this run: {', '.join(result['skipped'])}")
    print(f"report: {result['report']}")
