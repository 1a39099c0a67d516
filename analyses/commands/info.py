"""`headlab info`: what a checkpoint is, and how it was made."""

from __future__ import annotations

from typing import Any

from headlab.analyses.commands.tables import print_facts
from headlab.analyses.options.instruments import Info
from headlab.models.manifest import count_numbers, read_checkpoint, read_part, resolve


def run(options: Info) -> dict[str, Any]:
    """The JSON of `headlab info`, from the manifest; the weights are checked against their checksum, and not loaded."""
    directory = resolve(options.dir)
    manifest = read_checkpoint(directory)
    return {
        "dir": str(directory),
        "task": manifest["task"],
        "variant": manifest["variant"],
        "config": manifest["architecture"],
        "recipe": manifest["recipe"],
        "seed": manifest["seed"],
        "versions": manifest.get("versions", {}),
        "metrics": manifest["metrics"],
        "parameters": count_numbers(read_part(directory, manifest, "weights")),
        "recorded_steps": [row.get("step") for row in manifest["history"]],
    }


def show(result: dict[str, Any]) -> None:
    """Print it for a reader."""
    print_facts(result)
