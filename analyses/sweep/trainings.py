"""How a sweep trains seeds of one configuration together, through each task's own training, and what it measures.

Every run has `error` (the figure that sweeps are about, lower is better), `success` and `steps_done`, and what its task
measures besides: esp error is the share of samples answered wrongly, success none of them; retrieval error is the
NMSE, success below 1e-3; tree error is 1 - path accuracy, success at .99; xor error is the loss, success below 1e-3,
for attention with each head on a target of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headlab.analyses.sweep.configuration import Configuration
from headlab.analyses.systems import system

Measured = dict[str, Any]
LEARNED = 1e-3  # an error below which a run counts as a success
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Training:
    """A training that is ready to start: run(seeds, steps, progress) gives one row a seed.

    steps: its full number; None where steps cannot be cut short (a pilot then takes fewer seeds). work: nominal
    operations per seed, comparable within a task. stops: whether it ends once every seed is solved. records: how many
    of its steps measure as well.
    """

    steps: int | None
    work: float
    run: Callable[[Sequence[int], int | None, Progress | None], list[Measured]]
    stops: bool = False
    records: int = 0


def prepare(configuration: Configuration, device: str = "cpu") -> Training:
    """The training of a configuration. Raises what the task raises for options that do not go together."""
    return system(configuration.task).training(configuration.train_options(), device)
