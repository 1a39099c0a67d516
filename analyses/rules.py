"""The rules that make a verdict of evidence, as the claims file states them.

A rule reads numbers of the evidence by name and compares them with thresholds; nothing else decides. Three kinds:

* ``bound``: a statement about every case. `violations` and `tried` name two counts.
* ``statement``: `holds`, conditions that must all be met; `fails`, alternatives of which one refutes the statement.
* ``figure``: the measured value of each figure of the paper that `decides`, `better` = higher or lower, within
  `tolerance`; `fails` as above.

A condition reads ``name < 0.5``, several in one alternative are joined with ``and``. `outside` are conditions under
which only models outside the stated class were measured. A name that begins with share, accuracy, auroc, violations,
errors, models or count has the range that these words imply.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["holds", "exceeds", "fails", "not reached", "outside class", "not tested"]
VERDICTS: tuple[Verdict, ...] = ("holds", "exceeds", "fails", "not reached", "outside class", "not tested")
KINDS = ("bound", "statement", "figure")

_RELATIONS = {"<=": operator.le, ">=": operator.ge, "==": operator.eq, "<": operator.lt, ">": operator.gt}
_CONDITION = re.compile(r"(\w+) (<=|>=|==|<|>) (-?\d+(?:\.\d+)?(?:e-?\d+)?)")
_RANGES = {
    **dict.fromkeys(("share", "accuracy", "auroc"), (0.0, 1.0)),
    **dict.fromkeys(("violations", "errors", "models", "count"), (0.0, math.inf)),
}
_WORST_FIRST: tuple[Verdict, ...] = ("not reached", "holds", "exceeds")


@dataclass(frozen=True)
class Condition:
    """One comparison of a number of the evidence with a threshold."""

    name: str
    relation: str
    threshold: float

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read ``name < 0.5``. Raises ValueError for anything else."""
        parts = _CONDITION.fullmatch(text.strip())
        if parts is None:
            raise ValueError(f"'{text}' is not a condition: write a name, a comparison and a number, as 'share >= 0.9'")
        return cls(parts[1], parts[2], float(parts[3]))

    def met(self, evidence: Mapping[str, Any]) -> bool:
        """Whether the evidence meets it; a number that could not be measured (None) meets nothing."""
        value = evidence[self.name]
        return value is not None and bool(_RELATIONS[self.relation](value, self.threshold))


@dataclass(frozen=True)
class Rule:
    """A rule with its thresholds; see the module's text for the meaning of each field."""

    kind: str
    holds: tuple[Condition, ...] = ()
    fails: tuple[tuple[Condition, ...], ...] = ()
    outside: tuple[Condition, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)
    decides: tuple[str, ...] = ()
    higher_is_better: bool = True
    tolerance: float = 0.0

    @classmethod
    def parse(cls, row: Mapping[str, Any], figures: Mapping[str, Any]) -> Rule:
        """The rule of one row of the claims file.

        Args:
            row: The row's entries; those of the rule are read.
            figures: The paper's figures by name.

        Raises:
            ValueError: An unknown kind, a condition that cannot be read, or a rule under which the statement can
                never hold or never fail.
        """
        kind = row["rule"]
        if kind not in KINDS:
            raise ValueError(f"there is no rule '{kind}': choose one of {', '.join(KINDS)}")
        holds, fails = list(row.get("holds", ())), list(row.get("fails", ()))
        if kind == "bound":
            holds += [f"{row['tried']} >= {row.get('least', 1)}", f"{row['violations']} <= 0"]
            fails += [f"{row['violations']} > 0"]
        rule = cls(
            kind=kind,
            holds=tuple(Condition.parse(each) for each in holds),
            fails=tuple(tuple(Condition.parse(one) for one in each.split(" and ")) for each in fails),
            outside=tuple(Condition.parse(each) for each in row.get("outside", ())),
            figures=figures if kind == "figure" else {},
            decides=tuple(row.get("decides", figures if kind == "figure" else ())),
            higher_is_better=row.get("better", "higher") == "higher",
            tolerance=row.get("tolerance", 0.0),
        )
        rule._require_both_ways()
        return rule

    def judge(self, evidence: Mapping[str, Any]) -> Verdict:
        """The verdict on the evidence. Raises KeyError for evidence without a number that the rule reads."""
        if missing := sorted(self.names() - set(evidence)):
            raise KeyError(f"the evidence has no {', '.join(missing)}, which the rule reads")
        if self.outside and all(each.met(evidence) for each in self.outside):
            return "outside class"
        if any(all(each.met(evidence) for each in alternative) for alternative in self.fails):
            return "fails"
        if not all(each.met(evidence) for each in self.holds):
            return "not reached"
        if self.kind != "figure":
            return "holds"
        cells = self.cells(evidence)
        given = {cells[name] for name in self.decides}
        return next(verdict for verdict in _WORST_FIRST if verdict in given)

    def cells(self, evidence: Mapping[str, Any]) -> dict[str, Verdict]:
        """Each figure of the paper with the verdict on the measured value of that name, where it was measured."""
        return {
            name: judge_figure(evidence[name], paper, self.higher_is_better, self.tolerance)
            for name, paper in self.figures.items()
            if name in self.decides or evidence.get(name) is not None
        }

    def names(self) -> set[str]:
        """The numbers that the rule reads."""
        conditions = [*self.holds, *self.outside, *itertools.chain(*self.fails)]
        return {each.name for each in conditions} | set(self.decides)

    def example(self, verdict: Literal["holds", "fails"]) -> dict[str, float] | None:
        """Made-up evidence on which the rule gives this verdict, None where there is none."""
        wanted = [self.holds] if verdict == "holds" else self.fails
        paper = {name: min(_ends(self.figures[name])) for name in self.decides}
        names = sorted({each.name for each in (*self.holds, *self.outside, *itertools.chain(*self.fails))} | set(paper))
        for alternative in wanted:
            columns = [self._values(name, alternative, paper if verdict == "holds" else {}) for name in names]
            for row in itertools.product(*columns):
                evidence = dict(zip(names, row, strict=True))
                given = self.judge(evidence)
                if given == verdict or (verdict == "holds" and given == "exceeds"):
                    return evidence
        return None

    def _values(self, name: str, needed: Sequence[Condition], paper: Mapping[str, float]) -> list[float]:
        """Values of one number that meet its conditions in `needed`: at, between and beyond all its thresholds."""
        if name in paper:
            return [paper[name]]
        every = [*self.holds, *self.outside, *itertools.chain(*self.fails)]
        at = sorted({each.threshold for each in every if each.name == name} or {0.0})
        low, high = _RANGES.get(name.split("_", 1)[0], (-math.inf, math.inf))
        between = [(a + b) / 2 for a, b in itertools.pairwise(at)]
        edges = [max(low, at[0] - 1), min(high, at[-1] + 1)]
        values = [value for value in (*at, *between, *edges) if low <= value <= high]
        own = [each for each in needed if each.name == name]
        return [value for value in dict.fromkeys(values) if all(each.met({name: value}) for each in own)]

    def _require_both_ways(self) -> None:
        if self.kind == "statement" and not self.holds:
            raise ValueError("the rule has no condition under which the statement holds")
        if self.kind == "figure" and not self.decides:
            raise ValueError("the rule names no figure that decides")
        for verdict in ("holds", "fails"):
            if self.example(verdict) is None:  # type: ignore[arg-type]
                raise ValueError(f"no evidence gives the verdict '{verdict}': a rule must be able to say both")


def judge_figure(
    measured: float | None, paper: float | Sequence[float], higher_is_better: bool = True, tolerance: float = 0.0
) -> Verdict:
    """A figure against the paper's figure or [low, high] range, `tolerance` in the figure's own units."""
    if measured is None:
        return "not reached"
    low, high = _ends(paper)
    better, worse = (measured - high, low - measured) if higher_is_better else (low - measured, measured - high)
    if better > tolerance:
        return "exceeds"
    return "not reached" if worse > tolerance else "holds"


def _ends(paper: float | Sequence[float]) -> tuple[float, float]:
    return (paper, paper) if isinstance(paper, int | float) else (min(paper), max(paper))
