"""The four studies, several at once, and the page over them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from joblib import Parallel, delayed

from headlab.analyses.options.all import StudyOptions
from headlab.analyses.progress import Report
from headlab.analyses.study.all.finished import Finished, already, options_of, study
from headlab.analyses.study.all.page import build_page, rows_of
from headlab.analyses.study.folder import require_folder, write_file
from headlab.analyses.study.retrieval.real import wanted_sources
from headlab.analyses.tasks import TASKS
from headlab.interp.errors import RequestError, WorkFailed
from headlab.models.bundle import write_json

REQUEST = "request.json"


def run(options: StudyOptions, report: Report | None = None) -> dict[str, Any]:
    """Do what is not done yet and write `out`/index.html over `out`/SYSTEM/index.html; returns what results.json holds.

    A study that was finished is taken up; one that was interrupted goes on from its own finished trainings. Raises
    ValueError for less than one worker, a folder that cannot be written, and one that holds the studies of another
    request; FileNotFoundError or ValueError for pictures or passages that cannot be read; RuntimeError, after the
    report is written, where a study failed.
    """
    started = time.monotonic()
    if options.workers < 1:
        raise RequestError(f"{options.workers} workers: at least 1 study runs at a time")
    wanted_sources(options_of("retrieval", options))  # a wrong place is said before hours of training
    require_folder(options.out)
    _require_same_request(options)
    found = {system: done for system in TASKS if (done := already(system, options.out / system))}
    waiting = [system for system in sorted(TASKS, key=lambda name: -TASKS[name].minutes) if system not in found]
    if report:
        report("studies", len(found), len(TASKS))
    for done in _side_by_side(waiting, options):
        found[done.system] = done
        if report:
            report("studies", len(found), len(TASKS))
    ordered = [found[system] for system in TASKS]
    results = {
        "claims": rows_of(ordered),
        "skipped": [name for each in ordered if each.results for name in each.results["skipped"]],
        "failed": {each.system: each.failure for each in ordered if each.failure},
        "studies": {
            each.system: {"headline": each.results["headline"], "seconds": each.results["seconds"]}
            for each in ordered
            if each.results
        },
        "command": command_of(options),
        "device": options.common.device,
        "seconds": time.monotonic() - started,
    }
    write_json(options.out / "overview.json", results)
    write_file(options.out / "index.html", build_page(ordered, command_of(options)).encode())
    if results["failed"]:
        told = "; ".join(f"{system}: {sentence}" for system, sentence in results["failed"].items())
        raise WorkFailed(f"not every study was finished ({told}); the others are in '{options.out}'")
    return results | {"report": str(options.out / "index.html")}


def _side_by_side(waiting: list[str], options: StudyOptions) -> Iterator[Finished]:
    """The studies as they finish; in this process where one runs at a time."""
    jobs = (delayed(study)(system, options) for system in waiting)
    workers = min(options.workers, max(1, len(waiting)))
    yield from Parallel(n_jobs=workers, return_as="generator_unordered")(jobs)  # type: ignore[misc]


def _require_same_request(options: StudyOptions) -> None:
    path = options.out / REQUEST
    own = {
        "quick": options.quick,
        "seed": options.common.seed,
        "images": options.images,
        "passages": options.passages,
        "version": version("headlab"),
    }
    if path.is_file():
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            held = None
        if held != own:
            raise RequestError(f"'{options.out}' holds studies of another request ({held}): choose another --out")
    write_json(path, own)


def command_of(options: StudyOptions) -> str:
    """The command line that repeats this."""
    parts = ["headlab study all"]
    if options.quick:
        parts.append("--quick")
    if options.images:
        parts.append(f"--images {options.images}")
    if options.passages != StudyOptions.passages:
        parts.append(f"--passages {options.passages}")
    if options.common.seed:
        parts.append(f"--seed {options.common.seed}")
    return " ".join(parts)
