"""Constructed weights on many graphs: every count is of errors on all questions, argmax over all tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from headlab.analyses.study.frame import Work
from headlab.analyses.study.record import Measured, Table
from headlab.models.esp.constructed import construct
from headlab.models.esp.evaluation import evaluate
from headlab.models.esp.feedback import minimum_feedback_arc_set
from headlab.models.esp.graphs import BUNDLED, Digraph, read_graph
from headlab.models.esp.task import EspTask

MOST_BITS = 24  # significant bits of float32


def graph_of(config: Mapping[str, Any]) -> Digraph:
    """The graph of a part: as it stood when the plan was made, or a named one."""
    if "labels" not in config:
        return read_graph(config["graph"])
    name = read_graph(config["graph"]).name
    return Digraph(name, tuple(config["labels"]), tuple((tail, head) for tail, head in config["arcs"]))


def constructed(config: Mapping[str, Any], work: Work) -> Measured:
    """One and two constructed heads, tied and untied, on named and random graphs and on the study's own."""
    own, seed = graph_of(config), config["seed"]
    acyclic = [*(read_graph(f"tournament:{n}") for n in config["tournaments"]), *_acyclic(config["acyclic"], seed)]
    complete = [read_graph(f"complete:{n}") for n in config["complete"]]
    real = [own, *(read_graph(name) for name in BUNDLED)]
    anywhere = [*real, *complete, *_multigraphs(config["multigraphs"], seed)]
    wanted = (
        ("E1", "one-head-dag", acyclic, False),
        ("E3", "one-head", anywhere, False),
        ("E4", "two-head", [*complete, *real], False),
        ("E5", "two-head-narrow", [*complete, *real], False),
        ("E6", "two-head", complete, True),
        ("E6", "two-head-narrow", complete, True),
    )
    rows = [row for each in wanted for row in _evaluated(*each)]
    return {"constructed": Table(rows, {"margin": "logits", "errors": "questions"})}


def _evaluated(claim: str, variant: str, graphs: Iterable[Digraph], induction: bool) -> Iterable[dict[str, Any]]:
    for graph in graphs:
        task = EspTask(graph, induction)
        feedback = minimum_feedback_arc_set(graph) if claim == "E3" else None
        for tied in (False, True):
            result = evaluate(construct(task, variant, tied=tied).model, task)
            yield {
                "claim": claim,
                "variant": variant,
                "graph": graph.name,
                "vertices": graph.n,
                "tied": tied,
                "errors": result.errors,
                "margin": result.min_margin,
                "mfas": feedback.upper if feedback and feedback.exact else None,
            }


def _acyclic(count: int, seed: int) -> list[Digraph]:
    graphs = []
    for k in range(count):
        rng = np.random.default_rng((seed, k))
        n = int(rng.integers(4, 16))
        order = rng.permutation(n).tolist()
        arcs = [(order[i], order[j]) for i in range(n) for j in range(i + 1, n) if rng.random() < 0.4]
        graphs.append(_digraph(f"acyclic {k}", n, arcs or [(order[0], order[1])]))
    return graphs


def _multigraphs(count: int, seed: int) -> list[Digraph]:
    graphs = []
    for k in range(count):
        rng = np.random.default_rng((seed, 1000 + k))
        n = int(rng.integers(2, 8))
        ends = [rng.choice(n, 2, replace=False) for _ in range(int(rng.integers(1, 3 * n)))]
        graphs.append(_digraph(f"multigraph {k}", n, [(int(tail), int(head)) for tail, head in ends]))
    return graphs


def _digraph(name: str, n: int, arcs: list[tuple[int, int]]) -> Digraph:
    return Digraph(name, tuple(f"v{v}" for v in range(n)), tuple(arcs))


def precision(config: Mapping[str, Any], work: Work) -> Measured:
    """The fewest significant bits to which every weight of the narrow construction can be rounded, by n."""
    rows = []
    for n in config["sizes"]:
        task = EspTask(read_graph(f"complete:{n}"))
        bits = next((each for each in range(1, MOST_BITS + 1) if errors_at(task, each) == 0), None)
        rows.append({"vertices": n, "bits": bits})
    return {"precision": Table(rows, {"bits": "significant bits of a weight"})}


def errors_at(task: EspTask, bits: int) -> int:
    """Errors of the narrow two-head construction with every weight rounded to `bits` significant bits, in float64."""
    model = construct(task, "two-head-narrow", dtype="float64").model
    with torch.no_grad():
        for weight in model.parameters():
            mantissa, exponent = torch.frexp(weight)
            weight.copy_(torch.ldexp(torch.round(mantissa * 2**bits) / 2**bits, exponent))
    return evaluate(model, task).errors
