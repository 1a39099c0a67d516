"""A sweep file: a TOML grid of trainings, read, checked and spread out.

name = "esp-accuracy"
seeds = 16                       # how many, from first_seed (0); `together` of them train at once
[[grid]]                         # as many as wanted
task = "esp"                     # every other key is an option of `headlab train esp`
graph = ["complete:6", "rich"]   # a list is swept over; options that are lists take a list of lists
heads = [1, 2]
[small]                          # what --small runs: the same keys, instead of those above
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from headlab.analyses.sweep.configuration import (
    Configuration,
    Unit,
    fits,
    known_options,
    said,
    takes_list,
)
from headlab.analyses.tasks import TASKS
from headlab.interp.errors import MissingFile, RequestError

OF_FILE = ("name", "seeds", "first_seed", "together", "grid", "plot", "small")
OF_GRID = ("task", "seeds", "first_seed", "together")
OF_PLOT = ("x", "y", "log")
MOST_RUNS = 1_000_000


@dataclass(frozen=True)
class OptionGrid:
    """One table of a file. values: option -> the values that it takes, a single one where it is fixed."""

    task: str
    values: Mapping[str, Sequence[Any]]
    seeds: int
    first_seed: int
    together: int

    def __len__(self) -> int:
        """How many configurations."""
        return math.prod(len(each) for each in self.values.values())

    def configurations(self) -> Iterator[Configuration]:
        """Every combination, the last option varying fastest."""
        for chosen in product(*self.values.values()):
            yield Configuration.of(self.task, dict(zip(self.values, chosen, strict=True)))


@dataclass(frozen=True)
class Sweep:
    """A sweep file. plot: x and y of its chart and whether y is logarithmic, where the file says so."""

    name: str
    grids: tuple[OptionGrid, ...]
    plot: Mapping[str, Any] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        """How many runs the grids ask for, one that is asked for twice counted twice."""
        return sum(len(grid) * grid.seeds for grid in self.grids)

    @property
    def varied(self) -> tuple[str, ...]:
        """The options that take several values, in the file's order."""
        seen: dict[str, list[Any]] = {}
        for grid in self.grids:
            for name, values in (("task", [grid.task]), *grid.values.items()):
                seen.setdefault(name, []).extend(value for value in values if value not in seen.get(name, []))
        sometimes = {name for name in seen if any(name != "task" and name not in grid.values for grid in self.grids)}
        return tuple(name for name, values in seen.items() if len(values) > 1 or name in sometimes)

    def units(self) -> list[Unit]:
        """All work, each run once. Blocks of seeds are counted from the first, so that they do not hang on what is
        done already.
        """
        asked: dict[str, tuple[Configuration, set[int], int]] = {}
        for grid in self.grids:
            for configuration in grid.configurations():
                _, seeds, _ = asked.setdefault(configuration.identity, (configuration, set(), grid.together))
                seeds.update(range(grid.first_seed, grid.first_seed + grid.seeds))
        units = []
        for configuration, seeds, together in asked.values():
            ordered = sorted(seeds)
            blocks = [tuple(ordered[at : at + together]) for at in range(0, len(ordered), together)]
            units += [Unit(configuration, block) for block in blocks]
        return units


def shipped() -> dict[str, Path]:
    """name -> file of the sweeps that come with headlab."""
    folder = files("headlab.analyses").joinpath("sweeps")
    return {Path(each.name).stem: Path(str(each)) for each in folder.iterdir() if each.name.endswith(".toml")}


def find(name: str) -> Path:
    """A sweep file by path, or by the name of one that comes with headlab. Raises MissingFile, listing those."""
    path, ready = Path(name), shipped()
    if path.is_file():
        return path
    if name in ready:
        return ready[name]
    raise MissingFile(f"there is no sweep file '{name}'{_nearest(name, ready)}; ready are {_listed(ready)}")


def read(path: Path, *, small: bool = False) -> Sweep:
    """The sweep that a file describes; `small`, its small version.

    Raises RequestError with one sentence for a file that is no TOML, an unknown key (naming the nearest known one), a
    value of the wrong type, an empty grid.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"'{path}' is no TOML file: {error}") from None
    _require_known(table, OF_FILE, f"'{path}'")
    name = table.get("name", path.stem)
    if not isinstance(name, str) or not name or Path(name).name != name:
        raise RequestError(f"the name of '{path}' must be a text that can name a folder, not {name!r}")
    plot = table.get("plot", {})
    if small:
        if not isinstance(table.get("small"), dict):
            raise RequestError(f"'{path}' has no small version: it has no table [small]")
        table = table["small"]
        _require_known(table, OF_FILE[1:-1], f"[small] of '{path}'")
        name += "-small"
    grids = table.get("grid", [])
    if not isinstance(grids, list) or not grids or not all(isinstance(grid, dict) for grid in grids):
        raise RequestError(f"the grid of '{path}' is empty: it needs at least one table [[grid]] with a task")
    shared = {key: table[key] for key in ("seeds", "first_seed", "together") if key in table}
    if not isinstance(plot, dict):
        raise RequestError(f"plot in '{path}' must be a table")
    _require_known(plot, OF_PLOT, f"[plot] of '{path}'")
    sweep = Sweep(
        name, tuple(_grid({**shared, **grid}, f"grid {i} of '{path}'") for i, grid in enumerate(grids, 1)), plot
    )
    if sweep.runs < 1:
        raise RequestError(f"the grid of '{path}' is empty")
    return sweep


def _grid(table: Mapping[str, Any], where: str) -> OptionGrid:
    task = str(table.get("task", ""))
    if task not in TASKS:
        problem = f"has the unknown task '{task}'" if task else "has no task"
        raise RequestError(f"{where} {problem}{_nearest(task, TASKS)}: there are {_listed(TASKS)}")
    options = known_options(task)
    _require_known(table, (*OF_GRID, *options), where)
    counts = {"seeds": 8, "first_seed": 0, "together": TASKS[task].together} | {
        key: table[key] for key in OF_GRID[1:] if key in table
    }
    for key, least in (("seeds", 1), ("first_seed", 0), ("together", 1)):
        if not fits(counts[key], int) or counts[key] < least:
            raise RequestError(f"{key} = {counts[key]!r} in {where}: it must be a whole number from {least}")
    values: dict[str, list[Any]] = {}
    for name, value in table.items():
        if name in OF_GRID:
            continue
        kind = options[name]
        each = value if isinstance(value, list) else [value]
        if not each:
            raise RequestError(f"{where} is empty: {name} has no value")
        if takes_list(kind):
            each = [one if isinstance(one, list) else [one] for one in each]
        for one in each:
            if not fits(one, kind):
                raise RequestError(f"{name} = {one!r} in {where}: it must be {said(kind)}")
        values[name] = [one for i, one in enumerate(each) if one not in each[:i]]
    return OptionGrid(task, values, counts["seeds"], counts["first_seed"], counts["together"])


def _require_known(table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise RequestError(f"unknown key '{key}' in {where}{_nearest(key, known)}; known are {_listed(known)}")


def _nearest(word: str, known: Any) -> str:
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean '{near[0]}'?)" if near else ""


def _listed(names: Any) -> str:
    return ", ".join(sorted(names) if isinstance(names, Mapping) else names)
