"""The table of claims: what was stated, what was measured, and the verdict as a chip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headlab.interp.errors import RequestError
from headlab.interp.render.caps import left_out, with_sentence
from headlab.interp.render.figure import Figure
from headlab.interp.render.svg import escape, html
from headlab.interp.render.text import Rich, plain

_MARKS = {
    "holds": "●",
    "exceeds": "▲",
    "fails": "✕",
    "not reached": "○",
    "outside class": "◇",
    "not tested": "□",
    "not in quick": "–",
}
VERDICTS = tuple(_MARKS)


MOST_ROWS = 300


@dataclass(frozen=True)
class ClaimRow:
    """A claim: its statement, what the paper says, what was measured, and the verdict (one of VERDICTS).

    link: where the evidence is (`#section-3`, or a file of the same folder). detail: a smaller line below the measured.
    """

    claim: Rich
    paper: Rich
    measured: Rich
    verdict: str
    detail: Rich = ""
    link: str = ""


def claims_table(
    rows: Sequence[ClaimRow],
    *,
    title: str,
    description: str,
    caption: Rich = "",
    rules: Mapping[str, Rich] | None = None,
    headings: Sequence[str] = ("Claim", "Paper", "Measured", "Verdict"),
) -> Figure:
    """Claims as a table (HTML, no drawing); rules: verdict -> the rule by which it is given, printed below.

    Past 300 rows the first are shown, and the table says so. Raises ValueError for a verdict that does not exist, and
    for a link that leaves the folder.
    """
    for row in rows:
        if row.verdict not in VERDICTS:
            raise RequestError(f"there is no verdict {row.verdict!r}: the verdicts are {', '.join(VERDICTS)}")
        inside(row.link)
    for verdict in rules or {}:
        if verdict not in VERDICTS:
            raise RequestError(f"there is a rule for {verdict!r}, and the verdicts are {', '.join(VERDICTS)}")
    if len(headings) != 4:
        raise RequestError(f"the table has four columns, and {len(headings)} headings were given")
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in headings)
    body = "".join(_row(row, headings) for row in rows[:MOST_ROWS])
    table = f'<table class="hl-claims"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    told = " ".join(f"<b>{escape(verdict)}</b>: {html(text)}." for verdict, text in (rules or {}).items())
    after = f'<p class="hl-rules">{told}</p>' if told else ""
    alternative = f' aria-label="{escape(title)}: {escape(description)}"'
    figure = Figure(title, description, caption, body=table.replace("<table", f"<table{alternative}", 1), after=after)
    return with_sentence(figure, left_out((len(rows), MOST_ROWS, "claims")))


def _row(row: ClaimRow, headings: Sequence[str]) -> str:
    claim = html(row.claim)
    if row.link:
        claim = f'<a href="{escape(row.link)}">{claim}</a>'
    measured = html(row.measured) + (f"<small>{html(row.detail)}</small>" if plain(row.detail) else "")
    cells = (claim, html(row.paper), f"<div>{measured}</div>", chip(row.verdict))
    return "<tr>" + "".join(f'<td data-l="{escape(name)}">{cell}</td>' for name, cell in zip(headings, cells)) + "</tr>"


def inside(link: str) -> str:
    """A link as it is, where it stays in the report's folder; ValueError for an address anywhere else."""
    path = link.partition("#")[0].partition("?")[0]
    if ":" in path or path.startswith(("/", "\\")) or ".." in path.replace("\\", "/").split("/"):
        raise RequestError(
            f"the link {link!r} leaves the report's folder: use '#section' or the name of a file beside it"
        )
    return link


def chip(verdict: str, text: str = "") -> str:
    """A verdict as an HTML chip: its mark and `text` (the verdict's own name where empty)."""
    if verdict not in _MARKS:
        raise RequestError(f"there is no verdict {verdict!r}: the verdicts are {', '.join(VERDICTS)}")
    return (
        f'<span class="hl-chip hl-{verdict.replace(" ", "-")}"><i aria-hidden="true">{_MARKS[verdict]}</i>'
        f"{escape(text or verdict)}</span>"
    )
