"""A small SVG builder: elements, text that fits its space, and ids that stay unique on a page of many figures."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import SupportsFloat

from headlab.interp.errors import RequestError
from headlab.interp.render.text import ELLIPSIS, Rich, Span, plain, spans, visible
from headlab.interp.render.theme import MONO, var

LONGEST = 200
_IDS = itertools.count(1)
_LOCAL = re.compile("\x02([a-z0-9-]+)\x03")


@dataclass(frozen=True)
class Local:
    """An id of one figure; `before` and `after` stand around it, as in `url(#...)`."""

    name: str
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        return f"{self.before}\x02{self.name}\x03{self.after}"


def local(name: str) -> Local:
    """An id that becomes unique when the figure is written: every writing takes a new number from the one counter."""
    return Local(name)


def url(name: str) -> Local:
    """A reference to the figure's own id `name`, as a paint or clip."""
    return Local(name, "url(#", ")")


def numbered(markup: str) -> str:
    """`markup` with its local ids made unique in this process."""
    number = next(_IDS)
    return _LOCAL.sub(lambda match: f"hl{number}-{match.group(1)}", markup)


def escape(text: str) -> str:
    """`text` for the inside of an element or an attribute, of XML and HTML alike: shown, never executed."""
    text = visible(text)
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#39;")):
        text = text.replace(character, entity)
    return text


def n(value: SupportsFloat) -> str:
    """A coordinate with at most two decimals. Raises ValueError for NaN and infinity, which would blank the drawing."""
    real = float(value)
    if not math.isfinite(real):
        raise RequestError(f"a drawing needs finite coordinates, and one of them is {real}")
    shown = f"{real:.2f}".rstrip("0").rstrip(".")
    return "0" if shown in ("-0", "") else shown


@dataclass
class Element:
    """An SVG or HTML element; `str()` writes it."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Element | str] = field(default_factory=list)

    def __str__(self) -> str:
        attributes = "".join(f' {name}="{value}"' for name, value in self.attributes.items())
        if not self.children:
            return f"<{self.tag}{attributes}/>"
        return f"<{self.tag}{attributes}>{''.join(map(str, self.children))}</{self.tag}>"

    def add(self, *children: Element | None) -> Element:
        """Append children, None left out; returns itself."""
        self.children.extend(child for child in children if child is not None)
        return self


def el(tag: str, *children: Element | str | None, **attributes: str | SupportsFloat | Local | None) -> Element:
    """An element. Strings among the children are escaped; `stroke_width` becomes `stroke-width`, `class_` `class`;
    `fill` and `stroke` take palette names; attributes that are None are left out."""
    written: dict[str, str] = {}
    for key, value in attributes.items():
        if value is None:
            continue
        name = key.rstrip("_").replace("_", "-")
        if isinstance(value, Local):
            written[name] = str(value)
        elif isinstance(value, str):
            painted = name in ("fill", "stroke") and value != "none"
            written[name] = var(value) if painted else escape(value)
        else:
            written[name] = n(value)
    whole = [escape(child) if isinstance(child, str) else child for child in children if child is not None]
    return Element(tag, written, list(whole))


def group(*children: Element | None, **attributes: str | SupportsFloat | Local | None) -> Element:
    """A `<g>`."""
    return el("g", *children, **attributes)


def rect(x: SupportsFloat, y: SupportsFloat, width: SupportsFloat, height: SupportsFloat, **attributes) -> Element:
    """A rectangle."""
    return el("rect", x=x, y=y, width=width, height=height, **attributes)


def line(x1: SupportsFloat, y1: SupportsFloat, x2: SupportsFloat, y2: SupportsFloat, **attributes) -> Element:
    """A straight line, 1 px hairline unless told otherwise."""
    return el("line", x1=x1, y1=y1, x2=x2, y2=y2, **{"stroke": "hairline", **attributes})


def path(d: str, **attributes) -> Element:
    """A path."""
    return el("path", d=d, **attributes)


def points(xs: Iterable[SupportsFloat], ys: Iterable[SupportsFloat]) -> str:
    """The path data of a polyline."""
    return "M" + "L".join(f"{n(x)} {n(y)}" for x, y in zip(xs, ys, strict=True))


def squares(cells: Iterable[tuple[SupportsFloat, SupportsFloat]], width: SupportsFloat, height: SupportsFloat) -> str:
    """The path data of many equal rectangles, given by their top left corners."""
    shape = f"h{n(width)}v{n(height)}h{n(-float(width))}z"
    return "".join(f"M{n(x)} {n(y)}{shape}" for x, y in cells)


def hatch(name: str = "hatch") -> Element:
    """The pattern of what theory forbids: 45 degree lines."""
    return el(
        "pattern",
        line(4, 0, 4, 8, stroke="hatch", stroke_width=1),
        id=local(name),
        width=8,
        height=8,
        patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
    )


# Advance widths of Helvetica's printable ASCII in thousandths of the size; Arial and Liberation Sans share them.
_WIDTHS = (
    "278 278 355 556 556 889 667 191 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556 556 556 "
    "278 278 584 584 584 556 1015 667 667 722 722 667 611 778 722 278 500 667 556 833 722 778 667 778 722 667 "
    "611 722 667 944 667 667 611 278 278 278 469 556 333 556 556 500 556 556 278 556 556 222 222 500 222 833 "
    "556 556 556 556 333 500 278 556 500 722 500 500 500 334 260 334 584"
)
_WIDTH = {chr(32 + index): int(width) / 1000 for index, width in enumerate(_WIDTHS.split())}
_WIDTH.update(
    {"\u202f": 0.2, "…": 1.0, "−": 0.584, "–": 0.556, "→": 1.0, "·": 0.333, "≥": 0.55, "\u2068": 0, "\u2069": 0}
)


def _advance(character: str) -> float:
    known = _WIDTH.get(character)
    if known is not None:
        return known
    code = ord(character)
    if code in (0x200B, 0x200C, 0x200D, 0xFE0F) or 0x300 <= code < 0x370:
        return 0.0
    wide = code >= 0x1F000 or 0x1100 <= code < 0x1160 or 0x2E80 <= code < 0xD7A4 or 0xF900 <= code < 0xFB00
    wide = wide or 0xFE30 <= code < 0xFE70 or 0xFF00 <= code < 0xFF61
    return 1.3 if wide else (0.62 if code < 0x2000 else 0.9)


def measure(text: Rich, size: SupportsFloat = 14, *, bold: bool = False) -> float:
    """The width of `text` in px in an Arial of `size`: an upper estimate that serves the system fonts too."""
    width = 0.0
    for part in spans(text):
        if part.mono:
            width += 0.61 * sum(1 if _advance(character) else 0 for character in part.text)
        else:
            width += sum(map(_advance, part.text)) * (1.08 if bold or part.bold else 1.02)
    return width * float(size)


def fit(text: Rich, width: SupportsFloat, size: SupportsFloat = 14, *, bold: bool = False) -> Rich:
    """`text`, or as much of its beginning as fits `width` px and 200 characters, and an ellipsis."""
    space = float(width)
    if len(plain(text)) <= LONGEST and measure(text, size, bold=bold) <= space:
        return text
    space -= measure(ELLIPSIS, size, bold=bold)
    kept: list[Span] = []
    count = 0
    for part in spans(text):
        letters = ""
        for character in part.text:
            space -= measure(Span(character, mono=part.mono, bold=part.bold), size, bold=bold)
            if space < 0 or count >= LONGEST - 1:
                break
            letters += character
            count += 1
        kept.append(Span(letters, part.bold, part.italic, part.mono, part.colour))
        if letters != part.text:
            break
    last = kept[-1]
    kept[-1] = Span(last.text.rstrip() + ELLIPSIS, last.bold, last.italic, last.mono, last.colour)
    return tuple(kept)


def label(
    x: SupportsFloat,
    y: SupportsFloat,
    text: Rich,
    *,
    width: SupportsFloat | None = None,
    size: SupportsFloat = 14,
    bold: bool = False,
    fill: str = "ink",
    anchor: str = "start",
    rotate: bool = False,
    halo: bool = False,
    **attributes: str | SupportsFloat | Local | None,
) -> Element | None:
    """A line of text with its baseline at (x, y), shortened to `width` px with the whole of it as its title.

    anchor: start, middle or end. rotate: read from bottom to top. halo: a rim of the background, for text on lines.
    None where there is no text, or no space for one letter.
    """
    if not plain(text):
        return None
    shown = text if width is None else fit(text, width, size, bold=bold)
    if width is None and len(plain(text)) > LONGEST:
        shown = fit(text, math.inf, size, bold=bold)
    if plain(shown) == ELLIPSIS != plain(text):
        return None
    children: list[Element | str] = []
    if plain(shown) != plain(text):
        children.append(el("title", plain(text)))
    for part in spans(shown):
        marked = part.italic or part.mono or part.colour or (part.bold and not bold)
        children.append(
            el(
                "tspan",
                part.text,
                font_weight="650" if part.bold and not bold else None,
                font_style="italic" if part.italic else None,
                font_family=MONO if part.mono else None,
                fill=part.colour or None,
            )
            if marked
            else part.text
        )
    where: dict[str, str | SupportsFloat] = {"x": x, "y": y}
    if rotate:
        where = {"transform": f"translate({n(x)} {n(y)}) rotate(-90)"}
    rim = {"paint_order": "stroke", "stroke": "bg", "stroke_width": 4, "stroke_linejoin": "round"} if halo else {}
    return el(
        "text",
        *children,
        **where,
        font_size=size,
        font_weight="650" if bold else None,
        fill=fill,
        text_anchor=anchor if anchor != "start" else None,
        **rim,
        **attributes,
    )


def html(text: Rich) -> str:
    """Text with marks as HTML."""
    out = []
    for part in spans(text):
        inner = escape(part.text)
        style = f' style="color:{var(part.colour)}"' if part.colour else ""
        tag = "code" if part.mono else "b" if part.bold else "i" if part.italic else "span" if style else ""
        out.append(f"<{tag}{style}>{inner}</{tag}>" if tag else inner)
    return "".join(out)
