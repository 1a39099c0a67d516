"""Every cell of the study, taken up where it is kept, trained where it is not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headlab.analyses.progress import Report
from headlab.analyses.study.folder import write_file
from headlab.analyses.study.retrieval.real.cells import Measured, keep, kept, train_cell
from headlab.analyses.study.retrieval.real.plans import Cell, Family, Plan
from headlab.analyses.study.retrieval.real.sources import Source
from headlab.models.passages.sequences import similarity_accuracy


@dataclass(frozen=True, eq=False)
class Found:
    """All cells of one plan. baseline: length -> how often the passage most like the question is its answer, over the
    questions that are trained on and those held out, by the frozen embeddings alone; passages only."""

    plan: Plan
    source: str
    about: Mapping[str, object]
    cells: Sequence[Measured]
    baseline: Mapping[int, tuple[float, float]]

    def cell(self, family: Family, length: int, heads: int) -> Measured | None:
        """One cell, None where it was not measured."""
        wanted = (family, length, heads)
        return next((m for m in self.cells if (m.cell.family, m.cell.length, m.cell.heads) == wanted), None)

    def heads(self, family: Family) -> list[int]:
        """The head counts measured at some length, ascending."""
        return sorted({m.cell.heads for m in self.cells if m.cell.family == family})

    def lengths(self) -> list[int]:
        """The lengths at which something was measured, ascending."""
        return sorted({m.cell.length for m in self.cells})

    @property
    def seconds(self) -> float:
        """CPU seconds of all trainings; a model that both families share counts once."""
        return sum({m.cell.name: m.seconds for m in self.cells}.values())


def in_turn(plans: Sequence[Plan]) -> list[tuple[Plan, Cell]]:
    """All cells: digits first, then one length of each kind in turn, so that an early stop leaves whole curves."""
    first = [(plan, cell) for plan in plans if plan.kind == "digits" for cell in plan.cells()]
    rest = [plan for plan in plans if plan.kind != "digits"]
    rounds = max((len(plan.sizes) for plan in rest), default=0)
    return first + [
        (plan, cell)
        for turn in range(rounds)
        for plan in rest
        for cell in plan.cells()
        if turn < len(plan.sizes) and cell.size == plan.sizes[turn]
    ]


def measure(
    plans: Sequence[Plan],
    sources: Mapping[str, Source],
    folder: Path,
    *,
    seed: int = 0,
    report: Report | None = None,
    train: bool = True,
    device: str = "cpu",
) -> list[Found]:
    """Train every cell that `folder` does not hold and keep each as soon as it is done; what came of each plan.

    sources: kind -> data. train: False takes what is kept and leaves the other cells out.
    """
    found: dict[str, list[Measured]] = {plan.kind: [] for plan in plans}
    wanted = in_turn(plans)
    for number, (plan, cell) in enumerate(wanted):
        if report:
            report(f"{plan.kind}, T = {cell.length}, {cell.heads} heads", number, len(wanted))
        data, seeds = sources[plan.kind], range(seed, seed + plan.seeds)
        made = kept(folder, cell, plan, data.about, seeds=seeds)
        if made is None and train:
            made = train_cell(cell, plan, data.sequences(cell.size), classes=data.classes, seeds=seeds, device=device)
            keep(folder, made, plan, data.about)
        if made is not None:
            found[plan.kind].append(replace(made, cell=cell))
    return [
        Found(
            plan,
            sources[plan.kind].name,
            sources[plan.kind].about,
            found[plan.kind],
            dict(_baseline(plan, sources[plan.kind], folder, train)),
        )
        for plan in plans
    ]


def _baseline(plan: Plan, data: Source, folder: Path, train: bool) -> Iterator[tuple[int, tuple[float, float]]]:
    if plan.kind != "passages":
        return
    made_of = json.loads(json.dumps({"settings": plan.settings(), "source": dict(data.about)}))
    for size in plan.sizes:
        path = folder / f"passages-T{plan.length(size)}-alike.json"
        known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if known.get("made_of") != made_of:
            if not train:
                continue
            values = similarity_accuracy(data.sequences(size))
            known = {"made_of": made_of, "accuracy": list(values)}
            write_file(path, json.dumps(known, indent=1).encode())
        first, second = known["accuracy"]
        yield plan.length(size), (first, second)
