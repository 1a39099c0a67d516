"""`headlab build`: constructed weights into a checkpoint."""

from __future__ import annotations

from typing import Any

from headlab.analyses.commands.tables import print_facts
from headlab.analyses.systems import SYSTEMS, system


def system_of(options: Any) -> str:
    """The system that an options class belongs to: the last part of its module's name."""
    name = type(options).__module__.rsplit(".", 1)[-1]
    if name not in SYSTEMS:
        raise KeyError(f"{type(options).__name__} belongs to no system: there are {', '.join(SYSTEMS)}")
    return name


def run(options: Any) -> dict[str, Any]:
    """The JSON of `headlab build`."""
    name = system_of(options)
    checkpoint = system(name).build(options)
    config = checkpoint.architecture.config
    return {
        "dir": str(checkpoint.directory),
        "task": name,
        "variant": checkpoint.variant,
        "heads": config["n_heads"],
        "d_model": config["d_model"],
        "parameters": sum(parameter.numel() for parameter in checkpoint.model.parameters()),
        "metrics": checkpoint.metrics,
    }


def show(result: dict[str, Any]) -> None:
    """Print it for a reader."""
    print_facts(result)
