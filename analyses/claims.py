"""What the papers claim, and the evidence from which a claim's own rule makes a verdict.

The claims are data (`claims.toml`, in this project's words): statement, paper, figures, rule and thresholds. A study
returns `Evidence` by claim id, and the rule of that row judges it (`rules`); no verdict is written by hand.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from headlab.analyses.rules import VERDICTS, Rule, Verdict, judge_figure
from headlab.interp.errors import UnknownName
from headlab.interp.interval import Interval

UNPORTED = ("retrieval",)  # systems whose studies still return a `Measurement` with its verdict


@dataclass(frozen=True)
class Paper:
    """A paper: title, venue with year, link."""

    title: str
    venue: str
    link: str


@dataclass(frozen=True)
class Claim:
    """One checkable statement.

    paper: a key of `load_papers()`, empty for a finding of this project. short: the statement in at most 34 characters.
    says: what the paper gives for it, beside figures. figures: the paper's own numbers by name. second_hand: known from
    a summary only, and at odds with the paper itself. rule: None for a row that is not tested, for the reason in
    `not_tested`. tested_by: the consequence by which a lower bound is tested, which no measurement can show. evidence,
    line: the sentence and the short line about what was measured, as templates.
    """

    id: str
    system: str
    claim: str
    rule: Rule | None = None
    paper: str = ""
    short: str = ""
    says: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    second_hand: bool = False
    tested_by: str = ""
    not_tested: str = ""
    evidence: str = ""
    line: str = ""

    @property
    def beyond(self) -> bool:
        """Whether no paper says it."""
        return not self.paper


@dataclass(frozen=True)
class Evidence:
    """What was measured for one claim.

    values: the numbers that its rule reads, and what its sentence needs. interval: of the main figure, with the level
    that it has; None where it is a count. seeds: how many, None where nothing is random.
    """

    values: Mapping[str, Any]
    interval: Interval | None = None
    seeds: int | None = None


@dataclass(frozen=True)
class Measurement:
    """What a study that is not ported yet measured for one claim, with its verdict."""

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
            "low": low,
            "high": high,
            "seeds": self.seeds,
            "command": self.command,
        }


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads(files("headlab.analyses").joinpath("claims.toml").read_text(encoding="utf-8"))


def load_papers() -> dict[str, Paper]:
    """Key -> paper, in the order of the file."""
    return {name: Paper(**row) for name, row in _file()["papers"].items()}


@cache
def load_claims() -> dict[str, Claim]:
    """Claim id -> claim, in the order of the file.

    Raises:
        ValueError: A row whose rule cannot say both `holds` and `fails`, one without a rule and without a reason why
            it is not tested, or a paper that does not exist. The message names the row.
    """
    return {name: claim_of(name, row) for name, row in _file().items() if name != "papers"}


def claim_of(name: str, row: Mapping[str, Any]) -> Claim:
    """One row of the file as a claim; raises as `load_claims`."""
    shown = {key: row[key] for key in Claim.__dataclass_fields__ if key in row and key != "rule"}
    if row.get("paper", "") not in ("", *_file()["papers"]):
        raise ValueError(f"claim {name}: there is no paper '{row['paper']}'")
    try:
        tested = "rule" in row and row["system"] not in UNPORTED
        rule = Rule.parse(row, row.get("figures", {})) if tested else None
    except (ValueError, KeyError) as error:
        raise ValueError(f"claim {name}: {error}") from None
    if rule is None and not row.get("not_tested") and row["system"] not in UNPORTED:
        raise ValueError(f"claim {name}: a row without a rule says in `not_tested` why no run settles it")
    return Claim(id=name, rule=rule, **shown)


def choose(ids: Sequence[str]) -> list[Claim]:
    """The claims named, all where none is named. Raises KeyError, with the ids there are, for an unknown one."""
    claims = load_claims()
    for name in ids:
        if name not in claims:
            raise UnknownName(f"no claim '{name}': there are {', '.join(claims)}")
    return [claims[name] for name in ids] if ids else list(claims.values())


def ledger_row(claim: Claim, evidence: Evidence, command: str) -> dict[str, Any]:
    """A claim with its evidence as results.json holds it: numbers, sentence, verdict by the claim's rule.

    Raises:
        ValueError: Evidence for a claim without a rule.
        KeyError: Evidence without a number that the rule reads.
    """
    from headlab.analyses.study.record import to_plain
    from headlab.analyses.study.words import fill_plain

    if claim.rule is None:
        raise ValueError(f"claim {claim.id} has no rule: it is not tested")
    values = to_plain(evidence.values)
    return {
        "id": claim.id,
        "verdict": claim.rule.judge(values),
        "cells": claim.rule.cells(values) if claim.figures else None,
        "summary": fill_plain(claim.evidence, values),
        "line": fill_plain(claim.line, values),
        "values": values,
        "interval": None if evidence.interval is None else list(evidence.interval),
        "level": getattr(evidence.interval, "level", None),
        "seeds": evidence.seeds,
        "command": command,
    }


def judge_bound(violations: int, tried: int) -> Verdict:
    """A statement about every case: one violation refutes it, none among the tried supports it."""
    if tried < 1:
        return "not reached"
    return "holds" if violations == 0 else "fails"


def judge_statement(supported: bool, contradicted: bool = False, *, in_class: bool = True) -> Verdict:
    """A statement with stated conditions: met, refuted by the opposite, or neither."""
    if not in_class:
        return "outside class"
    if contradicted:
        return "fails"
    return "holds" if supported else "not reached"


def count_verdicts(rows: Iterable[Any]) -> dict[str, int]:
    """Verdict -> how many of the rows have it, in the order of VERDICTS, zeros left out."""
    given = [row["verdict"] if isinstance(row, Mapping) else row.verdict for row in rows]
    return {verdict: given.count(verdict) for verdict in VERDICTS if verdict in given}


__all__ = [
    "VERDICTS",
    "Claim",
    "Evidence",
    "Measurement",
    "Verdict",
    "choose",
    "claim_of",
    "count_verdicts",
    "judge_bound",
    "judge_figure",
    "judge_statement",
    "ledger_row",
    "load_claims",
    "load_papers",
]
