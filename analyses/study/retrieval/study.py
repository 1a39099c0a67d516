"""The study from the trainings to the report: in which order things are made, and what is written where."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from headlab.analyses.claims import Measurement
from headlab.analyses.options.retrieval import StudyOptions
from headlab.analyses.progress import Report
from headlab.analyses.study.bars import Bar
from headlab.analyses.study.folder import require_folder, write_report
from headlab.analyses.study.retrieval import figures
from headlab.analyses.study.retrieval.bars import bars
from headlab.analyses.study.retrieval.findings import Findings
from headlab.analyses.study.retrieval.measure import (
    constructed_pair,
    constructed_table,
    controls,
    four_maxima,
    look,
    memory_table,
    readings,
    trained_pair,
    untrained_scores,
)
from headlab.analyses.study.retrieval.page import build_page, opening
from headlab.analyses.study.retrieval.part import Part
from headlab.analyses.study.retrieval.plans import LENGTHS, jobs
from headlab.analyses.study.retrieval.real import real_part
from headlab.analyses.study.retrieval.records import Look, Pair, Trained
from headlab.analyses.study.retrieval.training import train_jobs
from headlab.analyses.study.retrieval.verdicts import LEFT_OUT_OF_QUICK, REAL, judge
from headlab.interp.errors import RequestError
from headlab.interp.render import Figure
from headlab.interp.statistics import Chance
from headlab.models.checkpoints import versions

QUICK_SEEDS = 2
STAGES = 6


def run(options: StudyOptions, report: Report | None = None) -> dict[str, Any]:
    """Do the study and write its folder; returns what results.json holds, with where the report is.

    Finished trainings in the folder are taken up and interrupted ones go on where they were, to the same result. Raises
    ValueError for fewer than two seeds, and for a folder that cannot be written or holds runs of another request.
    """
    started = time.monotonic()
    require_folder(options.out)
    if options.seeds < 2:
        raise RequestError(f"a study needs at least 2 seeds to show a spread, not {options.seeds}")
    if not options.synthetic_only:
        from headlab.analyses.study.retrieval.real import wanted_sources

        wanted_sources(options)  # a wrong place is said before hours of training
    found = _find(options, report, started)
    part = _real(options, report)
    claims, requirements = [*judge(found), *part.claims], [*bars(found), *part.bars]
    skipped = [*(LEFT_OUT_OF_QUICK if options.quick else ()), *part.skipped]
    pictures = {**_pictures(found), **part.figures}
    footer = f"Offline report, one file, no requests. Made by “{found.command}” on {options.common.device}."
    page = build_page(found, pictures, claims, skipped, part.sections, footer)
    results = {
        **opening(found).to_json(),
        "trainings": {name: _summary(made) for name, made in found.trained.items()},
        "heads_needed": {f"{kind}-D{d}": answer.to_json() for (kind, d), answer in found.readings.items()},
        "controls": {name: answer.to_json() for name, (_, answer) in found.controls.items()},
        "specialisation": {
            "untrained": {str(length): level.to_dict() for length, level in found.untrained.items()},
            **{name: [each.specialisation for each in looks] for name, looks in found.looks.items()},
        },
        "constructed": [asdict(row) for row in found.built],
        "four_maxima": [asdict(row) for row in found.four],
        "memory": [asdict(row) for row in found.memory],
        "pairs": [asdict(row) for row in found.pairs],
        "real": dict(part.results),
        "bars": [asdict(row) for row in requirements],
        "claims": [row.to_json() for row in claims],
        "skipped": skipped,
        "command": found.command,
        "device": options.common.device,
        "versions": versions(),
        "seconds": time.monotonic() - started,
        "seconds_by_part": dict(found.seconds),
    }
    return write_report(options.out, page, results, {**_tables(found, claims, requirements), **part.tables}, pictures)


def _find(options: StudyOptions, report: Report | None, started: float) -> Findings:
    seed, quick = options.common.seed, options.quick
    seeds = min(options.seeds, QUICK_SEEDS) if quick else options.seeds
    seconds: dict[str, float] = {}

    def part(name: str) -> None:
        seconds[name] = time.monotonic() - started
        if report:
            report("study", len(seconds) - 1, STAGES)

    part("trainings")
    trained = train_jobs(
        jobs(quick=quick), options.out / "runs", seed=seed, seeds=seeds, device=options.common.device, report=report
    )
    part("constructed models")
    lengths = LENGTHS[:2] if quick else LENGTHS
    built = constructed_table(quick=quick, seed=seed)
    four = four_maxima(lengths, (10.0, 100.0, 1000.0) if quick else (10.0, 30.0, 100.0, 300.0, 1000.0), seed=seed)
    memory = memory_table(lengths, seed=seed)
    part("pairs of sequences")
    pairs = _pairs(trained, quick=quick, seed=seed, report=report)
    part("roles")
    looks, untrained = _looks(trained, quick=quick, seed=seed, report=report)
    part("report")
    return Findings(
        trained=trained,
        built=built,
        four=four,
        memory=memory,
        pairs=pairs,
        looks=looks,
        untrained=untrained,
        readings=readings(trained),
        controls=controls(trained),
        command=_command(options),
        quick=quick,
        seeds=seeds,
        seconds=seconds,
    )


def _pairs(trained: Mapping[str, Trained], *, quick: bool, seed: int, report: Report | None) -> list[Pair]:
    """Every cell of the linear tables at the shortest length, of the nonlinear ones at every one, and the control."""
    wanted = [
        made
        for made in trained.values()
        if (made.job.kind == "linear" and made.job.length == LENGTHS[0])
        or (made.job.kind == "mlp" and made.job.coordinates == 4)
    ]
    if quick:
        wanted = [made for made in wanted if made.job.coordinates == max(m.job.coordinates for m in wanted)]
    found = []
    for number, made in enumerate(wanted):
        if report:
            report("pairs of sequences", number, len(wanted))
        found.append(trained_pair(made, seed=seed))
    return found + [constructed_pair(heads, seed=seed) for heads in (3, 4)]


def _looks(
    trained: Mapping[str, Trained], *, quick: bool, seed: int, report: Report | None
) -> tuple[dict[str, list[Look]], dict[int, Chance]]:
    """Every model for four coordinates: with a nonlinear encoder, or with a linear one in a quick study."""
    kind = "linear" if quick else "mlp"
    wanted = {n: m for n, m in trained.items() if (m.job.kind, m.job.coordinates) == (kind, 4)}
    found: dict[str, list[Look]] = {}
    untrained: dict[int, Chance] = {}
    for number, (name, made) in enumerate(wanted.items()):
        if report:
            report("roles", number, len(wanted))
        count = 1024 if made.job.length < 64 else 256
        found[name] = [look(made, run, count=count, seed=seed) for run in made.last]
        if made.job.heads == made.job.coordinates:
            untrained[made.job.length] = untrained_scores(made, models=16 if quick else 64, count=count // 4, seed=seed)
    return found, untrained


def _real(options: StudyOptions, report: Report | None) -> Part:
    """What images and passages add."""
    if options.synthetic_only:
        return Part(skipped=REAL)
    return real_part(options, report)


def _command(options: StudyOptions) -> str:
    parts = ["headlab study retrieval"]
    if options.quick:
        parts.append("--quick")
    elif options.seeds != StudyOptions.seeds:
        parts.append(f"--seeds {options.seeds}")
    if options.synthetic_only:
        parts.append("--synthetic-only")
    if options.images is not None:
        parts.append(f"--images {options.images}")
    if options.passages != StudyOptions.passages:
        parts.append(f"--passages {options.passages}")
    if options.common.seed:
        parts.append(f"--seed {options.common.seed}")
    return " ".join(parts)


def _pictures(found: Findings) -> dict[str, Figure]:
    kind = "linear" if found.quick else "mlp"
    drawn = {
        "fall": figures.fall_by_coordinates(found),
        "bound": figures.bound(found),
        "read": figures.read_off(found),
        "witness": figures.witness_pairs(found),
        "division": figures.division(found, kind),
        "usage": figures.usage(found, kind, LENGTHS[0], 4),
        "fewer": figures.usage(found, kind, LENGTHS[0], 3),
    }
    if not found.quick:
        drawn |= {
            "encoders": figures.encoders(found),
            "fixed": figures.fixed_width(found),
            "layers": figures.two_layers(found),
            "stuck": figures.stuck(found),
        }
    return drawn


def _summary(made: Trained) -> dict[str, Any]:
    job = made.job
    return {
        "heads": job.heads,
        "layers": job.layers,
        "length": job.length,
        "coordinates": job.coordinates,
        "encoder": job.encoder,
        "ways": {way.name: {"steps": way.plan().steps, "lr": way.plan().lr, "grow": way.grow} for way in job.ways},
        "nmse": made.errors.tolist(),
        "best": float(made.errors.min()),
        "fresh_nmse": [run.fresh for run in made.runs],
        "stuck": made.stuck.successes,
        "stuck_interval": list(made.stuck.interval),
    }


def _tables(found: Findings, claims: Sequence[Measurement], requirements: Sequence[Bar]) -> dict[str, pd.DataFrame]:
    models = [
        {
            "job": name,
            "kind": made.job.kind,
            "coordinates": made.job.coordinates,
            "length": made.job.length,
            "heads": made.job.heads,
            "layers": made.job.layers,
            "way": run.way,
            "seed": run.seed,
            "nmse": run.nmse,
            "fresh_nmse": run.fresh,
            "steps": run.steps,
            "stuck": run.stuck,
        }
        for name, made in found.trained.items()
        for run in made.runs
    ]
    heads = [
        {"job": name, "seed": each.seed, "specialisation": each.specialisation, "nmse": each.nmse, **row}
        for name, looks in found.looks.items()
        for each in looks
        for row in each.score.to_frame().to_dict("records")
    ]
    alignment = [
        {
            "job": name,
            "seed": each.seed,
            "alignment": each.alignment.alignment,
            "rank": each.alignment.rank,
            "chance_median": each.alignment.chance.median if each.alignment.chance else None,
            "chance_p95": each.alignment.chance.p95 if each.alignment.chance else None,
        }
        for name, looks in found.looks.items()
        for each in looks
    ]
    posterior = [
        {"table": f"{kind}-D{d}", **row}
        for (kind, d), answer in found.readings.items()
        for row in answer.to_frame().to_dict("records")
    ]
    named = {
        "models": models,
        "heads": heads,
        "alignment": alignment,
        "heads_needed": posterior,
        "constructed": [asdict(row) for row in found.built],
        "four_maxima": [asdict(row) for row in found.four],
        "memory": [asdict(row) for row in found.memory],
        "pairs": [asdict(row) for row in found.pairs],
        "claims": [each.to_row() for each in claims],
        "bars": [asdict(row) for row in requirements],
    }
    return {name: pd.DataFrame(table) for name, table in named.items()}
