"""`headlab heads-needed`: how many heads a task needs, read off a table of errors."""

from __future__ import annotations

from typing import Any

from headlab.analyses.commands.tables import print_facts, print_table
from headlab.analyses.options.retrieval import HeadsNeeded
from headlab.interp.errors import MissingFile, RequestError


def run(options: HeadsNeeded) -> dict[str, Any]:
    """The JSON of `headlab heads-needed`. Raises ValueError for a mass outside (0, 1), else as `heads_needed`."""
    if not 0 < options.mass < 1:
        raise RequestError(f"mass = {options.mass}: it must lie between 0 and 1")
    if not options.file.is_file():
        raise MissingFile(f"there is no file '{options.file}'")
    from headlab.analyses.head_count import heads_needed, read_errors  # pandas: a refused request does without

    count = heads_needed(read_errors(options.file), mass=options.mass, complete=not options.gaps)
    return {"file": str(options.file), **count.to_json()}


def show(result: dict[str, Any]) -> None:
    """Print it for a reader."""
    shown = dict(result)
    posterior = shown.pop("posterior")
    shown["set"] = ", ".join(map(str, shown["set"]))
    shown["lengths"] = ", ".join(map(str, shown["lengths"]))
    print_facts(shown)
    print_table(("heads", "probability"), [(row["heads"], row["probability"]) for row in posterior])
