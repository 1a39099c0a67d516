"""The folder that a study writes: asked for before the work begins, and filled with whole files only."""

from __future__ import annotations

import tempfile
from pathlib import Path

from interp.render.figure import write


def require_folder(out: Path) -> None:
    """Make `out` where it is not there. Raises ValueError where it is a file or cannot be written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise ValueError(f"the folder '{out}' cannot be written ({error.strerror}): choose another --out") from None


def write_file(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all, and make its folder where it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, data)
