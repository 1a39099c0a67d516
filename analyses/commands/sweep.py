"""`headlab sweep`: run a grid of trainings, or show its results by group, as a chart, or two settings compared."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from headlab.analyses.commands.tables import print_table
from headlab.analyses.options.sweep import SweepOptions as Options
from headlab.analyses.sweep import grid
from headlab.analyses.sweep.engines import opened
from headlab.analyses.sweep.run import failures, sweep
from headlab.analyses.sweep.store import RESULTS, Store
from headlab.interp.errors import RequestError
from headlab.interp.interval import show_level

ROOT = Path("out/sweeps")


def run(options: Options) -> dict[str, Any]:
    """The JSON of `headlab sweep`. Raises ValueError with one sentence where the request is wrong."""
    if options.file == "list" and not Path("list").exists():
        return {"ready": {name: _title(path) for name, path in sorted(grid.shipped().items())}}
    path = grid.find(options.file)
    asked = grid.read(path, small=options.small)
    if asked.runs > grid.MOST_RUNS and not options.yes:
        raise RequestError(f"'{path}' asks for {asked.runs:,} runs, more than a million: say --yes if that is meant")
    folder = options.out or ROOT / asked.name
    shows = options.table or options.plot or bool(options.compare)
    if shows and not (folder / RESULTS).is_file():
        raise RequestError(f"there are no results in '{folder}': run headlab sweep {options.file} first")
    from headlab.analyses.sweep import plot, table  # pandas: a refused request does without

    units = asked.units()
    answer: dict[str, Any] = {"name": asked.name, "file": str(path), "out": str(folder)}
    with Store(folder) as store:
        if store.damaged:
            _say(
                f"{store.damaged} damaged line{'s' if store.damaged > 1 else ''} of '{folder / RESULTS}' moved to "
                "damaged.jsonl: those runs count as not done"
            )
        if not shows:
            answer |= _run(options, asked, units, store)
        keys = [key for unit in units for key in unit.run_keys]
        failed = failures(units, store)
        answer |= {
            "runs": len(keys),
            "done": sum(key in store.rows for key in keys) - len(failed),
            "failed": len(failed),
            "damaged": store.damaged,
            "errors": [{name: row[name] for name in ("key", "options", "seed", "error")} for row in failed[:100]],
        }
        if answer["done"]:
            answer["parquet"] = str(table.write_parquet(units, store))
        if options.compare:
            answer["measure"] = options.measure or table.FIGURE
            answer["comparison"] = table.compare(asked, units, store, options.compare, options.measure)
        if options.plot:
            answer["plot"] = plot.save(plot.chart(asked, units, store, options.measure), folder)
        if answer["done"] and not options.compare:
            answer["measure"] = options.measure or table.FIGURE
            answer["table"] = [group.to_json() for group in table.groups(asked, units, store, options.measure)]
    return answer


def _run(options: Options, asked: grid.Sweep, units: list[Any], store: Store) -> dict[str, Any]:
    with opened(options.engine, address=options.address, workers=options.workers) as engine:
        if options.retry:
            store.drop_failed(key for unit in units for key in unit.run_keys)
        with _progress(asked.name, quiet=options.common.json) as report:
            outcome = sweep(units, store, engine, device=options.common.device, say=_say, progress=report)
        return {
            "engine": engine.name,
            "workers": engine.workers,
            "device": options.common.device,
            "new": outcome.written,
            "cost": outcome.to_json(),
        }


def _say(sentence: str) -> None:
    print(f"headlab sweep: {sentence}", file=sys.stderr, flush=True)


def _title(path: Path) -> str:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    return first.removeprefix("#").strip()


@contextmanager
def _progress(name: str, *, quiet: bool) -> Iterator[Callable[[int, int, float, float], None] | None]:
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name, total=None)

        def report(done: int, runs: int, cost: float, whole: float) -> None:
            bar.update(task, description=f"{name}: {done} of {runs} runs", completed=cost, total=max(cost, whole))

        yield report


def status(result: dict[str, Any]) -> int:
    """The exit status: 1 where runs failed."""
    return int(bool(result.get("failed")))


def show(result: dict[str, Any]) -> None:
    """Print it for a reader."""
    if "ready" in result:
        print_table(["ready sweep", "what it is"], result["ready"].items())
        return
    if "comparison" in result:
        _show_comparison(result)
    elif "table" in result:
        _show_table(result)
    for name in ("parquet", "plot"):
        if name in result:
            print(f"{name}: {result[name] if name == 'parquet' else ', '.join(result[name].values())}")
    print(f"{result['done']} of {result['runs']} runs done, {result['failed']} failed; results: {result['out']}")
    for row in result["errors"][:5]:
        print(f"failed: seed {row['seed']}: {row['error']}")
    if result["failed"]:
        print("try the failed runs again with --retry")


def _show_table(result: dict[str, Any]) -> None:
    rows = result["table"]
    from headlab.analyses.sweep.table import FIGURES

    varied = [name for name in rows[0] if name not in FIGURES]
    columns = [*varied, "seeds", "failed", result["measure"], "succeed", "steps"]
    shown = [
        [
            *(row[name] for name in varied),
            row["seeds"],
            row["failed"],
            _within(row["median"], row["interval"], row["interval_level"]),
            _within(row["success"], row["success_interval"], 0.95),
            row["median_steps"],
        ]
        for row in rows
    ]
    print_table(
        columns, shown, title=f"{result['name']}: median over seeds, share that succeeds, intervals with their level"
    )


def _show_comparison(result: dict[str, Any]) -> None:
    rows = result["comparison"]
    first, second = rows[0]["settings"]
    others = list(rows[0]["setting"])
    columns = [*others, "pairs", first, second, "difference", "p"]
    shown = [
        [
            *row["setting"].values(),
            row["pairs"],
            *row["medians"],
            _within(row["difference"], row["interval"], row["interval_level"]),
            row["p_value"],
        ]
        for row in rows
    ]
    title = f"{result['name']}: median {result['measure']}, paired over seeds, intervals with their level"
    print_table(columns, shown, title=title)


def _within(value: float | None, interval: list[float] | None, level: float | None) -> str | None:
    if value is None:
        return None
    if interval is None or level is None:
        return f"{value:.3g}"
    return f"{value:.3g} ({interval[0]:.3g}..{interval[1]:.3g}, {show_level(level)})"
