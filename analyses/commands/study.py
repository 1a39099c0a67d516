"""`headlab study`: the main job of one system, ending in a report that opens offline."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from headlab.analyses.commands.tables import print_table
from headlab.analyses.options.all import StudyOptions as All
from headlab.analyses.progress import progress_bar
from headlab.analyses.tasks import entry_of


def run(options: Any) -> dict[str, Any]:
    """The study's results as JSON: where the report is, the claims with their verdicts, what was skipped."""
    study = import_module("headlab.analyses.study.all").run if isinstance(options, All) else entry_of(options).study
    with progress_bar(quiet=options.common.json) as report:
        return study(options, report)


def show(result: dict[str, Any]) -> None:
    """Print the verdicts, what was skipped and where the report is."""
    rows = [[row["id"], row["verdict"], row["summary"]] for row in result["claims"]]
    print_table(["claim", "verdict", "measured"], rows)
    if result.get("skipped"):
        print(f"not in this run: {', '.join(result['skipped'])}")
    print(f"report: {result['report']}")
