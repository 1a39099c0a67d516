"""The record of a study: what was measured, by part, as tidy tables with units and a few small arrays."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headlab.analyses.study.folder import write_file
from headlab.interp.errors import MissingFile, RequestError

DIGITS = 6  # significant digits of an array, which only figures read


@dataclass(frozen=True)
class Table:
    """Rows with the same columns. units: column -> unit ("share", "steps", "logits"); labels and counts need none."""

    rows: Sequence[Mapping[str, Any]]
    units: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Column names once, then the values row by row; a value that is not finite becomes null.

        Raises:
            ValueError: Rows with different columns, or a unit of a column that does not exist.
        """
        columns = list(self.rows[0]) if self.rows else []
        if any(list(row) != columns for row in self.rows):
            raise ValueError(f"the rows of a table have the same columns, here {', '.join(columns)}")
        if unknown := [name for name in self.units if name not in columns]:
            raise ValueError(f"there is no column {', '.join(unknown)} to have a unit: {', '.join(columns)}")
        rows = [[to_plain(value) for value in row.values()] for row in self.rows]
        return {"columns": columns, "units": dict(self.units), "rows": rows}


@dataclass(frozen=True)
class Array:
    """A small array for a figure. axes: the name of each axis; unit: of the values."""

    values: Any
    axes: Sequence[str]
    unit: str = ""

    def to_json(self) -> dict[str, Any]:
        """Nested lists, rounded to six significant digits. Raises ValueError where axes and shape differ."""
        values = np.asarray(self.values, dtype=float)
        if values.ndim != len(self.axes):
            raise ValueError(f"an array of shape {values.shape} has {values.ndim} axes, not {', '.join(self.axes)}")
        return {"axes": list(self.axes), "unit": self.unit, "values": _rounded(values.tolist())}


Measured = Mapping[str, Table | Array]


@dataclass(frozen=True)
class Record:
    """The parts of one study, part name -> what its file holds (`config`, `command`, `date`, `tables`, ...)."""

    parts: Mapping[str, Mapping[str, Any]]

    def has(self, *parts: str) -> bool:
        """Whether all of these parts were measured."""
        return set(parts) <= set(self.parts)

    def given(self, functions: Mapping[str, tuple[Any, ...]], *arguments: Any) -> dict[str, Any]:
        """Call what the record has the parts for.

        Args:
            functions: Name -> (function, part, ...), the parts that the function reads.
            arguments: What a function takes after the record.

        Returns:
            Name -> what its function returned; names with a missing part are left out.
        """
        return {name: f(self, *arguments) for name, (f, *parts) in functions.items() if self.has(*parts)}

    def rows(self, name: str, /, **chosen: Any) -> list[dict[str, Any]]:
        """The rows of the table `name` in all parts, those whose columns equal `chosen`; none where it is missing."""
        return [row for row in self._rows(name) if all(row[key] == value for key, value in chosen.items())]

    def _rows(self, name: str) -> Iterator[dict[str, Any]]:
        for part in self.parts.values():
            if table := part["tables"].get(name):
                yield from (dict(zip(table["columns"], row, strict=True)) for row in table["rows"])

    def one(self, name: str, /, **chosen: Any) -> dict[str, Any]:
        """The only such row. Raises KeyError where there are more or none."""
        rows = self.rows(name, **chosen)
        if len(rows) != 1:
            raise KeyError(f"{len(rows)} rows of '{name}' have {chosen}, not one")
        return rows[0]

    def table(self, name: str, /, **chosen: Any) -> pd.DataFrame:
        """The same rows as a data frame."""
        return pd.DataFrame(self.rows(name, **chosen))

    def array(self, name: str, part: str | None = None) -> np.ndarray:
        """The array `name`, of one part where several have it. Raises KeyError where there is none."""
        for key, one in self.parts.items():
            if name in one["arrays"] and part in (None, key):
                return np.array(one["arrays"][name]["values"], dtype=float)
        raise KeyError(f"no part of this record has an array '{name}'")

    def names(self) -> list[str]:
        """The names of all tables, in the order of the parts."""
        return list(dict.fromkeys(name for part in self.parts.values() for name in part["tables"]))


def key_of(study: str, part: str, config: Mapping[str, Any], version: int) -> str:
    """What a part depends on, as 16 hexadecimal digits: another configuration or result version is another key."""
    text = json.dumps([study, part, to_plain(config), version], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def to_json(measured: Measured, **about: Any) -> dict[str, Any]:
    """The content of a part's file: `about` it, then its tables and arrays."""
    tables = {name: each.to_json() for name, each in measured.items() if isinstance(each, Table)}
    arrays = {name: each.to_json() for name, each in measured.items() if isinstance(each, Array)}
    return {**to_plain(about), "tables": tables, "arrays": arrays}


def write_part(path: Path, content: Mapping[str, Any]) -> None:
    """Write a part's file, whole or not at all: one line a row, so that a change is a small difference."""
    about = json.dumps({key: each for key, each in content.items() if key not in ("tables", "arrays")})
    tables = ",\n".join(_table_text(name, table) for name, table in content["tables"].items())
    arrays = ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in content["arrays"].items())
    write_file(path, f'{about[:-1]}, "tables": {{\n{tables}\n}}, "arrays": {{\n{arrays}\n}}}}\n'.encode())


def _table_text(name: str, table: Mapping[str, Any]) -> str:
    head = json.dumps({"columns": table["columns"], "units": table["units"]}, ensure_ascii=False)[:-1]
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in table["rows"])
    return f'{json.dumps(name)}: {head}, "rows": [\n{rows}\n]}}'


def read_part(path: Path) -> dict[str, Any]:
    """A part's file. Raises ValueError for a file that is not one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not {"part", "key", "config", "tables", "arrays"} <= set(content):
            raise ValueError("entries are missing")
    except (ValueError, TypeError) as error:
        raise RequestError(f"'{path}' is not a part of a record ({error}): remove it, it is measured again") from None
    return content


def read_record(folder: Path) -> Record:
    """Every part in `folder`. Raises FileNotFoundError where there is none."""
    parts = [read_part(path) for path in sorted(folder.glob("*.json"))] if folder.is_dir() else []
    if not parts:
        raise MissingFile(f"'{folder}' holds no record: give the folder 'record' that a study has written")
    parts.sort(key=lambda part: part["order"])
    return Record({part["part"]: part for part in parts})


def to_plain(value: Any) -> Any:
    """Plain JSON values: numbers of numpy and torch as Python's, tuples as lists, not-a-number and infinity as None."""
    if isinstance(value, Mapping):
        return {str(key): to_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | range | set | np.ndarray):
        return [to_plain(each) for each in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def _rounded(values: Any) -> Any:
    if isinstance(values, list):
        return [_rounded(each) for each in values]
    return float(f"{values:.{DIGITS}g}") if np.isfinite(values) else None
