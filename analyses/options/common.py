"""Arguments that many commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Common:
    """Where the work runs and how it answers."""

    seed: int = 0
    """Seed of everything that is drawn."""
    device: str = "cpu"
    """Torch device: cpu, cuda, cuda:1, mps."""
    json: bool = False
    """Print one JSON object on stdout and nothing else."""


Directory = Annotated[Path, tyro.conf.Positional]
RecordFolder = Annotated[Path | None, tyro.conf.arg(name="from")]
PartNames = Annotated[tuple[str, ...], tyro.conf.arg(name="parts")]
