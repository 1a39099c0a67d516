"""Arguments of `headlab calibrate`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from headlab.analyses.options.common import Common


@dataclass(frozen=True)
class Calibrate:
    """Hold an instrument, yours or a built-in one, to models whose circuit is certain."""

    method: Annotated[str | None, tyro.conf.Positional] = None
    """FILE.py:FUNCTION, or a built-in instrument by name (see --list)."""
    level: Literal["edges", "heads", "sites"] = "edges"
    """What the method scores."""
    quick: bool = False
    """Four rungs instead of ten."""
    apart: bool = False
    """The tuned and the trained models as well, whose truth is measured."""
    tasks: Annotated[tuple[str, ...], tyro.conf.arg(name="task")] = ()
    """Tasks: esp, tree, xor, retrieval; all by default."""
    rungs: Annotated[tuple[str, ...], tyro.conf.arg(name="rung")] = ()
    """Rungs by name; all by default."""
    seeds: int = 1
    """How many seeds, from --seed on."""
    limit: float = 60.0
    """Seconds that the method may take for one cell."""
    jobs: int = 1
    """Processes."""
    out: Path | None = None
    """Folder for calibration.html and calibration.json."""
    list: bool = False
    """List tasks, rungs and built-in instruments, and do nothing else."""
    common: Common = field(default_factory=Common)
