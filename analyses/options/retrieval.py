"""Arguments of the retrieval commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from analyses.options.common import Common


@dataclass(frozen=True)
class HeadsNeeded:
    """How many heads a task needs, read off a table of errors over head counts and lengths."""

    file: Annotated[Path, tyro.conf.Positional]
    """CSV or Parquet: columns heads (or h), error (or nmse) and, where lengths vary, length (or T)."""
    mass: float = 0.9
    """Probability that the set of answers holds."""
    gaps: bool = False
    """Take a table in which some head counts were not measured at every length."""
    common: Common = field(default_factory=Common)
