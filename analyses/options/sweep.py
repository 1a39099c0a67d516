"""Arguments of `headlab sweep`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from headlab.analyses.options.common import Common


@dataclass(frozen=True)
class SweepOptions:
    """Many configurations from a file: run what is missing, or show what there is."""

    file: Annotated[str, tyro.conf.Positional]
    """A TOML file, or the name of a ready sweep (headlab sweep list shows them)."""
    engine: Literal["loky", "dask", "ray"] = "loky"
    """loky: processes of this machine; dask, ray: a cluster that exists already."""
    address: str | None = None
    """Address of the cluster, HOST:PORT."""
    workers: int | None = None
    """Runs at once; as many as there are cores by default."""
    out: Path | None = None
    """Folder of the results; out/sweeps/NAME by default."""
    small: bool = False
    """The file's small version."""
    table: bool = False
    """Print the results by group, and run nothing."""
    plot: bool = False
    """Draw error against heads with intervals into the folder, and run nothing."""
    compare: tuple[str, ...] = ()
    """Two settings, e.g. --compare heads=1 heads=2: a paired test over seeds, and nothing is run."""
    measure: str | None = None
    """The figure to show; error by default."""
    yes: bool = False
    """Run more than a million runs without asking."""
    retry: bool = False
    """Try failed runs again."""
    common: Common = field(default_factory=Common)
