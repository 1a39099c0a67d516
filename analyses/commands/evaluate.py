"""`headlab evaluate`: how well a checkpoint does its task."""

from __future__ import annotations

from typing import Any

from headlab.analyses.commands.tables import print_facts
from headlab.analyses.options.instruments import Evaluate
from headlab.analyses.systems import system
from headlab.models.checkpoints import load


def run(options: Evaluate) -> dict[str, Any]:
    """The JSON of `headlab evaluate`; its keys depend on the task."""
    checkpoint = load(options.dir, device=options.common.device)
    result = system(checkpoint.task).evaluate(checkpoint, seed=options.common.seed, count=options.count)
    return {"dir": str(checkpoint.directory), "device": options.common.device, **result}


def show(result: dict[str, Any]) -> None:
    """Print it for a reader."""
    print_facts(result)
