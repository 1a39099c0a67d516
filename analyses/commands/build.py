"""`headlab build`: constructed weights into a checkpoint."""

from __future__ import annotations

from typing import Any

from headlab.analyses.commands.tables import print_facts
from headlab.analyses.tasks import entry_of


def run(options: Any) -> dict[str, Any]:
    """The JSON of `headlab build`."""
    entry = entry_of(options)
    checkpoint = entry.commands.build(options)
    config = checkpoint.architecture.config
    return {
        "dir": str(checkpoint.directory),
        "task": entry.name,
        "variant": checkpoint.variant,
        "heads": config["n_heads"],
        "d_model": config["d_model"],
        "parameters": sum(parameter.numel() for parameter in checkpoint.model.parameters()),
        "metrics": checkpoint.metrics,
    }


def show(result: dict[str, Any]) -> None:
    """Print it for a reader."""
    print_facts(result)
