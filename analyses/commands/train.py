"""`headlab train`: learned weights into checkpoints."""

from __future__ import annotations

from typing import Any

from headlab.analyses.commands.tables import print_table
from headlab.analyses.progress import progress_bar
from headlab.analyses.tasks import entry_of


def run(options: Any) -> dict[str, Any]:
    """The JSON of `headlab train`."""
    with progress_bar(quiet=options.common.json) as report:
        return entry_of(options).commands.train(options, report)


def show(result: dict[str, Any]) -> None:
    """Print it for a reader."""
    columns = list(result["runs"][0])
    print_table(columns, [[run.get(column) for column in columns] for run in result["runs"]], title=result["dir"])
    print(f"best: {result['best']}")
