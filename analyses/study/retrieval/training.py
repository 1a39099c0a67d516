"""The study's trainings: done where they are missing, resumed where interrupted, taken up where finished."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headlab.analyses.progress import Report, steps_of
from headlab.analyses.study.retrieval.plans import Job, Way
from headlab.analyses.study.retrieval.records import Run, Trained
from headlab.models.retrieval.runs import train_and_save


def train_jobs(
    jobs: Mapping[str, Job], out: Path, *, seed: int, seeds: int, device: str, report: Report | None = None
) -> dict[str, Trained]:
    """Each job's models in `out`/NAME/WAY. seeds: at most so many a way, from `seed` on, but for those that always have
    their own number.

    Finished runs are taken as they are. Raises ValueError where a folder holds runs of another request.
    """
    found = {}
    for number, (name, job) in enumerate(jobs.items()):
        if report:
            report("trainings", number, len(jobs))
        runs: list[Run] = []
        for way in job.ways:
            runs += _train(job, way, out / name / way.name, seed=seed, seeds=seeds, device=device, report=report)
        found[name] = Trained(job, tuple(runs))
    return found


def _train(job: Job, way: Way, folder: Path, *, seed: int, seeds: int, device: str, report: Report | None) -> list[Run]:
    count = way.seeds if way.always else min(way.seeds, seeds)
    data = train_and_save(
        job.task(),
        job.architecture(),
        way.plan(),
        range(seed, seed + count),
        folder,
        grow=way.grow,
        resume=True,
        device=device,
        progress=steps_of(report, job.name),
    )
    return [
        Run(way.name, row["seed"], row["nmse"], row["fresh_nmse"], row["steps"], row["stuck"], folder / row["dir"])
        for row in data["runs"]
    ]
