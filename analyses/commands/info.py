"""`headlab info`: what a checkpoint is, and how it was made."""

from __future__ import annotations

from typing import Any

from headlab.analyses.commands.tables import print_facts
from headlab.analyses.options.instruments import Info
from headlab.models.checkpoints import load


def run(options: Info) -> dict[str, Any]:
    """The JSON of `headlab info`."""
    checkpoint = load(options.dir, device=options.common.device)
    return {
        "dir": str(checkpoint.directory),
        "task": checkpoint.task,
        "variant": checkpoint.variant,
        "config": checkpoint.architecture.to_json(),
        "recipe": checkpoint.recipe,
        "seed": checkpoint.seed,
        "versions": checkpoint.versions,
        "metrics": checkpoint.metrics,
        "parameters": sum(p.numel() for p in checkpoint.model.parameters()),
        "recorded_steps": [row.get("step") for row in checkpoint.history],
    }


def show(result: dict[str, Any]) -> None:
    """Print it for a reader."""
    print_facts(result)
