"""The report page: kicker, headline, summary, verdicts, a hero figure, numbered sections, claims; one HTML file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from headlab.interp.errors import RequestError
from headlab.interp.render.claims import chip, inside
from headlab.interp.render.document import document, rendered
from headlab.interp.render.figure import Figure
from headlab.interp.render.svg import html
from headlab.interp.render.text import Rich, Span


@dataclass(frozen=True)
class Details:
    """Something folded away: a summary, and lines of text or a figure inside."""

    summary: str
    lines: Sequence[Rich] = ()
    figure: Figure | None = None


@dataclass(frozen=True)
class Beside:
    """A smaller figure (620 px wide) with a heading and a few sentences beside it, below the section's own figure."""

    figure: Figure
    heading: Rich
    text: Rich


@dataclass(frozen=True)
class Section:
    """A numbered section. name: the small line after the number. heading: the finding (a list: one line each where
    there is space). text: at most three sentences. figures: usually one. anchor: its id, for links (`section-N` where
    empty)."""

    name: str
    heading: Rich | Sequence[Rich]
    text: Rich = ""
    figures: Sequence[Figure] = ()
    beside: Sequence[Beside] = ()
    details: Sequence[Details] = ()
    anchor: str = ""


def report_page(
    *,
    title: str,
    kicker: Rich,
    headline: Sequence[Rich],
    summary: Rich,
    sections: Sequence[Section],
    hero: Figure | None = None,
    verdicts_label: str = "",
    verdicts: Mapping[str, int] | None = None,
    verdicts_link: str = "",
    links: Sequence[tuple[str, str]] = (),
    footer: Rich = "",
    lang: str = "en",
) -> str:
    """The whole report as one HTML document: no request, readable without scripts, light and dark, 400 to 1600 px.

    title: of the browser's tab. headline: the lines of the finding, with their colours. verdicts: verdict -> how many,
    shown as chips after `verdicts_label`, which links to `verdicts_link` (`#claims`). links: (text, address) of other
    pages of the same folder, below the summary. Raises ValueError for an address that is not inside the folder.
    """
    shown = [_shown(section, index) for index, section in enumerate(sections, start=1)]
    anchors = [section["anchor"] for section in shown]
    if len(set(anchors)) != len(anchors):
        raise RequestError(f"two sections have the same anchor: {', '.join(anchors)}")
    figures = [hero] if hero is not None else []
    for section in sections:
        figures += [*section.figures, *(one.figure for one in section.beside)]
        figures += [one.figure for one in section.details if one.figure is not None]
    body = rendered(
        "report.html.j2",
        {
            "kicker": _markup(kicker),
            "headline": [_markup(one) for one in headline],
            "summary": _markup(summary),
            "verdicts_label": verdicts_label,
            "verdicts": [
                Markup(chip(verdict, _counted(verdict, count))) for verdict, count in (verdicts or {}).items()
            ],
            "verdicts_link": inside(verdicts_link),
            "links": [(text, inside(address)) for text, address in links],
            "hero": Markup(hero.to_html()) if hero is not None else "",
            "sections": shown,
            "footer": _markup(footer),
        },
    )
    widths = [one.wide.width for one in figures if one.wide is not None]
    return document(title, body, widths, [name for one in figures for name in one.assets], lang=lang)


def _markup(text: Rich) -> Markup:
    return Markup(html(text))


def _lines(text: Rich | Sequence[Rich]) -> list[Markup]:
    """A heading's lines: a list of plain strings is one line each; any other text is one line."""
    if isinstance(text, str | Span):
        return [_markup(text)]
    if all(isinstance(one, str) for one in text) or any(not isinstance(one, str | Span) for one in text):
        return [_markup(one) for one in text]
    return [_markup([one for one in text if isinstance(one, str | Span)])]


def _shown(section: Section, number: int) -> dict[str, Any]:
    anchor = section.anchor or f"section-{number}"
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", anchor):
        raise RequestError(f"the anchor {anchor!r} must begin with a letter and hold letters, digits, '-' and '_' only")
    return {
        "name": section.name,
        "anchor": anchor,
        "heading": _lines(section.heading),
        "text": _markup(section.text),
        "figures": [Markup(one.to_html()) for one in section.figures],
        "beside": [
            {"figure": Markup(one.figure.to_html()), "heading": _markup(one.heading), "text": _markup(one.text)}
            for one in section.beside
        ],
        "details": [
            {
                "summary": one.summary,
                "lines": [_markup(line) for line in one.lines],
                "figure": Markup(one.figure.to_html()) if one.figure is not None else "",
            }
            for one in section.details
        ],
    }


def _counted(verdict: str, count: int) -> str:
    """A count with its verdict: `1 holds`, `5 hold`."""
    many = {"holds": "hold", "exceeds": "exceed", "fails": "fail"}
    return f"{count} {verdict if count == 1 else many.get(verdict, verdict)}"
