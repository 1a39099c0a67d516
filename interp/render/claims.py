"""The table of claims: what was stated, what was measured, and the verdict as a chip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from interp.render.figure import Figure
from interp.render.text import Rich

VERDICTS = ("holds", "exceeds", "fails", "not reached", "outside class", "not in quick")


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

    Raises ValueError for a verdict that does not exist, and for a link that leaves the folder.
    """
    raise NotImplementedError


def chip(verdict: str, text: str = "") -> str:
    """A verdict as an HTML chip: its mark and `text` (the verdict's own name where empty)."""
    raise NotImplementedError
