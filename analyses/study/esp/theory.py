"""The claims that constructed weights decide: every count is of errors on all questions, argmax over all tokens."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from headlab.analyses.claims import Measurement, judge_bound
from headlab.models.esp.constructed import construct
from headlab.models.esp.evaluation import EspEvaluation, evaluate
from headlab.models.esp.feedback import minimum_feedback_arc_set
from headlab.models.esp.graphs import BUNDLED, Digraph, read_graph
from headlab.models.esp.task import EspTask


def constructed_claims(graph: Digraph, *, quick: bool, seed: int, command: str) -> list[Measurement]:
    """E1, E3, E4, E5 and E6: one and two constructed heads, tied and untied, on many graphs and on the study's own."""
    sizes = range(3, 13) if quick else range(3, 21)
    tournaments = [read_graph(f"tournament:{n}") for n in (range(3, 21) if quick else range(3, 61))]
    acyclic = [*tournaments, *_random_acyclic(20 if quick else 60, seed)]
    complete = [read_graph(f"complete:{n}") for n in sizes]
    anywhere = [graph, *map(read_graph, BUNDLED), *complete, *_random_multigraphs(30 if quick else 200, seed)]
    spread = [*complete, *map(read_graph, BUNDLED), graph]
    return [
        _dag(acyclic, command),
        _bound_reached(anywhere, command),
        _two_heads("E4", "two-head", "width n + 3", spread, command),
        _two_heads("E5", "two-head-narrow", "width 5", spread, command),
        _induction(spread[: len(complete)], command),
    ]


def _random_acyclic(count: int, seed: int) -> list[Digraph]:
    made = []
    for k in range(count):
        rng = np.random.default_rng((seed, k))
        n = int(rng.integers(4, 16))
        order = rng.permutation(n).tolist()
        arcs = [(order[i], order[j]) for i in range(n) for j in range(i + 1, n) if rng.random() < 0.4]
        made.append(Digraph(f"acyclic {k}", tuple(f"v{v}" for v in range(n)), tuple(arcs or [(order[0], order[1])])))
    return made


def _random_multigraphs(count: int, seed: int) -> list[Digraph]:
    made = []
    for k in range(count):
        rng = np.random.default_rng((seed, 1000 + k))
        n = int(rng.integers(2, 8))
        ends = [rng.choice(n, 2, replace=False) for _ in range(int(rng.integers(1, 3 * n)))]
        arcs = [(int(tail), int(head)) for tail, head in ends]
        made.append(Digraph(f"multigraph {k}", tuple(f"v{v}" for v in range(n)), tuple(arcs)))
    return made


def _evaluated(
    graphs: Iterable[Digraph], variant: str, *, induction: bool = False
) -> list[tuple[Digraph, EspEvaluation]]:
    found = []
    for graph in graphs:
        task = EspTask(graph, induction)
        for tied in (False, True):
            found.append((graph, evaluate(construct(task, variant, tied=tied).model, task)))
    return found


def _dag(graphs: list[Digraph], command: str) -> Measurement:
    found = _evaluated(graphs, "one-head-dag")
    wrong = sum(result.errors > 0 for _, result in found)
    largest = max(graph.n for graph in graphs)
    return Measurement(
        "E1",
        judge_bound(wrong, len(found)),
        f"{len(found) - wrong} of {len(found)} constructed one-head models make no error ({len(graphs)} acyclic graphs "
        f"up to n = {largest}, tied and untied).",
        {"models": len(found), "with_errors": wrong, "largest_n": largest},
        command,
        paper="theorem, width n + 1",
    )


def _bound_reached(graphs: list[Digraph], command: str) -> Measurement:
    found = _evaluated(graphs, "one-head")
    mfas = {graph: minimum_feedback_arc_set(graph) for graph in graphs}
    exact = [(graph, result) for graph, result in found if mfas[graph].exact]
    off = sum(result.errors != mfas[graph].upper for graph, result in exact)
    graph, result = found[0]
    return Measurement(
        "E3",
        judge_bound(off, len(exact)),
        f"{graph.name}: {result.errors} errors, |MFAS| = {mfas[graph]}; equal, as integers, for "
        f"{len(exact) - off} of {len(exact)} constructed models on {len(graphs)} graphs.",
        {"models": len(exact), "unequal": off, "errors": result.errors, "mfas": mfas[graph].upper},
        command,
        paper="theorem, error |MFAS| / 2m",
    )


def _two_heads(claim: str, variant: str, width: str, graphs: list[Digraph], command: str) -> Measurement:
    found = _evaluated(graphs, variant)
    wrong = sum(result.errors > 0 for _, result in found)
    margin = min(result.min_margin for _, result in found)
    measured = {"models": len(found), "with_errors": wrong, "min_margin": margin}
    summary = (
        f"{len(found) - wrong} of {len(found)} constructed two-head models of {width} make no error (complete "
        f"digraphs to n = {max(g.n for g in graphs if g.name.startswith('complete'))}, the real graphs, tied and "
        f"untied); smallest margin {margin:.3g}."
    )
    if variant == "two-head-narrow":
        half = _evaluated([read_graph("complete:16")], variant)[0][1]
        small = construct(EspTask(read_graph("complete:16")), variant, dtype="float16")
        low = evaluate(small.model, EspTask(read_graph("complete:16")))
        measured |= {"float16_errors_n16": low.errors, "float32_errors_n16": half.errors}
        summary += f" In half precision n = 16 has {low.errors} errors."
    return Measurement(claim, judge_bound(wrong, len(found)), summary, measured, command, paper=f"theorem, {width}")


def _induction(graphs: list[Digraph], command: str) -> Measurement:
    found = [*_evaluated(graphs, "two-head", induction=True), *_evaluated(graphs, "two-head-narrow", induction=True)]
    wrong = sum(result.errors > 0 for _, result in found)
    return Measurement(
        "E6",
        judge_bound(wrong, len(found)),
        f"{len(found) - wrong} of {len(found)} constructed two-head models make no error on (1, a, 2, b, #, i, #); the "
        "one-head bound is the same, since the further tokens never change.",
        {"models": len(found), "with_errors": wrong},
        command,
        paper="corollary",
    )
