"""What a calibration says: rungs passed, the first that breaks, the worst cell, in sentences made from the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from headlab.analyses.calibrate.ladder import NAMES
from headlab.analyses.calibrate.protocol import Calibration, Cell

ORDER = tuple(NAMES)


@dataclass(frozen=True)
class KindSummary:
    """One method under one kind. passed, scored: rungs; first: the first rung that it does not pass, or None."""

    kind: str
    passed: int
    scored: int
    first: str | None
    worst: Cell | None

    @property
    def sentence(self) -> str:
        """In words."""
        if not self.scored:
            return f"{self.kind}: no rung was scored."
        text = f"{self.kind}: passes {self.passed} of {self.scored} rungs"
        if self.first is None or self.worst is None:
            return f"{text}."
        return f"{text}; first breaks at {self.first}. Its worst cell is {worst_sentence(self.worst)}"


def worst_sentence(cell: Cell) -> str:
    """The cell, and which false item came before which true one."""
    if cell.problem:
        return f"{cell.task}, {cell.rung}: {cell.problem}."
    text = f"{cell.task}, {cell.rung}: AUROC {cell.auroc:.2f}"
    if cell.faithfulness is not None:
        text += f", faithfulness {cell.faithfulness:.2f}"
    if cell.auroc is not None and cell.auroc < 1 and cell.last_true and cell.first_false:
        (last, effect), (first, other) = cell.last_true, cell.first_false
        text += f"; it ranks {first} (exact effect {other:.2g}) above {last} ({effect:.2g})"
    return f"{text}."


def by_kind(found: Calibration, method: str) -> list[KindSummary]:
    """Per kind of ablation: a rung is passed where every task and seed of it that was scored is."""
    summaries = []
    for kind in dict.fromkeys(cell.kind for cell in found.cells):
        cells = [c for c in found.select(kind=kind, method=method) if c.rung in ORDER and (c.scored or c.problem)]
        rungs = [rung for rung in ORDER if any(cell.rung == rung for cell in cells)]
        broken = [rung for rung in rungs if any(c.rung == rung and not c.passes for c in cells)]
        worst = min((cell for cell in cells if not cell.passes), key=_badness, default=None)
        first = broken[0] if broken else None
        summaries.append(KindSummary(kind, len(rungs) - len(broken), len(rungs), first, worst))
    return summaries


def _badness(cell: Cell) -> tuple[float, float]:
    if cell.auroc is None:
        return (-1.0, 0.0)
    return (cell.auroc, -1.0 if cell.faithfulness is None else cell.faithfulness)


def cost(found: Calibration, method: str) -> str:
    """Median cost of a cell."""
    cells = [cell for cell in found.select(method=method) if cell.scored]
    if not cells:
        return "no cell was scored"
    seconds, forward, backward = (median(getattr(c, n) for c in cells) for n in ("seconds", "forward", "backward"))
    return f"{seconds:.2g} s, {forward:.3g} forward and {backward:.3g} backward passes a cell (median)"


def quote(found: Calibration, method: str) -> str:
    """One line to quote: rungs passed per kind, and cost. No single grand mean: it would hide kind and rung."""
    parts = [f"{s.kind} {s.passed}/{s.scored}" for s in by_kind(found, method) if s.scored]
    void = sum(cell.state in ("void", "open") for cell in found.select(method=method))
    cells = len(found.select(method=method))
    return (
        f"{method} ({found.level}): rungs passed {', '.join(parts) or 'none'}; {cells - void} of {cells} cells scored; "
        f"{cost(found, method)}"
    )


def mean_of(cells: Sequence[Cell], name: str) -> float | None:
    """The mean of one figure over the cells that have it; faithfulness is clipped at -1, below which all is lost."""
    values = [getattr(cell, name) for cell in cells if getattr(cell, name) is not None]
    return fmean(max(-1.0, value) if name == "faithfulness" else value for value in values) if values else None
