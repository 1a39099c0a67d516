"""The study from the graph to the report: in which order things are made, and what is written where."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from headlab.analyses import edge_recovery
from headlab.analyses.options.esp import StudyOptions
from headlab.analyses.progress import Report
from headlab.analyses.study.esp.compared import compare_with_construction
from headlab.analyses.study.esp.learned import Study, on_named_graphs, on_the_graph
from headlab.analyses.study.esp.page import build_page, opening
from headlab.analyses.study.esp.pictures import beside_text, draw
from headlab.analyses.study.esp.runs import Runs
from headlab.analyses.study.esp.tables import summary, tables
from headlab.analyses.study.esp.theory import constructed_claims
from headlab.analyses.study.esp.two_heads import look
from headlab.analyses.study.folder import require_folder, write_report
from headlab.interp.errors import RequestError
from headlab.models.checkpoints import versions
from headlab.models.esp.feedback import minimum_feedback_arc_set
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask

QUICK_SEEDS = 8
LEFT_OUT_OF_QUICK = ("E7", "E8", "E9", "E10", "E11", "E12", "E13", "B1", "B2", "B11")
LARGEST_MATRIX = 24  # vertices; beyond it the QK and OV matrices are shown on a smaller graph


def run(options: StudyOptions, report: Report | None = None) -> dict[str, Any]:
    """Do the study and write its folder; returns what results.json holds, with where the report is.

    Raises ValueError for a graph that is none and for a folder that cannot be written; checkpoints that were finished
    before an interruption stay, and no file is left half-written.
    """
    started = time.monotonic()
    graph = read_graph(options.graph, memory=options.memory)
    out = options.out
    require_folder(out)
    seeds = min(options.seeds, QUICK_SEEDS) if options.quick else options.seeds
    if seeds < 2:
        raise RequestError(f"a study needs at least 2 seeds to show a spread, not {seeds}")
    command = _command(options)
    stages = _Stages(report, 7)

    stages.next("minimum feedback arc set")
    task = EspTask(graph)
    mfas = minimum_feedback_arc_set(graph, nodes=options.nodes)
    runs = Runs(options.common, seeds, out / "checkpoints", report)

    stages.next("constructed models")
    methods = runs.constructed(task, mfas)

    stages.next("training")
    methods |= runs.trained(task, mfas)
    two = methods["two-heads"]

    stages.next("two heads under the instruments")
    looks = [look(r.model, task, seed=options.common.seed) for r in two.runs]
    untrained = runs.chance(two, task)
    small_task = task if graph.n <= LARGEST_MATRIX else EspTask(read_graph("click"))
    small = methods if small_task is task else runs.trained(small_task, runs.mfas(small_task.graph), keep=False)
    pair = small["two-heads"]
    assert pair.architecture is not None
    compared = compare_with_construction(
        small_task, [r.model for r in pair.runs], pair.architecture, init_scale=pair.recipe["init_scale"]
    )

    stages.next("claims")
    study = Study(graph, mfas, methods, seeds, command)
    measurements = [*constructed_claims(graph, quick=options.quick, seed=options.common.seed, command=command)]
    measurements += on_the_graph(study)
    if not options.quick:
        measurements += on_named_graphs(study, runs.side)
        measurements.append(edge_recovery.claim(edge_recovery.measure(seed=options.common.seed), command))
    measurements.sort(key=lambda m: (m.id[0] != "E", int(m.id[1:])))
    skipped = [name for name in LEFT_OUT_OF_QUICK if options.quick]

    stages.next("report")
    pictures = draw(task, mfas, methods, looks, untrained, small, small_task, compared)
    odd = sum(r.errors == 0 and (s.score.specialisation or 0) < 0.5 for r, s in zip(two.runs, looks, strict=True))
    page = build_page(
        graph,
        mfas,
        methods,
        pictures,
        measurements,
        skipped,
        small=beside_text(small_task, small) if small is not methods else None,
        similarity=float(np.median([each.in_use for each in compared.seeds])),
        odd=odd,
        footer=f"Offline report, one file, no requests. Made by “{command}” on {options.common.device}.",
    )
    results = {
        **opening(graph, mfas, methods).to_json(),
        "graph": {"name": graph.name, "vertices": graph.n, "arcs": graph.m},
        "mfas": {"lower": mfas.lower, "upper": mfas.upper, "exact": mfas.exact},
        "methods": {key: summary(method) for key, method in methods.items()},
        "specialisation": {
            "trained": [s.score.specialisation for s in looks],
            "untrained": untrained,
            "accurate_but_undivided": odd,
        },
        "comparison": {"graph": small_task.graph.name, "seeds": [vars(each) for each in compared.seeds]},
        "claims": [m.to_json() for m in measurements],
        "skipped": skipped,
        "command": command,
        "device": options.common.device,
        "versions": versions(),
        "seconds": time.monotonic() - started,
    }
    written = write_report(out, page, results, tables(methods, looks, compared, measurements), vars(pictures))
    stages.next("done")
    return written


class _Stages:
    """The study's stages on a progress bar."""

    def __init__(self, report: Report | None, count: int) -> None:
        self.report, self.count, self.done = report, count, -1

    def next(self, name: str) -> None:
        self.done += 1
        if self.report:
            self.report(f"study: {name}", self.done, self.count)


def _command(options: StudyOptions) -> str:
    parts = ["headlab study esp"]
    if options.graph != StudyOptions.graph:
        parts.append(f"--graph {options.graph}")
    if options.quick:
        parts.append("--quick")
    elif options.seeds != StudyOptions.seeds:
        parts.append(f"--seeds {options.seeds}")
    if options.common.seed:
        parts.append(f"--seed {options.common.seed}")
    return " ".join(parts)
