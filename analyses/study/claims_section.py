"""The last section of the reports that are not drawn from a record yet: the claims with their verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headlab.analyses.claims import Measurement, count_verdicts, load_claims
from headlab.analyses.study.words import Words
from headlab.interp.render import ClaimRow, Figure, claims_table
from headlab.interp.render.text import plain


def claims_figure(measurements: Sequence[Measurement], skipped: Sequence[str]) -> Figure:
    """The claims table; what a quick run leaves out is a row that says so."""
    claims = load_claims()
    rows = [
        ClaimRow(
            claims[m.id].claim,
            m.paper or "no statement, our question",
            m.summary,
            m.verdict,
            detail=f"{m.id}, {m.seeds} seeds" if m.seeds else m.id,
        )
        for m in measurements
    ]
    rows += [ClaimRow(claims[name].claim, "", "", "not in quick", detail=name) for name in skipped]
    words = Words("claims", {"counts": count_verdicts(measurements)})
    return claims_table(rows, **words("table"), rules=rules_of(row.verdict for row in rows))


def rules_of(verdicts: Iterable[str]) -> dict[str, str]:
    """Verdict -> what it means, for the verdicts that occur."""
    words = Words("claims", {})
    return {name: plain(words.fill(f"rule {name}")) for name in dict.fromkeys(verdicts)}


def heading_of(counts: Mapping[str, int]) -> list[str]:
    """The verdict counts as a heading."""
    return [plain(line) for line in Words("claims", {"counts": counts}).lines("heading")]
