"""The study from the trainings to the report: in which order things are made, and what is written where."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from headlab.analyses.bench import generation as bench_generation
from headlab.analyses.claims import Measurement
from headlab.analyses.options.tree import StudyOptions
from headlab.analyses.progress import Report
from headlab.analyses.study.bars import Bar
from headlab.analyses.study.folder import require_folder, write_report
from headlab.analyses.study.tree import figures
from headlab.analyses.study.tree.bars import bars
from headlab.analyses.study.tree.findings import Findings
from headlab.analyses.study.tree.measure import (
    by_depth,
    constructed_score,
    constructed_table,
    guess_rate,
    look,
    other_depth,
    unseen,
    untrained_scores,
)
from headlab.analyses.study.tree.page import build_page, opening
from headlab.analyses.study.tree.plans import jobs
from headlab.analyses.study.tree.records import Look, Run, Trained
from headlab.analyses.study.tree.training import train_jobs
from headlab.analyses.study.tree.verdicts import LEFT_OUT_OF_QUICK, judge
from headlab.analyses.study.tree.circuits import block_cosines
from headlab.interp.errors import RequestError
from headlab.interp.render import Figure
from headlab.models.checkpoints import load_runs, versions
from headlab.models.tree.task import TreeTask

QUICK_SEEDS = 2
LENGTHS = (*range(1, 21), 30, 50)
NINE = "binary-curriculum-d9"


def run(options: StudyOptions, report: Report | None = None) -> dict[str, Any]:
    """Do the study and write its folder; returns what results.json holds, with where the report is.

    Finished trainings in the folder are taken up and interrupted ones go on where they were, to the same result. Raises
    ValueError for fewer than two seeds, and for a folder that cannot be written or holds runs of other seeds.
    """
    started = time.monotonic()
    require_folder(options.out)
    if options.seeds < 2:
        raise RequestError(f"a study needs at least 2 seeds to show a spread, not {options.seeds}")
    found = _find(options, report, started)
    claims, requirements = judge(found), bars(found)
    skipped = list(LEFT_OUT_OF_QUICK) if options.quick else []
    pictures = _pictures(found)
    footer = f"Offline report, one file, no requests. Made by “{found.command}” on {options.common.device}."
    page = build_page(found, pictures, claims, skipped, footer)
    results = {
        **opening(found).to_json(),
        "trainings": {name: _summary(job) for name, job in found.trained.items()},
        "specialisation": {
            "untrained": list(found.untrained),
            **{name: [each.specialisation for each in looks] for name, looks in found.looks.items()},
        },
        "constructed": [asdict(each) for each in found.constructed],
        "length": [row.to_json() for row in found.length],
        "unseen": [asdict(each) for each in found.unseen],
        "plain_descent_cosines": {name: list(rows) for name, rows in found.plain.items()},
        "depth_9_never_trained": {str(stage): list(values) for stage, values in found.never.items()},
        "depth_9_trained": {str(depth): list(values) for depth, values in found.taught.items()},
        "generation": dict(found.generation),
        "bars": [asdict(row) for row in requirements],
        "claims": [row.to_json() for row in claims],
        "skipped": skipped,
        "command": found.command,
        "device": options.common.device,
        "versions": versions(),
        "seconds": time.monotonic() - started,
        "seconds_by_part": dict(found.seconds),
    }
    return write_report(options.out, page, results, _tables(found, claims, requirements), pictures)


def _find(options: StudyOptions, report: Report | None, started: float) -> Findings:
    seed, quick = options.common.seed, options.quick
    seeds = min(options.seeds, QUICK_SEEDS) if quick else options.seeds
    seconds: dict[str, float] = {}

    def part(name: str) -> None:
        seconds[name] = time.monotonic() - started
        if report:
            report("study", len(seconds) - 1, 6)

    part("trainings")
    chosen = {name: job for name, job in jobs().items() if job.quick or not quick}
    trained = train_jobs(
        chosen, options.out / "runs", seed=seed, seeds=seeds, device=options.common.device, report=report
    )
    part("constructed models")
    constructed = constructed_table(quick=quick, seed=seed)
    part("instruments")
    looks = _looks(trained, quick=quick, seed=seed, report=report)
    untrained = untrained_scores(trained["forward-h2-d5"].runs[0], models=16 if quick else 64)
    part("unseen trees")
    count = 100 if quick else 400
    length = by_depth(trained["forward-h2-d5"], (1, 2, 3, 5, 8, 10) if quick else LENGTHS, count=count, seed=seed)
    kinds = {"shapes": "forward-h2-d5", "labels": "unseen-labels", "labellings": "binary-curriculum-d7"}
    beyond = [unseen(trained[name], kind, count=count, seed=seed) for kind, name in kinds.items() if name in trained]
    plain = {
        name: [block_cosines((c := r.load()).model, TreeTask.from_options(c.task_options)) for r in job.runs]
        for name, job in trained.items()
        if name.startswith("plain-descent")
    }
    never, taught = {}, {}
    if NINE in trained:
        never = _never(trained[NINE], options.out / "runs" / NINE, count=400, seed=seed)
        taught = {depth: other_depth(trained[NINE], depth, count=1000, seed=seed) for depth in (5, 7)}
    guess = {
        int(name.rpartition("-d")[2]): guess_rate(int(name.rpartition("-d")[2]), seed=seed)
        for name in trained
        if name.startswith("without-chain")
    }
    part("generation")
    generation = bench_generation.measure(200, 1, pairs=1)
    part("report")
    return Findings(
        constructed=constructed,
        trained=trained,
        looks=looks,
        constructed_score=constructed_score(),
        untrained=untrained,
        length=length,
        unseen=beyond,
        plain=plain,
        never=never,
        taught=taught,
        generation=generation,
        guess=guess,
        command=_command(options),
        quick=quick,
        seeds=seeds,
        seconds=seconds,
    )


def _looks(trained: Mapping[str, Trained], *, quick: bool, seed: int, report: Report | None) -> dict[str, list[Look]]:
    """Every model with roles to look at: forward ones of two heads or more, the control, and those of plain descent."""
    wanted = [
        name
        for name, job in trained.items()
        if (name.startswith("forward") and job.heads > 1) or name.startswith(("plain-descent", "control"))
    ]
    found: dict[str, list[Look]] = {}
    for number, name in enumerate(wanted):
        if report:
            report("instruments", number, len(wanted))
        count, pairs = (64, 32) if quick else (256, 64)
        found[name] = [look(name, each, count=count, pairs=pairs, seed=seed) for each in trained[name].runs]
    return found


def _never(job: Trained, folder: Path, *, count: int, seed: int) -> dict[int, list[float]]:
    """curriculum stage -> path accuracy per seed at depth 9, with the weights from the end of that stage."""
    found = {}
    for stage in (1, 2, 3):
        between = folder / f"after-stage-{stage}"
        rows = load_runs(between)["runs"]
        runs = tuple(Run(row["seed"], 0, 0, 0.0, 0.0, 0.0, between / row["dir"]) for row in rows)
        found[stage] = other_depth(Trained(job.name, job.heads, 1, 0, runs), 9, count=count, seed=seed)
    return found


def _command(options: StudyOptions) -> str:
    parts = ["headlab study tree"]
    if options.quick:
        parts.append("--quick")
    elif options.seeds != StudyOptions.seeds:
        parts.append(f"--seeds {options.seeds}")
    if options.common.seed:
        parts.append(f"--seed {options.common.seed}")
    return " ".join(parts)


def _pictures(found: Findings) -> dict[str, Figure]:
    name = "forward-h2-d5"
    middle, chosen = figures.median_look(found, name)
    small, small_run = figures.median_look(found, "forward-h2-d3")
    checkpoint, small_one = chosen.load(), small_run.load()
    task, small_task = (TreeTask.from_options(each.task_options) for each in (checkpoint, small_one))
    drawn = {
        "accuracy": figures.accuracy_by_depth(found),
        "attention": figures.attention_of(small_one.model, small_task, small),
        "usage": figures.heads_usage(found, middle),
        "phases": figures.training_phases(middle),
        "patched": figures.patched(middle),
        "circuits": figures.circuits_between_labels(checkpoint.model, task, middle),
        "length": figures.other_depths(found),
        "binary": figures.binary_trees(found),
        "layers": figures.layers_without_chain(found),
    }
    return {key: figure for key, figure in drawn.items() if figure is not None}


def _summary(job: Trained) -> dict[str, Any]:
    right, paths = job.pooled
    return {
        "heads": job.heads,
        "layers": job.layers,
        "steps": job.steps,
        "path_accuracy": job.accuracy.tolist(),
        "mean": float(job.accuracy.mean()),
        "lowest": float(job.accuracy.min()),
        "errors": paths - right,
        "paths": paths,
    }


def _tables(found: Findings, claims: Sequence[Measurement], requirements: Sequence[Bar]) -> dict[str, pd.DataFrame]:
    models = [
        {"job": name, "heads": job.heads, "layers": job.layers, "steps": job.steps, **_plain(run)}
        for name, job in found.trained.items()
        for run in job.runs
    ]
    heads = [
        {"job": name, "seed": each.seed, **row}
        for name, looks in found.looks.items()
        for each in looks
        for row in each.heads.to_frame().to_dict("records")
    ]
    looks = [
        {
            "job": name,
            "seed": each.seed,
            "specialisation": each.specialisation,
            "first": each.formation.first,
            "path_lost_without_other_heads": each.heads.path_lost.get(None),
            **{f"recovery {key}": value[0] for key, value in each.recovery.items()},
            **{f"other head {key}": value[1] for key, value in each.recovery.items()},
            **{f"diagonal {key}": value for key, value in each.diagonal.items()},
            **{
                f"{role} without {gone}": each.heads.left(gone, role)
                for role in each.heads.assignment.score.roles
                for gone in each.heads.assignment.score.roles
            },
            **{
                f"{curve} {end}": step
                for curve in each.formation.phases
                for end, step in zip(("from", "to"), each.formation.span(curve), strict=True)
            },
        }
        for name, group in found.looks.items()
        for each in group
    ]
    named = {
        "models": models,
        "heads": heads,
        "instruments": looks,
        "constructed": [asdict(each) for each in found.constructed],
        "length": [{"depth": r.x, "seed": k, "path_accuracy": v} for r in found.length for k, v in enumerate(r.values)],
        "claims": [each.to_row() for each in claims],
        "bars": [asdict(row) for row in requirements],
    }
    return {name: pd.DataFrame(table) for name, table in named.items()}


def _plain(run: Run) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(run).items()}
