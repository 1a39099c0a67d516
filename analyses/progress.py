"""A progress bar with the time left, on stderr, so that stdout stays clean for JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Report = Callable[[str, int, int], None]


def steps_of(report: Report | None, what: str) -> Callable[[int, int], None] | None:
    """The `progress(done, total)` that a training takes, drawn as the bar `what`; None where nothing is drawn."""
    return None if report is None else partial(report, what)


@contextmanager
def progress_bar(quiet: bool = False) -> Iterator[Report | None]:
    """Yield `report(what, done, total)`; None where there is no terminal to draw on or `quiet`."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bars: dict[str, object] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in bars:
                bars[what] = progress.add_task(what, total=total)
            progress.update(bars[what], completed=done, total=total)  # type: ignore[arg-type]

        yield report
