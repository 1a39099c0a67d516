"""The words of a study: its page and the texts of its figures, from a template with the numbers filled in.

`templates/STUDY.toml` holds the page (title, kicker, headline, summary, hero, sections) and the texts of each figure
(title, description, caption). Every string is a Jinja template. Values are escaped; the only marks are ``<A>`` ..
``<L>``, ``<one>``, ``<positive>``, ``<negative>`` (a head's or a verdict's colour), ``<b>``, ``<i>`` and ``<m>`` (bold,
italic, monospace).
"""

from __future__ import annotations

import html
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2

from headlab.interp.interval import show_level
from headlab.interp.render.figure import Figure
from headlab.interp.render.page import Beside, Details, Section
from headlab.interp.render.text import Rich, Span, coloured, number, percent, plain, signed

_TAG = re.compile(r"<(/?)([A-Za-z]+)>")
_LOOKS: dict[str, dict[str, Any]] = {"b": {"bold": True}, "i": {"italic": True}, "m": {"mono": True}}
_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def scientific(value: float) -> str:
    """`0.01`, `30`, `3.2 × 10⁵`: a size for a reader."""
    if value == 0 or 0.001 <= abs(value) < 1000:
        return f"{value:.3g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    digits = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{digits}" if mantissa == "1.0" else f"{mantissa} × 10{digits}"


def plural(count: int, noun: str, many: str = "") -> str:
    """`1 error`, `2 errors`, `no error`."""
    return f"no {noun}" if count == 0 else f"{number(count)} {noun if count == 1 else many or noun + 's'}"


def in_words(count: int) -> str:
    """A small count as a word, a large one in figures."""
    return _COUNTS[count] if 0 <= count < len(_COUNTS) else number(count)


def whole(value: float) -> str:
    """A share in whole per cents."""
    return percent(value, 0)


@cache
def _machine() -> jinja2.Environment:
    machine = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    filters = {"percent": percent, "number": number, "signed": signed, "scientific": scientific, "whole": whole}
    machine.filters |= {
        **filters,
        "plural": plural,
        "words": in_words,
        "level": show_level,
        "fixed": lambda value, digits=2: f"{value:.{digits}f}",
    }
    return machine


@cache
def _template(text: str) -> jinja2.Template:
    return _machine().from_string(text)


def fill(text: str, values: Mapping[str, Any]) -> Rich:
    """A template with its values, marks as spans. Raises jinja2.UndefinedError for a value that is missing."""
    filled = re.sub(r"[ \n]+", " ", _template(text).render(values)).strip(" ")
    parts: list[str | Span] = []
    open_tags: list[str] = []
    at = 0
    for tag in [*_TAG.finditer(filled), None]:
        piece = html.unescape(filled[at : tag.start() if tag else len(filled)])
        if piece:
            parts.append(_marked(piece, open_tags[-1] if open_tags else ""))
        if tag:
            open_tags.pop() if tag[1] else open_tags.append(tag[2])
            at = tag.end()
    if all(isinstance(each, str) for each in parts):
        return "".join(parts)  # type: ignore[arg-type]
    return parts


def _marked(text: str, tag: str) -> str | Span:
    if not tag:
        return text
    return Span(text, **_LOOKS[tag]) if tag in _LOOKS else coloured(text, tag)


def fill_plain(text: str, values: Mapping[str, Any]) -> str:
    """The same as letters without marks."""
    return plain(fill(text, values))


class Words:
    """The words of one study, or of one record of it."""

    def __init__(self, study: str, values: Mapping[str, Any]) -> None:
        text = files("headlab.analyses.study").joinpath("templates", f"{study}.toml").read_text(encoding="utf-8")
        self.texts, self.values = tomllib.loads(text), dict(values)

    def __call__(self, figure: str, /, **values: Any) -> dict[str, Any]:
        """`title`, `description` and `caption` (where there is one) of a figure; `values` stand before the study's."""
        context = {**self.values, **values}
        texts = self.texts["figures"][figure]
        return {
            key: fill(text, context) if key == "caption" else fill_plain(text, context) for key, text in texts.items()
        }

    def labels(self, name: str, /, **values: Any) -> dict[str, Any]:
        """The labels `name`, for the inside of a figure."""
        context = {**self.values, **values}
        return {key: fill(text, context) for key, text in self.texts["labels"][name].items() if isinstance(text, str)}

    def fill(self, key: str, /, **values: Any) -> Rich:
        """The text `key` of the page."""
        return fill(self.texts[key], {**self.values, **values})

    def lines(self, key: str) -> list[Rich]:
        """The lines of a heading; a line that is empty is left out."""
        return self._lines(self.texts[key])

    def _lines(self, texts: Sequence[str] | str) -> list[Rich]:
        each = [texts] if isinstance(texts, str) else texts
        return [line for line in (fill(text, self.values) for text in each) if line]

    def sections(self, figures: Mapping[str, Figure]) -> list[Section]:
        """The sections in order; one of which no figure was drawn is left out."""
        made = []
        for one in self.texts["sections"]:
            drawn = [figures[name] for name in one["figures"] if name in figures]
            if not drawn:
                continue
            beside = [
                Beside(figures[each["figure"]], fill(each["heading"], self.values), fill(each["text"], self.values))
                for each in one.get("beside", ())
                if each["figure"] in figures
            ]
            details = [
                Details(fill_plain(each["summary"], self.values), [], figures[each["figure"]])
                for each in one.get("details", ())
                if each["figure"] in figures
            ]
            heading = self._lines(one["heading"])
            made.append(Section(one["name"], heading, fill(one["text"], self.values), drawn, beside, details))  # type: ignore[arg-type]
        return made
