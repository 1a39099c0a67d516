"""One configuration of a sweep, the seeds of it that train together, and the key under which a run is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache, cached_property
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from headlab.analyses.tasks import task_entry

NOT_SWEPT = ("out", "seeds", "resume", "memory", "common")


@cache
def known_options(task: str) -> Mapping[str, Any]:
    """option -> type: those of `headlab train TASK`, but where the runs go and which seeds they have."""
    kind = _options_class(task)
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind) if each.name not in NOT_SWEPT}


def default_options(task: str) -> dict[str, Any]:
    """The options of `headlab train TASK` as they are by default, JSON-ready."""
    kind = _options_class(task)
    found = {each.name: each.default for each in fields(kind) if each.name not in NOT_SWEPT}
    return {name: _plain(value) for name, value in found.items() if value is not MISSING}


def _options_class(task: str) -> Any:
    return task_entry(task).options.TrainOptions


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


def fits(value: Any, kind: Any) -> bool:
    """Whether a value from a file can stand for an option of that type."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return any(fits(value, each) for each in get_args(kind))
    if origin is Literal:
        return value in get_args(kind)
    if origin is tuple:
        return isinstance(value, list) and all(fits(each, get_args(kind)[0]) for each in value)
    if kind is type(None):
        return value is None
    if kind is Path:
        return isinstance(value, str)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def takes_list(kind: Any) -> bool:
    """Whether one value of that type is a list."""
    return get_origin(kind) is tuple or any(get_origin(each) is tuple for each in get_args(kind))


def said(kind: Any) -> str:
    """The type of an option in words."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return " or ".join(said(each) for each in get_args(kind) if each is not type(None))
    if origin is Literal:
        return "one of " + ", ".join(str(each) for each in get_args(kind))
    if origin is tuple:
        return f"a list, each {said(get_args(kind)[0])}"
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", Path: "a file's name"}
    return names.get(kind, str(kind))


@dataclass(frozen=True)
class Configuration:
    """A task with every option of its training, JSON-ready. content: option -> digest of the file that it names."""

    task: str
    options: Mapping[str, Any]
    content: Mapping[str, str]

    @classmethod
    def of(cls, task: str, given: Mapping[str, Any]) -> Configuration:
        """`given` over the defaults; a file that an option names is part of what is configured."""
        options = {**default_options(task), **given}
        content = {}
        for name, value in options.items():
            path = Path(value) if isinstance(value, str) else None
            if path is not None and name in ("graph", "target", "tree") and path.is_file():
                content[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        return cls(task, options, content)

    @cached_property
    def identity(self) -> str:
        """All that decides a run but its seed, as one text."""
        version = task_entry(self.task).result_version
        parts = [self.task, version, dict(self.options), dict(self.content)]
        return json.dumps(parts, sort_keys=True, separators=(",", ":"))

    def key(self, seed: int) -> str:
        """The key of one run: a hash of the full configuration, the version of its results, and the seed."""
        return hashlib.sha256(f"{self.identity}#{seed}".encode()).hexdigest()[:24]

    def train_options(self) -> Any:
        """The options object that `headlab train TASK` would take; `out` names nothing."""
        hints = known_options(self.task)
        given = {name: _typed(value, hints[name]) for name, value in self.options.items()}
        return _options_class(self.task)(out=Path("-"), **given)


def _typed(value: Any, kind: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return Path(value) if isinstance(value, str) and Path in (kind, *get_args(kind)) else value


@dataclass(frozen=True)
class Unit:
    """What is worked on at once: seeds of one configuration that train together."""

    configuration: Configuration
    seeds: tuple[int, ...]

    @cached_property
    def key(self) -> str:
        """The name under which the unit is claimed."""
        text = f"{self.configuration.identity}#{self.seeds[0]}-{self.seeds[-1]}:{len(self.seeds)}"
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    @cached_property
    def run_keys(self) -> tuple[str, ...]:
        """The key of each seed's run."""
        return tuple(self.configuration.key(seed) for seed in self.seeds)
