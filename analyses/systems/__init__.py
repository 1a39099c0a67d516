"""What the commands need of each system: build, train, evaluate, its task, its untrained and constructed peers.

A system is a module with these functions:

- `build(options) -> Checkpoint`: constructed weights, saved in `options.out`;
- `train(options, progress=None) -> dict`: learned weights, saved in `options.out`; the JSON of `headlab train`;
- `evaluate(checkpoint, *, seed, count=None) -> dict`: the JSON of `headlab evaluate`;
- `task(checkpoint) -> Task`;
- `untrained(checkpoint, seed) -> HookedTransformer`: the same architecture as the task's initialiser leaves it;
- `compare_rows(...)`-like choices where the task needs its own (see each module).
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from headlab.interp.errors import UnknownName

SYSTEMS = ("esp", "tree", "xor", "retrieval")


def system(name: str) -> ModuleType:
    """The module of the system `name`. Raises KeyError, listing what exists."""
    if name not in SYSTEMS:
        raise UnknownName(f"no system '{name}': there are {', '.join(SYSTEMS)}")
    return import_module(f"headlab.analyses.systems.{name}")
