"""The report page: kicker, headline, summary, verdicts, a hero figure, numbered sections, claims; one HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from interp.render.figure import Figure
from interp.render.text import Rich


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
    there is room). text: at most three sentences. figures: usually one. anchor: its id, for links (`section-N` where
    empty)."""

    name: str
    heading: Rich
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
    raise NotImplementedError
