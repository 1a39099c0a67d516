"""From SVG to PNG through a browser of the machine, or cairosvg."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from headlab.interp.errors import MissingFile, WorkFailed

NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "msedge",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
# A page that is read from disk needs neither the network nor the user's profile.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
)


def find() -> str | None:
    """The path of a Chromium or Chrome: the one that HEADLAB_BROWSER names, else the first on the machine; or None."""
    for name in (os.environ.get("HEADLAB_BROWSER", ""), *NAMES):
        found = shutil.which(name) if name else None
        if found:
            return found
    return None


def png(svg: str, width: int, height: int, *, scale: int = 2) -> bytes:
    """The SVG as a PNG, `scale` times its size. Raises FileNotFoundError where no browser and no cairosvg is there,
    RuntimeError where the browser draws nothing."""
    program = find()
    if program is None:
        if importlib.util.find_spec("cairosvg") is not None:
            cairo = importlib.import_module("cairosvg")
            return cairo.svg2png(bytestring=svg.encode(), output_width=width * scale, output_height=height * scale)
        raise MissingFile(
            "a PNG needs Chromium, Chrome or the Python package cairosvg, and none is on this machine: install one "
            "(HEADLAB_BROWSER may name a browser's path), or save as .svg or .html"
        )
    with tempfile.TemporaryDirectory(prefix="headlab-") as folder:
        page, picture = Path(folder, "figure.html"), Path(folder, "figure.png")
        body = svg[svg.index("<svg") :]
        page.write_text(f'<!doctype html><meta charset="utf-8"><style>body{{margin:0}}</style>{body}', encoding="utf-8")
        command = [
            program,
            *FLAGS,
            f"--user-data-dir={folder}/profile",
            f"--force-device-scale-factor={scale}",
            f"--window-size={width},{height}",
            f"--screenshot={picture}",
            page.as_uri(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if not picture.is_file():
            raise WorkFailed(f"{program} drew no picture: {done.stderr.strip()[-300:] or 'it gave no reason'}")
        return picture.read_bytes()
