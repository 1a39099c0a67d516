"""The study's trainings: done where they are missing, resumed where interrupted, taken up where finished."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headlab.analyses.progress import Report, steps_of
from headlab.analyses.study.tree.plans import Job
from headlab.analyses.study.tree.records import Run, Trained
from headlab.interp.errors import RequestError
from headlab.models.checkpoints import load_runs
from headlab.models.tree.runs import train


def train_jobs(
    jobs: Mapping[str, Job], out: Path, *, seed: int, seeds: int, device: str, report: Report | None = None
) -> dict[str, Trained]:
    """Each job's models in `out`/NAME. seeds: at most so many a job, from `seed` on, but for those that always have
    their own number.

    A folder of finished runs is taken as it is where it holds these seeds. Raises ValueError where it holds others.
    """
    found = {}
    for number, (name, job) in enumerate(jobs.items()):
        wanted = list(range(seed, seed + (job.seeds if job.always else min(job.seeds, seeds))))
        if report:
            report("trainings", number, len(jobs))
        data = _finished(out / name, wanted)
        if data is None:
            data = train(
                job.make(),
                wanted,
                out / name,
                resume=True,
                follow=job.follow,
                device=device,
                progress=steps_of(report, name),
            )
        found[name] = _trained(name, job, data, out / name, wanted)
    return found


def _finished(folder: Path, wanted: list[int]) -> dict[str, Any] | None:
    if not (folder / "runs.json").is_file():
        return None
    data = load_runs(folder)
    missing = sorted(set(wanted) - {row["seed"] for row in data["runs"]})
    if missing:
        raise RequestError(
            f"'{folder}' holds finished runs without seed {missing[0]}: choose another --out, or remove the folder"
        )
    return data


def _trained(name: str, job: Job, data: dict[str, Any], folder: Path, wanted: list[int]) -> Trained:
    runs = [
        Run(
            row["seed"],
            row["paths"],
            row["errors"],
            row["path_accuracy"],
            row["token_accuracy"],
            row["loss"],
            folder / row["dir"],
        )
        for row in data["runs"]
        if row["seed"] in wanted
    ]
    config = job.make().architecture.config
    return Trained(name, config["n_heads"], config["n_layers"], data["runs"][0]["steps"], tuple(runs))
