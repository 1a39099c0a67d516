"""The text colour that can be read on a tinted cell, in light and in dark."""

from __future__ import annotations

from headlab.interp.errors import RequestError
from headlab.interp.render.text import Real
from headlab.interp.render.theme import DARK, LIGHT, contrast


def mix(top: str, bottom: str, opacity: Real) -> str:
    """What is seen where `top` lies on `bottom` with `opacity` in [0, 1], as `#RRGGBB`."""
    channels = []
    for start in (1, 3, 5):
        over, under = int(top[start : start + 2], 16), int(bottom[start : start + 2], 16)
        channels.append(round(over * opacity + under * (1 - opacity)))
    return "#" + "".join(f"{channel:02X}" for channel in channels)


def readable(colour: str, opacity: Real, background: str = "tile") -> str | None:
    """The text colour, `on` or `ink`, that reads on `colour` laid over `background` with `opacity`.

    In light and in dark: None where neither reaches a contrast of 4.5 in both.
    """
    for text in ("ink", "on"):
        if all(
            contrast(palette[text], mix(palette[colour], palette[background], opacity)) >= 4.5
            for palette in (LIGHT, DARK)
        ):
            return text
    return None


def readable_opacity(colour: str, wanted: Real, background: str = "tile") -> tuple[Real, str]:
    """The opacity nearest to `wanted` at which text on `colour` can be read, and the text's colour."""
    for distance in range(101):
        for opacity in (wanted + distance / 100, wanted - distance / 100):
            text = readable(colour, min(max(opacity, 0.0), 1.0), background)
            if text:
                return min(max(opacity, 0.0), 1.0), text
    raise RequestError(f"no text can be read on {colour!r}")
