"""From SVG to PNG through a browser of the machine, or cairosvg."""

from __future__ import annotations


def png(svg: str, width: int, height: int, *, scale: int = 2) -> bytes:
    """The SVG as a PNG, `scale` times its size. Raises FileNotFoundError where no browser and no cairosvg is there."""
    raise NotImplementedError
