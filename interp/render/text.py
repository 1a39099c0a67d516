"""Text with marks in it (bold, a head's colour, monospace), and numbers as the figures print them."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, SupportsFloat

THIN = "\u202f"
MINUS = "\u2212"
ELLIPSIS = "\u2026"
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Span:
    """A piece of text with one look. `colour` is a palette name: `ink`, `muted`, `head-a` .. `head-l`, `head-one`,
    `negative`, `positive`; empty for the colour of what surrounds it."""

    text: str
    bold: bool = False
    italic: bool = False
    mono: bool = False
    colour: str = ""


Rich = str | Span | Sequence[str | Span]
# A checker of types at run time takes `float` at its word, and a whole number of pixels is a number of pixels.
Real = float | int


def bold(text: str) -> Span:
    """`text` in bold."""
    return Span(text, bold=True)


def italic(text: str) -> Span:
    """`text` in italics."""
    return Span(text, italic=True)


def mono(text: str) -> Span:
    """`text` in monospace: for the task's own one-character tokens, and for nothing else."""
    return Span(text, mono=True)


def coloured(text: str, colour: str, *, bold: bool = True) -> Span:
    """`text` in a palette colour. A single letter A .. L, or `one`, names that head's colour."""
    return Span(text, bold=bold, colour=colour_name(colour))


def colour_name(colour: str) -> str:
    """The palette's name of a head (`A` -> `head-a`, `one` -> `head-one`); every other name stays as it is."""
    if colour == "one" or (len(colour) == 1 and "A" <= colour <= "L"):
        return f"head-{colour.lower()}"
    return colour


def spans(text: Rich) -> tuple[Span, ...]:
    """Any text as a tuple of spans, empty ones left out."""
    if isinstance(text, str):
        parts: Sequence[str | Span] = (text,)
    elif isinstance(text, Span):
        parts = (text,)
    else:
        parts = text
    whole = tuple(part if isinstance(part, Span) else Span(part) for part in parts)
    return tuple(part for part in whole if part.text)


def plain(text: Rich) -> str:
    """The letters alone, without the marks."""
    return "".join(part.text for part in spans(text))


def emphasised(text: Rich) -> tuple[Span, ...]:
    """The same text, all of it bold."""
    return tuple(replace(part, bold=True) for part in spans(text))


def visible(text: str) -> str:
    """Every character of `text` in a form that XML and HTML can carry and a reader can see.

    Control characters become their pictures (a line feed is `␊`), lone surrogates and non-characters the replacement
    character. A text with right-to-left letters or direction marks is isolated: it cannot reorder its neighbours.
    """
    out = []
    directed = False
    for character in text:
        code = ord(character)
        if code < 0x20:
            out.append(chr(0x2400 + code))
        elif code == 0x7F:
            out.append("\u2421")
        elif 0x80 <= code < 0xA0 or 0xD800 <= code < 0xE000 or (code & 0xFFFE) == 0xFFFE or 0xFDD0 <= code <= 0xFDEF:
            out.append("\ufffd")
        else:
            directed = directed or unicodedata.bidirectional(character) in DIRECTED
            out.append(character)
    whole = "".join(out)
    return f"\u2068{whole}\u2069" if directed else whole


DIRECTED = frozenset({"R", "AL", "RLE", "RLO", "LRE", "LRO", "PDF", "RLI", "LRI", "FSI", "PDI"})


def token(text: Any) -> str:
    """A model's token as a label: blanks at its ends, and the empty token, are shown as `␣` and `∅`."""
    text = str(text)
    if not text:
        return "∅"
    body = text.strip(" ")
    left = len(text) - len(text.lstrip(" "))
    right = len(text) - len(body) - left if body else 0
    return "␣" * left + body + "␣" * right


def number(value: SupportsFloat, digits: int | None = None) -> str:
    """A number with a real minus and thin spaces between thousands; `digits` after the point, or as few as it
    needs (below a thousandth as `2·10⁻⁵`)."""
    real = float(value)
    if math.isnan(real):
        return "–"
    if math.isinf(real):
        return "∞" if real > 0 else f"{MINUS}∞"
    if digits is None and real and not 1e-3 <= abs(real) < 1e9:
        mantissa, _, exponent = f"{abs(real):.2e}".partition("e")
        mantissa = mantissa.rstrip("0").rstrip(".")
        power = f"10{str(int(exponent)).translate(_RAISED)}"
        return f"{MINUS if real < 0 else ''}{power if mantissa == '1' else f'{mantissa}·{power}'}"
    shown = f"{abs(real):.{digits}f}" if digits is not None else f"{abs(real):.6f}".rstrip("0").rstrip(".")
    whole, _, fraction = shown.partition(".")
    if len(whole) > 4 or (len(whole) == 4 and not fraction):
        whole = f"{int(whole):,}".replace(",", THIN)
    shown = f"{whole}.{fraction}" if fraction else whole
    return f"{MINUS}{shown}" if real < 0 and shown.strip("0.") else shown


def signed(value: SupportsFloat, digits: int = 1) -> str:
    """A number with its sign always shown: `+9.7`, `−0.3`, and `0.0` where it rounds to nothing."""
    shown = number(value, digits)
    return f"+{shown}" if float(value) > 0 and shown.strip("0.") else shown


def percent(share: SupportsFloat, digits: int = 2) -> str:
    """A share in [0, 1] as `92.69 %`, with a thin space that does not break."""
    return f"{number(float(share) * 100, digits)}{THIN}%"
