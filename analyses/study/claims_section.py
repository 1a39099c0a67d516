"""The last section of every report: the claims with their verdicts, and the rules behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headlab.analyses.claims import RULES, Measurement, count_verdicts, load_claims
from headlab.interp.render import ClaimRow, Figure, claims_table


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
    counted = ", ".join(f"{count} {verdict}" for verdict, count in count_verdicts(measurements).items())
    rules = rules_of(row.verdict for row in rows)
    return claims_table(rows, title="Claims", description=counted, rules=rules)


def rules_of(verdicts: Iterable[str]) -> dict[str, str]:
    """verdict -> what it means, for the verdicts that occur."""
    return {name: _rule(name) for name in dict.fromkeys(verdicts)}


def _rule(verdict: str) -> str:
    """What a verdict means under each kind of rule, in one sentence."""
    if verdict == "not in quick":
        return "left out of a quick run; the full study measures it"
    said = []
    for kind, text in RULES.items():
        for part in text.split(". "):
            name, _, meaning = part.partition(": ")
            if name == verdict:
                said.append(f"{meaning.rstrip('.')} ({kind})")
    return "; ".join(said)


def heading_of(counts: Mapping[str, int]) -> list[str]:
    """The verdict counts as a heading of two lines."""
    parts = [f"{count} {_verb(verdict, count)}" for verdict, count in counts.items()]
    half = (len(parts) + 1) // 2
    lines = [", ".join(parts[:half]) + ("," if len(parts) > half else ""), ", ".join(parts[half:])]
    return [line for line in lines if line]


def _verb(verdict: str, count: int) -> str:
    one = count == 1
    return {
        "holds": "holds" if one else "hold",
        "exceeds": "exceeds" if one else "exceed",
        "fails": "fails" if one else "fail",
    }.get(verdict, verdict)
