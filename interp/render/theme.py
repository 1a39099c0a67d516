"""The palette, once for light and once for dark, as CSS variables; the colours of heads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headlab.interp.errors import RequestError

FONT = '-apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
MONO = 'ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace'
LETTERS = "ABCDEFGHIJKL"

_LIGHT = {
    "bg": "#FFFFFF",
    "panel": "#F5F6F8",
    "tile": "#EEF0F3",
    "zero": "#F1F2F4",
    "hairline": "#E1E4E8",
    "axis": "#8A929D",
    "hatch": "#C9CED6",
    "ink": "#16191D",
    "muted": "#565D67",
    "on": "#FFFFFF",
    "head-a": "#0A5FB0",
    "head-b": "#B44A00",
    "head-c": "#295C42",
    "head-d": "#622E85",
    "head-e": "#676F39",
    "head-f": "#5E151E",
    "head-g": "#162F5C",
    "head-h": "#955A60",
    "head-i": "#805D95",
    "head-j": "#823508",
    "head-k": "#4E203B",
    "head-l": "#6A3A21",
    "head-one": "#4B5361",
    "neg-1": "#F3DCEC",
    "neg-2": "#E8B9D8",
    "neg-3": "#DC93C2",
    "neg-4": "#CC67AA",
    "neg-5": "#BB3C92",
    "neg-6": "#A8157C",
    "pos-1": "#E1ECD8",
    "pos-2": "#C2D9B1",
    "pos-3": "#A1C489",
    "pos-4": "#7FAC61",
    "pos-5": "#5C933E",
    "pos-6": "#3B7A1E",
}

_DARK = {
    "bg": "#111418",
    "panel": "#1A1E24",
    "tile": "#20252C",
    "zero": "#1F242B",
    "hairline": "#2B3139",
    "axis": "#727B87",
    "hatch": "#3D4550",
    "ink": "#E9ECEF",
    "muted": "#A6AEB9",
    "on": "#111418",
    "head-a": "#70B7FF",
    "head-b": "#FFA24A",
    "head-c": "#3EB17B",
    "head-d": "#EAC9FB",
    "head-e": "#D8E296",
    "head-f": "#FE7078",
    "head-g": "#759BFB",
    "head-h": "#EFA5AC",
    "head-i": "#BD89DC",
    "head-j": "#E68552",
    "head-k": "#C98CAC",
    "head-l": "#FCCAB1",
    "head-one": "#BAC2CE",
    "neg-1": "#43243B",
    "neg-2": "#552A49",
    "neg-3": "#7D3B6B",
    "neg-4": "#A84F90",
    "neg-5": "#D566B0",
    "neg-6": "#FF7FCB",
    "pos-1": "#283A20",
    "pos-2": "#2F4426",
    "pos-3": "#456533",
    "pos-4": "#5C8744",
    "pos-5": "#74A957",
    "pos-6": "#8CCB6A",
}


def luminance(colour: str) -> float:
    """Relative luminance of `#RRGGBB` in [0, 1] (WCAG 2.2)."""
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours `#RRGGBB`, 1 to 21 (WCAG 2.2); text needs 4.5."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _with_text(palette: Mapping[str, str]) -> Mapping[str, str]:
    """The palette, and for each diverging step the colour of text on it: ink, background, white or black."""
    steps = [name for name in palette if name[:4] in ("neg-", "pos-")]
    texts = (palette["ink"], palette["bg"], "#FFFFFF", "#000000")
    chosen = {f"on-{name}": max(texts, key=lambda text: contrast(text, palette[name])) for name in steps}
    return {**palette, **chosen}


LIGHT = _with_text(_LIGHT)
DARK = _with_text(_DARK)

PREFIX = "--hl-"
_VARIABLE = re.compile(r"var\(--hl-([a-z0-9-]+)(?:,#[0-9A-Fa-f]{6})?\)")


@dataclass(frozen=True)
class Head:
    """A head as the figures show it: the letter of its ROLE after matching, never of its index.

    key: `A` .. `L` for the colours of up to twelve roles, `one` for the only head of a one-head model, `ink` for a head
    whose role is unknown. label: what is printed; the key where empty.
    """

    key: str
    label: str = ""

    def __post_init__(self) -> None:
        if self.key not in ("one", "ink") and (len(self.key) != 1 or self.key not in LETTERS):
            raise RequestError(
                f"there is no head colour {self.key!r}: the keys are A to L for roles, 'one' for a one-head model "
                "and 'ink' for a head without a role"
            )

    @property
    def colour(self) -> str:
        """The palette's name of the head's colour."""
        return "ink" if self.key == "ink" else f"head-{self.key.lower()}"

    @property
    def shown(self) -> str:
        """What is printed on the head's badge."""
        return self.label or (self.key if self.key not in ("one", "ink") else "")


def head(value: str | Head) -> Head:
    """A head from its key, or as it is."""
    return value if isinstance(value, Head) else Head(value)


def heads(value: str | Head | Iterable[str | Head]) -> tuple[Head, ...]:
    """One head or several as a tuple: `"A"` -> (A,), `("A", "B")` -> (A, B)."""
    if isinstance(value, str | Head):
        return (head(value),)
    return tuple(head(one) for one in value)


def var(name: str) -> str:
    """A palette colour as CSS: the variable, and its light value for viewers that drop style sheets."""
    names = {"negative": "neg-6", "positive": "pos-6"}
    name = names.get(name, name)
    if name not in LIGHT:
        raise RequestError(f"there is no palette colour {name!r}; there are {', '.join(LIGHT)}")
    return f"var({PREFIX}{name},{LIGHT[name]})"


def used(markup: str) -> tuple[str, ...]:
    """The palette names that `markup` uses, in the palette's order."""
    found = set(_VARIABLE.findall(markup))
    return tuple(name for name in LIGHT if name in found)


def resolve(markup: str, theme: str) -> str:
    """`markup` with every variable replaced by its value in `light` or `dark`, for programs that know no variables."""
    palette = palette_of(theme)
    return _VARIABLE.sub(lambda match: palette[match.group(1)], markup)


def without_fallbacks(markup: str) -> str:
    """`markup` with bare variables, for a document that declares them itself."""
    return _VARIABLE.sub(lambda match: f"var({PREFIX}{match.group(1)})", markup)


def palette_of(theme: str) -> Mapping[str, str]:
    """The colours of a theme, `light` or `dark`."""
    if theme not in ("light", "dark"):
        raise RequestError(f"there is no theme {theme!r}; there are light and dark")
    return LIGHT if theme == "light" else DARK


def declarations(theme: str, names: Iterable[str] | None = None) -> str:
    """The palette as CSS declarations, all of it or the names given."""
    palette = palette_of(theme)
    return ";".join(f"{PREFIX}{name}:{palette[name]}" for name in (palette if names is None else names))


def page_css() -> str:
    """The palette for a document: light, dark where the reader's system asks for it, `data-theme` to force one."""
    light, dark = declarations("light"), declarations("dark")
    return (
        f":root{{color-scheme:light dark;{light}}}"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f":root[data-theme=light]{{color-scheme:light}}:root[data-theme=dark]{{color-scheme:dark;{dark}}}"
    )


def figure_css(names: Iterable[str]) -> str:
    """The dark values of `names` for a figure inside somebody else's document: JupyterLab and VS Code say their theme
    on the body, everywhere else the reader's system decides. Light values are the variables' own fallbacks."""
    dark = declarations("dark", names)
    if not dark:
        return ""
    light_hosts = ":not([data-jp-theme-light=true]):not([data-vscode-theme-kind=vscode-light])"
    return (
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]) body{light_hosts} .hl-figure{{{dark}}}}}"
        f"[data-theme=dark] .hl-figure,body[data-jp-theme-light=false] .hl-figure,"
        f"body[data-vscode-theme-kind=vscode-dark] .hl-figure{{{dark}}}"
    )


def svg_css(names: Iterable[str], theme: str) -> str:
    """The palette for an SVG file that stands alone: `auto` follows the reader's system."""
    names = tuple(names)
    if theme != "auto":
        return f":root{{{declarations(theme, names)}}}"
    light, dark = declarations("light", names), declarations("dark", names)
    return f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
