"""Which figures the endpoint selection report holds, and which seeds they show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from headlab.analyses.study.esp import figures
from headlab.analyses.study.esp.compared import Compared
from headlab.analyses.study.esp.page import Pictures
from headlab.analyses.study.esp.records import Method, Run, best_one_head
from headlab.analyses.study.esp.two_heads import TwoHeads, one_arc
from headlab.interp.render import Figure
from headlab.models.esp.feedback import FeedbackArcSet
from headlab.models.esp.graphs import Digraph
from headlab.models.esp.task import EspTask


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


def beside_text(task: EspTask, methods: Mapping[str, Method]) -> tuple[str, str]:
    """Heading and text beside the learned order of the smaller graph."""
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


def draw(
    task: EspTask,
    mfas: FeedbackArcSet,
    methods: Mapping[str, Method],
    looks: Sequence[TwoHeads],
    untrained: Sequence[float],
    small: Mapping[str, Method],
    small_task: EspTask,
    compared: Compared,
) -> Pictures:
    """Every figure of the report from what the study holds."""
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
