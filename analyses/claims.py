"""What the papers claim, what was measured, and the rule that makes a verdict of the two.

The claims themselves are data (`claims.toml`, our own wording). A study returns one `Measurement` a claim; no verdict
is written by hand: each comes from one of the three rules below, applied to measured numbers.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from typing import Any, Literal

from headlab.interp.errors import UnknownName
from headlab.interp.interval import Interval

Verdict = Literal["holds", "exceeds", "fails", "not reached", "outside class"]
VERDICTS: tuple[Verdict, ...] = ("holds", "exceeds", "fails", "not reached", "outside class")

RULES: Mapping[str, str] = {
    "bound": "holds: no violation among the cases tried. fails: at least one violation. "
    "not reached: nothing could be tried.",
    "figure": "exceeds: better than the paper's figure by more than the tolerance. holds: within the paper's figures, "
    "or within the tolerance of them. not reached: worse, and nothing contradicts the statement.",
    "statement": "holds: every stated condition on the measured numbers is met. fails: the opposite was measured. "
    "not reached: neither. outside class: only models outside the stated class were measured.",
}


@dataclass(frozen=True)
class Claim:
    """One checkable statement.

    figures: the paper's own numbers by name. doubtful: known from a digest only, and at odds with the paper itself.
    beyond: our own finding, in none of the papers. theory: a lower bound, which no measurement can show; it is tested
    by the consequence that tested_by names.
    """

    id: str
    system: str
    claim: str
    rule: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    doubtful: bool = False
    beyond: bool = False
    theory: bool = False
    tested_by: str = ""


@dataclass(frozen=True)
class Measurement:
    """What was measured for one claim, and the verdict that its rule gives.

    measured: the figures by name. summary: one sentence with the figures, for a reader. interval: of the main figure,
    or None where it is a count. seeds: how many, None where nothing is random. command: what reproduces it.
    """

    id: str
    verdict: Verdict
    summary: str
    measured: Mapping[str, Any]
    command: str
    paper: str = ""
    interval: Interval | tuple[float, float] | None = None
    seeds: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The row of `headlab claims --json`."""
        interval = None if self.interval is None else list(self.interval)
        return {**asdict(self), "interval": interval, "level": getattr(self.interval, "level", None)}

    def to_row(self) -> dict[str, Any]:
        """The row of a study's table of claims: the figures as the sentence, the interval as two columns."""
        low, high = self.interval or (None, None)
        return {
            "id": self.id,
            "verdict": self.verdict,
            "summary": self.summary,
            "paper": self.paper,
            "seeds": self.seeds,
            "low": low,
            "high": high,
            "command": self.command,
        }


def load_claims() -> dict[str, Claim]:
    """id -> claim, in the order of the file."""
    text = files("headlab.analyses").joinpath("claims.toml").read_text(encoding="utf-8")
    return {name: Claim(id=name, **row) for name, row in tomllib.loads(text).items()}


def choose(ids: Sequence[str]) -> list[Claim]:
    """The claims named, all where none is named. Raises KeyError, with the ids there are, for an unknown one."""
    claims = load_claims()
    for name in ids:
        if name not in claims:
            raise UnknownName(f"no claim '{name}': there are {', '.join(claims)}")
    return [claims[name] for name in ids] if ids else list(claims.values())


def judge_bound(violations: int, tried: int) -> Verdict:
    """A statement about every case: one violation refutes it, none among the tried supports it."""
    if tried < 1:
        return "not reached"
    return "holds" if violations == 0 else "fails"


def judge_figure(
    measured: float, paper: float | Sequence[float], *, higher_is_better: bool = True, tolerance: float = 0.0
) -> Verdict:
    """A figure against the paper's figure or [low, high] range, `tolerance` in the figure's own units."""
    low, high = (paper, paper) if isinstance(paper, int | float) else (min(paper), max(paper))
    better, worse = (measured - high, low - measured) if higher_is_better else (low - measured, measured - high)
    if better > tolerance:
        return "exceeds"
    return "not reached" if worse > tolerance else "holds"


def judge_statement(supported: bool, contradicted: bool = False, *, in_class: bool = True) -> Verdict:
    """A statement with stated conditions: met, refuted by the opposite, or neither."""
    if not in_class:
        return "outside class"
    if contradicted:
        return "fails"
    return "holds" if supported else "not reached"


def count_verdicts(measurements: Sequence[Measurement]) -> dict[str, int]:
    """verdict -> how many, in the order of VERDICTS, zeros left out."""
    counts: dict[str, int] = {verdict: sum(m.verdict == verdict for m in measurements) for verdict in VERDICTS}
    return {verdict: number for verdict, number in counts.items() if number}
