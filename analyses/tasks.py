"""The registry of tasks: what each task is called, what it asks, and where its commands, options and study are.

A new task is its own folders and one line here; its claims stand in the claims file. What a task's module of commands
must offer is said in `headlab.analyses.systems`. Nothing heavy is imported until it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from headlab.interp.errors import UnknownName


@dataclass(frozen=True)
class TaskEntry:
    """One task.

    Args:
        name: Its name on the command line and in checkpoints.
        title: Its name in a report.
        question: What its study asks, in a sentence.
        together: Seeds of one configuration that a sweep trains together.
        minutes: CPU minutes of its full study; where several studies run, the longest begins first.
        result_version: Raised by hand where the same configuration begins to give other results; a sweep then runs
            it again.
        package: Where the modules `systems.NAME`, `options.NAME` and `study.NAME` are.
    """

    name: str
    title: str
    question: str
    together: int
    minutes: int
    result_version: int = 1
    package: str = "headlab.analyses"

    @property
    def commands(self) -> ModuleType:
        """The module with build, train, training, evaluate, task, constructed and untrained."""
        return import_module(f"{self.package}.systems.{self.name}")

    @property
    def options(self) -> ModuleType:
        """The module with BuildOptions, TrainOptions and StudyOptions, the arguments of the commands."""
        return import_module(f"{self.package}.options.{self.name}")

    @property
    def study(self) -> Callable[..., dict[str, Any]]:
        """run(options, report) of the task's study."""
        return import_module(f"{self.package}.study.{self.name}").run


TASKS: dict[str, TaskEntry] = {
    entry.name: entry
    for entry in (
        TaskEntry("esp", "Endpoint selection", "Which end of an arc does a selector name?", together=32, minutes=8),
        TaskEntry(
            "tree",
            "Tree path-finding",
            "Which head looks up parents, and which one goes back down?",
            together=5,
            minutes=90,
        ),
        TaskEntry("xor", "Sparse XOR", "Can one gradient step find two hidden bits?", together=16, minutes=15),
        TaskEntry(
            "retrieval",
            "Generalised retrieval",
            "How many heads does a function of D minima over a sequence need?",
            together=8,
            minutes=60,
        ),
    )
}


def tasks() -> dict[str, TaskEntry]:
    """The tasks there are, by name."""
    return dict(TASKS)


def task_entry(name: str) -> TaskEntry:
    """The entry of the task `name`. Raises UnknownName, listing the tasks there are."""
    if name not in TASKS:
        raise UnknownName(f"no task '{name}': there are {', '.join(TASKS)}")
    return TASKS[name]


def entry_of(options: Any) -> TaskEntry:
    """The task whose options these are."""
    module = type(options).__module__
    return next(entry for entry in TASKS.values() if entry.options.__name__ == module)
