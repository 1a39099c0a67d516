"""The part of the retrieval study that is not synthetic: cells, readings, verdicts, figures and text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headlab.analyses.claims import Measurement
from headlab.analyses.options.retrieval import StudyOptions
from headlab.analyses.progress import Report
from headlab.analyses.study.bars import Bar, most
from headlab.analyses.study.retrieval.part import Part
from headlab.analyses.study.retrieval.real import figures
from headlab.analyses.study.retrieval.real.plans import Plan, plans
from headlab.analyses.study.retrieval.real.readings import Deficit, deficits, frame, pooled_width, readings
from headlab.analyses.study.retrieval.real.runs import Found, measure
from headlab.analyses.study.retrieval.real.sources import Source, source
from headlab.analyses.study.retrieval.real.verdicts import (
    figures_of,
    passages_claim,
    pictures_claim,
    points,
    width_claim,
)
from headlab.interp.render import Figure, Section, percent

CLAIMS = ("R8", "R9", "B10")
HOURS = 3.0  # what the study on real data may take, in CPU time


def real_part(options: StudyOptions, report: Report | None = None) -> Part:
    """Measure digits, passages and, where `options.images` names them, pictures; finished cells are taken up.

    Raises FileNotFoundError and ValueError for pictures or passages that cannot be read.
    """
    wanted = asked(options)
    found = measure(
        wanted,
        wanted_sources(options),
        options.out / "real",
        seed=options.common.seed,
        report=report,
        device=options.common.device,
    )
    return part_of(found, command_of(options), quick=options.quick)


def asked(options: StudyOptions) -> list[Plan]:
    """The plans of a request."""
    return [
        replace(plan, seeds=min(plan.seeds, options.seeds))
        for plan in plans(quick=options.quick, pictures=options.images is not None)
    ]


def wanted_sources(options: StudyOptions) -> dict[str, Source]:
    """kind -> the data of a request, found but not read yet.

    Raises FileNotFoundError and ValueError for pictures or passages that cannot be read.
    """
    return {
        plan.kind: source(plan, images=options.images, passages=options.passages, seed=options.common.seed)
        for plan in asked(options)
    }


def part_of(found: Sequence[Found], command: str, *, quick: bool = False) -> Part:
    """What the cells add to the report; claims whose cells were not measured are named as left out."""
    by_kind = {each.plan.kind: each for each in found if each.cells}
    rows = deficits(list(by_kind.values()))
    made: list[Measurement | None] = []
    if "passages" in by_kind and not quick:
        made.append(passages_claim(by_kind["passages"], command))
    if "pictures" in by_kind and not quick:
        made.append(pictures_claim(by_kind["pictures"], command))
    made.append(width_claim(rows, command, seeds=max((each.plan.seeds for each in found), default=0)))
    claims = [each for each in made if each is not None]
    drawn = {f"heads_{kind}": figures.head_curves(each) for kind, each in by_kind.items() if _whole(each)}
    if rows:
        drawn["width"] = figures.width_shares(rows)
    seconds = {kind: each.seconds for kind, each in by_kind.items()}
    hours = sum(seconds.values()) / 3600
    answers = readings(list(by_kind.values()))
    return Part(
        claims=claims,
        bars=[_cost(hours)] if by_kind else [],
        sections=_sections(by_kind, rows, drawn, float(sum(seconds.values()))),
        figures=drawn,
        tables={"real_cells": frame(list(by_kind.values()))} if by_kind else {},
        results={
            "cpu_seconds": seconds,
            "heads_needed": {f"{kind} {family}": answer.to_json() for (kind, family), answer in answers.items()},
            "settings": {each.plan.kind: each.plan.settings() | dict(each.about) for each in found},
            "accuracy": {kind: figures_of(each) for kind, each in by_kind.items()},
        },
        skipped=[name for name in CLAIMS if name not in {claim.id for claim in claims}],
    )


def command_of(options: StudyOptions) -> str:
    """The command that measures the same."""
    parts = ["headlab study retrieval"]
    if options.quick:
        parts.append("--quick")
    if options.images is not None:
        parts.append(f"--images {options.images}")
    if options.passages != StudyOptions.passages:
        parts.append(f"--passages {options.passages}")
    if options.common.seed:
        parts.append(f"--seed {options.common.seed}")
    return " ".join(parts)


def _whole(found: Found) -> bool:
    return bool(found.heads("growing"))


def _cost(hours: float) -> Bar:
    return most("digits, pictures and passages, CPU hours of all trainings", HOURS, [hours])


def _sections(
    by_kind: dict[str, Found], rows: Sequence[Deficit], drawn: dict[str, Figure], seconds: float
) -> list[Section]:
    if not by_kind:
        return []
    share = pooled_width([row for row in rows if row.data != "passages"])
    heading = ["On real data more heads", "fit more of the training set"]
    if share is not None and share.low > 0.5:
        heading = ["On images most of what", "one head lacks is width"]
    elif share is not None and share.high < 0.5:
        heading = ["On images most of what", "one head lacks is heads"]
    return [
        Section(
            "Real data",
            heading,
            f"{heads_or_width(rows)} All trainings took {duration(seconds)} of CPU time.".strip(),
            [drawn[name] for name in ("width", "heads_digits", "heads_pictures", "heads_passages") if name in drawn],
            anchor="real-data",
        )
    ]


def duration(seconds: float) -> str:
    """`40 seconds`, `12 minutes`."""
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def heads_or_width(rows: Sequence[Deficit]) -> str:
    """One sentence a kind of data on what of the one-head deficit is heads and what is width, from the figures."""
    said = []
    for kind in dict.fromkeys(row.data for row in rows):
        mine = [row for row in rows if row.data == kind]
        growing, fixed = (sum(getattr(row, name).value for row in mine) / len(mine) for name in ("growing", "fixed"))
        share = pooled_width(mine)
        told = "nothing of it can be told apart" if share is None else f"{percent(share.value, 0)} of that was width"
        said.append(
            f"{figures.NAMES[kind]}: one head trails {mine[0].heads} heads by {points(growing)} points when heads "
            f"bring their own width, by {points(fixed)} at the same total width: {told}, the rest is heads."
        )
    return " ".join(said)
