"""The endpoint selection report: which figure stands where, and the sentences around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headlab.analyses.claims import Measurement, count_verdicts
from headlab.analyses.study.claims_section import claims_figure, heading_of
from headlab.analyses.study.esp.figures import plural
from headlab.analyses.study.esp.records import Method, best_one_head
from headlab.analyses.study.opening import ByHeads, Opening
from headlab.interp.render import (
    Beside,
    Figure,
    Section,
    bold,
    coloured,
    number,
    percent,
    report_page,
)
from headlab.models.esp.feedback import FeedbackArcSet
from headlab.models.esp.graphs import Digraph

ABOUT = {
    "click": "the import graph of the Python package click",
    "httpx": "the import graph of the Python package httpx",
    "jinja2": "the import graph of the Python package jinja2",
    "rich": "the import graph of the Python package rich",
}
WORDS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve")


@dataclass(frozen=True)
class Pictures:
    """The report's figures by what they show; None for what this run has no figure of."""

    strip: Figure
    order: Figure | None
    small_order: Figure | None
    circuit: Figure
    attention: Figure
    usage: Figure
    matrices: Figure
    curves: Figure


def opening(graph: Digraph, mfas: FeedbackArcSet, methods: Mapping[str, Method]) -> Opening:
    """The headline and its summary."""
    ceiling = 1 - mfas.lower / (2 * graph.m)
    two, (one, _) = methods["two-heads"], best_one_head(methods)
    reach = [coloured("Two", "A"), " ", coloured("heads", "B"), f" reach {_round(max(r.accuracy for r in two.runs))}."]
    if mfas.lower:
        limit = ["One head can never pass ", coloured(percent(ceiling), "one"), "."]
    else:
        limit = ["Without a cycle ", coloured("one head", "one"), " is enough."]
    about = ABOUT.get(graph.name, f"the graph {graph.name}")
    shown = {method.heads: [100 * run.accuracy for run in method.runs] for method in (one, two)}
    return Opening(
        [limit, reach],
        "Give an attention-only transformer an arc of a directed graph and ask for one of its two ends. "
        f"On {about}, the ceiling for one head is a number we can compute before training.",
        ByHeads("questions right, %", shown),
    )


def build_page(
    graph: Digraph,
    mfas: FeedbackArcSet,
    methods: Mapping[str, Method],
    pictures: Pictures,
    measurements: Sequence[Measurement],
    skipped: Sequence[str],
    *,
    small: tuple[str, str] | None,
    similarity: float,
    odd: int,
    footer: str,
) -> str:
    """The page. small: heading and text beside the smaller order. odd: accurate seeds that do not specialise."""
    two = methods["two-heads"]
    lowest_two = min(run.accuracy for run in two.runs)
    counts = count_verdicts(measurements)
    total = sum(counts.values())
    sections = []
    if pictures.order is not None:
        _, best = best_one_head(methods)
        given = len(best.certificate.given_up or ()) if best.certificate else 0
        both = sum(u < v and (v, u) in graph.constraints() for u, v in graph.constraints())
        beside = [Beside(pictures.small_order, small[0], small[1])] if pictures.small_order and small else []
        sections.append(
            Section(
                "What one head learns",
                ["One head must put the vertices", "in a line, and every arc that", "runs backward costs an answer"],
                "Its two selectors act through one number per vertex, so right answers on both ends of u → v force u "
                f"ahead of v. In {graph.name}, {plural(both, 'pair')} of vertices point at each other, and each pair "
                f"must lose an arc. The best trained seed gives up {plural(given, 'arc')}; no order can give up fewer "
                f"than {mfas.lower}.",
                [pictures.order],
                beside=beside,
            )
        )
    sections += [
        Section(
            "What two heads do instead",
            ["The selector switches one head", "on and puts the other to sleep"],
            "With selector 1, head A copies the first endpoint and head B writes almost nothing. With selector 2 they "
            "swap. No order of the vertices is involved, so cycles do no harm.",
            [pictures.circuit],
        ),
        Section(
            "Where they look",
            ["Each head reads its endpoint", "or rests on the selector"],
            f"Attention at the query # averaged over all {number(2 * graph.m)} questions. A head that rests on the "
            "selector copies nothing.",
            [pictures.attention],
        ),
        Section(
            "Who does what",
            "One role per head, far from chance",
            f"{_all_but(odd, len(two.runs))} split the work this way; untrained models of the same shape do not.",
            [pictures.usage],
        ),
        Section(
            "Learned beside constructed",
            ["Training finds the hand-built circuit", "and adds structure of its own"]
            if similarity > 0.5
            else ["Training finds a circuit", "that is not the hand-built one"],
            "Same rows, same columns, same colours: where each head looks (QK) and what it writes (OV), for the "
            "learned model and for the construction.",
            [pictures.matrices],
        ),
        Section(
            "How they get there",
            ["First copy an endpoint,", "then divide the work"],
            "Both models first learn to name one of the two ends, at 50 %. Two heads leave that level by taking a role "
            f"each; one head leaves it by sorting the vertices. The worst two-head seed ends at {percent(lowest_two)}.",
            [pictures.curves],
        ),
        Section(
            "Claims",
            heading_of(counts),
            "Each line compares a statement of the paper with what this machine measured. A verdict is a rule applied "
            "to the number, not an opinion.",
            [claims_figure(measurements, skipped)],
            anchor="claims",
        ),
    ]
    start = opening(graph, mfas, methods)
    return report_page(
        title=f"headlab: endpoint selection on {graph.name}",
        kicker=[bold("headlab"), " study 1, the Endpoint Selection Problem"],
        headline=start.headline,
        summary=start.summary,
        hero=pictures.strip,
        verdicts_label=f"{WORDS[total] if total < len(WORDS) else total} claims tested:",
        verdicts=counts,
        verdicts_link="#claims",
        sections=sections,
        footer=footer,
    )


def _round(accuracy: float) -> str:
    return percent(accuracy, 0) if accuracy == 1 else percent(accuracy)


def _all_but(odd: int, seeds: int) -> str:
    if odd == 0:
        return f"Each head carries one endpoint only. All {seeds} seeds"
    return f"{seeds - odd} of {seeds} seeds divide the work, {odd} {'is' if odd == 1 else 'are'} right without. Most"
