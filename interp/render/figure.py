"""A figure: two drawings, wide and narrow, with the words that belong to them; shown in notebooks, saved, put on
pages."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headlab.interp.errors import MissingFile, RequestError
from headlab.interp.render import browser, theme
from headlab.interp.render.document import document, scripts, switch_css, template
from headlab.interp.render.svg import Element, el, local, numbered, rect
from headlab.interp.render.svg import html as rich_html
from headlab.interp.render.text import Real, Rich, plain

WIDE = 1080
NARROW = 372
MARGIN = 16


@dataclass(frozen=True)
class Drawing:
    """SVG markup `width` by `height` units (1 unit = 1 px), with local ids."""

    width: Real
    height: Real
    content: str

    def svg(self, title: str, description: str, *, kind: str = "", margin: int = 0) -> str:
        """The drawing as an `<svg>` with its alternative text and fresh ids, and `margin` px of background around it.

        kind: its class; `hl-narrow` is hidden where no style sheet shows it.
        """
        name, told = local("title"), local("description")
        width, height = round(self.width) + 2 * margin, round(self.height) + 2 * margin
        whole = el(
            "svg",
            el("title", title or "figure", id=name),
            el("desc", description, id=told) if description else None,
            rect(-margin, -margin, width, height, fill="bg"),
            xmlns="http://www.w3.org/2000/svg",
            class_=kind or None,
            display="none" if kind == "hl-narrow" else None,
            viewBox=f"{-margin} {-margin} {width} {height}",
            width=width,
            height=height,
            role="img",
            font_family=theme.FONT,
            font_size=14,
        )
        whole.attributes["aria-labelledby"] = f"{name} {told}" if description else str(name)
        text = str(whole)
        return numbered(f"{text[:-6]}{self.content}</svg>")


def drawing(width: Real, height: Real, content: Iterable[Element | str | None]) -> Drawing:
    """A drawing from its elements."""
    return Drawing(float(width), float(height), "".join(str(part) for part in content if part is not None))


@dataclass(frozen=True, repr=False)
class Figure:
    """A figure that a page, a notebook or a file can show.

    title: its short name. description: alternative text that states the result. caption: what it is, n, how measured.
    wide, narrow: the drawings for a column of 1080 px (or what `wide.width` says) and for one of 372. before, after:
    HTML above and below them (a legend, a control, a list), with local ids. assets: names of the scripts that it can
    use but does not need. body: HTML in place of the drawings, for a figure that is a table.
    """

    title: str
    description: str
    caption: Rich = ""
    wide: Drawing | None = None
    narrow: Drawing | None = None
    before: str = ""
    after: str = ""
    assets: tuple[str, ...] = ()
    body: str = ""

    @property
    def svg(self) -> str:
        """The wide drawing as SVG, with fresh ids; for a page or cell that shows it in light and dark."""
        return self._drawn(self.wide).svg(self.title, self.description)

    @property
    def svg_narrow(self) -> str | None:
        """The narrow drawing as SVG with fresh ids, where there is one."""
        return None if self.narrow is None else self.narrow.svg(self.title, self.description)

    def to_html(self) -> str:
        """The figure as an HTML fragment for a page that has the style sheet and the scripts (`page.py` makes one)."""
        parts = [self.before]
        if self.wide is not None:
            room = round(self.wide.width)
            parts.append(self.wide.svg(self.title, self.description, kind="hl-wide"))
            if self.narrow is not None:
                parts.append(self.narrow.svg(self.title, self.description, kind="hl-narrow"))
        else:
            room = WIDE
        parts.append(self.body)
        caption = f"<figcaption>{rich_html(self.caption)}</figcaption>" if plain(self.caption) else ""
        inner = "".join(parts)
        return numbered(
            f'<figure class="hl-figure hl-w{room}"><div class="hl-room">{inner}</div>{caption}{self.after}</figure>'
        )

    def __repr__(self) -> str:
        return f"{self.title}: {self.description}"

    def _repr_svg_(self) -> str | None:
        """The wide drawing for viewers that strip styles and scripts out of HTML; None for a figure that is a table."""
        return None if self.wide is None else self.standalone_svg().partition("\n")[2]

    def _repr_html_(self) -> str:
        """What a notebook shows: the fragment with its style sheet and scripts; static where scripts are stripped."""
        return self.embedded()

    def embedded(self) -> str:
        """The fragment with everything it needs, for a document that knows nothing of it."""
        fragment = self.to_html()
        own = template("figure.css")
        width = [self.wide.width] if self.wide is not None else []
        rules = f"{own}{switch_css(width)}{theme.figure_css(theme.used(fragment + own))}"
        return f'<style>{rules}</style><div class="hl-embedded">{fragment}</div>{scripts(self.assets)}'

    def standalone_svg(self, appearance: str = "auto") -> str:
        """The wide drawing as an SVG file: `auto` follows the reader's system through variables; `light` and `dark`
        hold plain colours, for programs that know no variables (Inkscape, LaTeX)."""
        whole = self._drawn(self.wide).svg(self.title, self.description, margin=MARGIN)
        if appearance == "auto":
            rules = f"<style>{theme.svg_css(theme.used(whole), appearance)}</style>"
            start = whole.index(">") + 1
            whole = whole[:start] + rules + whole[start:]
        else:
            whole = theme.resolve(whole, appearance)
        return '<?xml version="1.0" encoding="UTF-8"?>\n' + whole + "\n"

    def standalone_html(self) -> str:
        """The figure as an HTML document without any request."""
        return document(self.title, self.to_html(), [self.wide.width if self.wide else WIDE], self.assets)

    def save(self, path: str | os.PathLike[str], *, appearance: str = "auto") -> Path:
        """Write `x.svg` (vector), `x.html` (one file, offline) or `x.png` (twice the size; needs Chromium, Chrome or
        cairosvg). appearance: `auto`, `light` or `dark`; a PNG is light unless told otherwise.

        Written whole or not at all. Raises ValueError for another ending, and for an SVG or PNG of a figure that is a
        table; FileNotFoundError where the folder is not there, or nothing on this machine can make a PNG.
        """
        target = Path(path)
        if not target.parent.is_dir():
            raise MissingFile(f"the folder {target.parent} does not exist: make it first, or choose another")
        ending = target.suffix.lower()
        if ending == ".svg":
            data = self.standalone_svg(appearance).encode()
        elif ending == ".html":
            data = self.standalone_html().encode()
        elif ending == ".png":
            drawn = self._drawn(self.wide)
            appearance = "light" if appearance == "auto" else appearance
            data = browser.png(
                self.standalone_svg(appearance), *(round(side) + 2 * MARGIN for side in (drawn.width, drawn.height))
            )
        else:
            raise RequestError(f"a figure can be saved as .svg, .html or .png, not as {target.name!r}")
        write(target, data)
        return target

    def _drawn(self, drawn: Drawing | None) -> Drawing:
        if drawn is None:
            raise RequestError(f"the figure {self.title!r} is a table and has no drawing: save it as .html")
        return drawn


def write(target: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
