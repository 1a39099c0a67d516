"""The study from the graph to the report: in which order things are made, and what is written where."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analyses import edge_recovery
from analyses.claims import Measurement
from analyses.commands.progress import Report
from analyses.options.esp import StudyOptions
from analyses.study.esp import figures
from analyses.study.esp.compared import Compared, compare_with_construction
from analyses.study.esp.learned import Study, on_named_graphs, on_the_graph
from analyses.study.esp.page import Pictures, build_page
from analyses.study.esp.records import Method, Run, best_one_head
from analyses.study.esp.runs import Runs
from analyses.study.esp.theory import constructed_claims
from analyses.study.esp.two_heads import TwoHeads, look, one_arc
from analyses.study.folder import require_folder, write_file
from interp.render import Figure
from models.bundle import write_json
from models.checkpoints import versions
from models.esp.feedback import FeedbackArcSet, minimum_feedback_arc_set
from models.esp.graphs import Digraph, read_graph
from models.esp.task import EspTask

QUICK_SEEDS = 8
LEFT_OUT_OF_QUICK = ("E7", "E8", "E9", "E10", "E11", "E12", "E13", "B1", "B2", "B11")
LARGEST_MATRIX = 24  # vertices; beyond it the QK and OV matrices are shown on a smaller graph


def run(options: StudyOptions, report: Report | None = None) -> dict[str, Any]:
    """Do the study and write its folder; returns what results.json holds, with where the report is.

    Raises ValueError for a graph that is none and for a folder that cannot be written; checkpoints that were finished
    before an interruption stay, and no file is left half-written.
    """
    started = time.monotonic()
    graph = read_graph(options.graph)
    out = options.out
    require_folder(out)
    seeds = min(options.seeds, QUICK_SEEDS) if options.quick else options.seeds
    if seeds < 2:
        raise ValueError(f"a study needs at least 2 seeds to show a spread, not {seeds}")
    command = _command(options)
    stages = _Stages(report, 7)

    stages.next("minimum feedback arc set")
    task = EspTask(graph)
    mfas = minimum_feedback_arc_set(graph, time_limit=options.time_limit)
    runs = Runs(options.common, seeds, out / "checkpoints")

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
    pictures = _pictures(task, mfas, methods, looks, untrained, small, small_task, compared)
    odd = sum(r.errors == 0 and (s.score.specialisation or 0) < 0.5 for r, s in zip(two.runs, looks, strict=True))
    page = build_page(
        graph,
        mfas,
        methods,
        pictures,
        measurements,
        skipped,
        small=_beside(small_task, small) if small is not methods else None,
        similarity=float(np.median([each.in_use for each in compared.seeds])),
        odd=odd,
        footer=f"Offline report, one file, no requests. Made by “{command}” on {options.common.device}.",
    )
    tables = _tables(methods, looks, compared, measurements)
    for name, frame in tables.items():
        write_file(out / "tables" / f"{name}.csv", frame.to_csv(index=False).encode())
    for name, figure in vars(pictures).items():
        if figure is not None:
            write_file(out / "figures" / f"{name}.svg", figure.standalone_svg().encode())
    results = {
        "graph": {"name": graph.name, "vertices": graph.n, "arcs": graph.m},
        "mfas": {"lower": mfas.lower, "upper": mfas.upper, "exact": mfas.exact},
        "methods": {key: _summary(method) for key, method in methods.items()},
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
    write_json(out / "results.json", results)
    write_file(out / "index.html", page.encode())
    stages.next("done")
    return results | {"report": str(out / "index.html")}


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


def _median_run(method: Method, looks: Sequence[TwoHeads]) -> int:
    """The position of the seed of median specialisation, the lower one of two."""
    order = sorted(range(len(looks)), key=lambda k: (looks[k].score.specialisation or 0.0, method.runs[k].seed))
    return order[(len(order) - 1) // 2]


def _order_caption(graph: Digraph, method: Method, best: Run) -> str:
    certificate = best.certificate
    assert certificate is not None
    given = len(certificate.given_up or ())
    loose = best.errors - given
    return (
        f"Vertices sorted by the learned potential δ of the best one-head seed ({method.note.split(',')[0]}, "
        f"{100 * best.accuracy:.2f} %). Of its {best.errors} errors, {given} are forced by these backward arcs"
        + (f" and {loose} {'is' if loose == 1 else 'are'} forward arcs with too small a margin." if loose > 0 else ".")
        + " Point at a vertex to see its arcs."
    )


def _beside(task: EspTask, methods: Mapping[str, Method]) -> tuple[str, str]:
    method, best = best_one_head(methods)
    graph, given = task.graph, len(best.certificate.given_up or ()) if best.certificate else 0
    at_best = sum(r.errors == best.errors for r in method.runs)
    return (
        f"The same on {graph.name}, where training finds the best order"
        if best.errors == given and best.certificate and best.certificate.feedback.upper == given
        else f"The same on {graph.name}",
        f"{graph.n} vertices, {graph.m} arcs. The head gives up {given} arcs and stops at {100 * best.accuracy:.2f} %: "
        f"{at_best} of {len(method.runs)} seeds get this far, none passes the ceiling.",
    )


def _pictures(
    task: EspTask,
    mfas: FeedbackArcSet,
    methods: Mapping[str, Method],
    looks: Sequence[TwoHeads],
    untrained: Sequence[float],
    small: Mapping[str, Method],
    small_task: EspTask,
    compared: Compared,
) -> Pictures:
    two = methods["two-heads"]
    middle = _median_run(two, looks)
    shown = looks[middle]
    one, best = best_one_head(methods)
    order = small_order = None
    if mfas.lower and best.certificate is not None and best.certificate.order is not None:
        caption = _order_caption(task.graph, one, best)
        order = figures.learned_order(task.graph, best.certificate, mfas, caption=caption)
        if small is not methods:
            _, small_best = best_one_head(small)
            assert small_best.certificate is not None
            small_order = figures.learned_order(
                small_task.graph, small_best.certificate, small_best.certificate.feedback, caption="", width=620
            )
    logit_parts, pair_parts = one_arc(two.runs[middle].model, task, shown.order, figures.shown_arc(task))
    own = [min(s.attention[0, 0, 0], s.attention[1, 1, 1]) for s in looks if (s.score.specialisation or 0) >= 0.5]
    odd = [
        f"Seed {r.seed} is right without dividing the work (S = {s.score.specialisation:.2f})."
        for r, s in zip(two.runs, looks, strict=True)
        if r.errors == 0 and (s.score.specialisation or 0) < 0.5
    ]
    chance = float(np.median(untrained))
    phases, rule = figures.phases_of(two)
    return Pictures(
        strip=figures.accuracy_strip(
            task.graph, mfas, sorted(methods.values(), key=lambda m: (m.heads, m.constructed))
        ),
        order=order,
        small_order=small_order,
        circuit=figures.two_head_circuit(task, shown, logit_parts, pair_parts),
        attention=figures.attention(shown, min(own, default=0.0), len(own)),
        usage=figures.usage(shown, [s.score.specialisation or 0.0 for s in looks], untrained, odd),
        matrices=_matrices(small_task, compared),
        curves=figures.training_curves(task.graph, mfas, two, one, chance, phases, rule),
    )


def _matrices(task: EspTask, compared: Compared) -> Figure:
    said = [f"similarity QK {qk:.2f} · OV {ov:.2f} · in use {use:.2f}" for qk, ov, use in compared.shown_heads]
    medians = [float(np.median([getattr(each, name) for each in compared.seeds])) for name in ("qk", "ov")]
    caption = (
        f"{task.graph.name}, vocabulary space. Rows are key tokens by position, columns the {task.n} vertex logits. QK "
        "is the score at #, mean removed; OV is what attending to a row adds to each logit, row and column means "
        "removed. “In use” weights OV by attention. Heads are matched before comparing: the index of a head carries no "
        f"meaning. Over {len(compared.seeds)} seeds the median similarity is QK {medians[0]:.2f}, OV {medians[1]:.2f}; "
        f"untrained models have {compared.chance['qk']:.2f} and {compared.chance['ov']:.2f}."
    )
    return figures.matrices(task.graph, compared.learned, compared.built, said, caption)


def _summary(method: Method) -> dict[str, Any]:
    return {
        "heads": method.heads,
        "constructed": method.constructed,
        "recipe": method.recipe,
        "errors": [run.errors for run in method.runs],
        "accuracy": [run.accuracy for run in method.runs],
        "solved": [run.solved for run in method.runs],
        "best": {"seed": method.best.seed, "errors": method.best.errors, "dir": str(method.best.directory)},
        "certificates": [
            None
            if run.certificate is None
            else {
                "in_class": run.certificate.in_class,
                "given_up": None if run.certificate.given_up is None else len(run.certificate.given_up),
                "holds": run.certificate.holds,
            }
            for run in method.runs
        ],
    }


def _tables(
    methods: Mapping[str, Method], looks: Sequence[TwoHeads], compared: Compared, claims: Sequence[Measurement]
) -> dict[str, pd.DataFrame]:
    models = [
        {
            "method": m.key,
            "heads": m.heads,
            "seed": r.seed,
            "errors": r.errors,
            "accuracy": r.accuracy,
            "step": r.step,
            "solved": r.solved,
            "dir": str(r.directory),
        }
        for m in methods.values()
        for r in m.runs
    ]
    seeds = [run.seed for run in methods["two-heads"].runs]
    ablation = [
        {"seed": seed, "kind": kind, "head": head, "selector": level + 1, "accuracy_lost": value}
        for seed, each in zip(seeds, looks, strict=True)
        for kind in each.ablation
        for head, row in (*zip("AB", each.ablation[kind], strict=True), ("A+B", each.together[kind]))
        for level, value in enumerate(row)
    ]
    attribution = [
        {
            "seed": seed,
            "head": "AB"[h],
            "selector": level + 1,
            "position": ("u", "v", "selector", "#")[p],
            "attention": each.attention[h, level, p],
            "attribution": each.attribution[h, level, p],
        }
        for seed, each in zip(seeds, looks, strict=True)
        for h in (0, 1)
        for level in (0, 1)
        for p in range(4)
    ]
    scores = [
        {
            "seed": seed,
            "specialisation": s.score.specialisation,
            "separation": s.score.separation,
            "information": s.score.information,
            "coverage": s.score.coverage,
        }
        for seed, s in zip(seeds, looks, strict=True)
    ]
    curves = [
        {
            "method": m.key,
            "seed": r.seed,
            "step": step,
            "accuracy": m.curves.accuracy[i, k],
            "specialisation": None if m.curves.specialisation is None else m.curves.specialisation[i, k],
        }
        for m in methods.values()
        if m.curves is not None
        for i, r in enumerate(m.runs)
        for k, step in enumerate(m.curves.steps)
    ]
    rows = [
        {
            "id": c.id,
            "verdict": c.verdict,
            "summary": c.summary,
            "paper": c.paper,
            "seeds": c.seeds,
            "low": c.interval[0] if c.interval else None,
            "high": c.interval[1] if c.interval else None,
            "command": c.command,
        }
        for c in claims
    ]
    named = {
        "models": models,
        "ablation": ablation,
        "attribution": attribution,
        "specialisation": scores,
        "comparison": [vars(each) for each in compared.seeds],
        "curves": curves,
        "claims": rows,
    }
    return {name: pd.DataFrame(table) for name, table in named.items()}
