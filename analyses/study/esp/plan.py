"""What the endpoint selection study measures, part by part: in full, and quickly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headlab.analyses.options.esp import StudyOptions
from headlab.analyses.study.frame import Part, seeds_of
from headlab.models.esp.graphs import read_graph

MODULE = "headlab.analyses.study.esp"
QUICK_SEEDS = 8
SIDE_SEEDS = 8  # of a training on a graph that a claim names
LARGEST_MATRIX = 24  # vertices; beyond it the QK and OV matrices are shown on a smaller graph
SIZES = (5, 10, 15, 20)
REVERSED = (0, 1, 2, 4, 6, 8)  # arcs of a tournament of 8 that are turned round


def plan(options: StudyOptions) -> list[Part]:
    """The parts, in order. Raises ValueError for a graph that cannot be read, or fewer than two seeds."""
    graph, seed, quick = read_graph(options.graph, memory=options.memory), options.common.seed, options.quick
    seeds = seeds_of(options, QUICK_SEEDS)
    # time_limit limits nothing any more; it stays so that the keys of parts that are measured stay.
    about: dict[str, Any] = {"seeds": seeds, "seed": seed, "time_limit": 60.0}
    own = {"graph": options.graph, "labels": list(graph.labels), "arcs": [list(arc) for arc in graph.arcs]}
    small = {**own} if graph.n <= LARGEST_MATRIX else {"graph": "click"}
    parts = [
        Part("constructed", f"{MODULE}.constructed:constructed", {**_constructed(quick), **own, "seed": seed}),
        Part("precision", f"{MODULE}.constructed:precision", {"sizes": (4, 8, 16) if quick else (4, 8, 16, 32, 64)}),
        Part("graph", f"{MODULE}.graph:on_graph", {**own, **about}),
        Part("small-graph", f"{MODULE}.graph:on_small_graph", {**small, **about}),
        Part(
            "induction",
            f"{MODULE}.trainings:trainings",
            {"jobs": _job("E6", ["complete:5"], 1, "gce", min(seeds, SIDE_SEEDS), induction=True), "seed": seed},
        ),
    ]
    if quick:
        return parts
    side = min(seeds, SIDE_SEEDS)
    return [
        *parts,
        Part("trainings", f"{MODULE}.trainings:trainings", {"jobs": _jobs(side), "seed": seed}),
        Part("layer-norm", f"{MODULE}.trainings:layer_norm", {"graph": "complete:5", "seeds": 24, "seed": seed}),
        Part(
            "importance",
            f"{MODULE}.importance:importance",
            {
                "graph": "complete:10",
                "learned": (2, 4),
                "seeds": side,
                "kinds": ("mean",),
                "metrics": ("accuracy", "logit_difference"),
                "seed": seed,
            },
        ),
        Part("edges", f"{MODULE}.edges:edges", {**EDGES, "seed": seed}),
    ]


def _constructed(quick: bool) -> dict[str, Any]:
    return {
        "complete": range(3, 13) if quick else range(3, 21),
        "tournaments": range(3, 21) if quick else range(3, 61),
        "acyclic": 20 if quick else 60,
        "multigraphs": 30 if quick else 200,
    }


def _job(claim: str, graphs: Sequence[str], heads: int, method: str, seeds: int, **more: Any) -> list[dict[str, Any]]:
    about = {"claim": claim, "heads": heads, "method": method, "seeds": seeds, "induction": False}
    return [{**about, "graph": graph, **more} for graph in graphs]


def _jobs(seeds: int) -> list[dict[str, Any]]:
    """Trainings on the graphs that the claims name."""
    tournaments, complete = ([f"{kind}:{n}" for n in SIZES] for kind in ("tournament", "complete"))
    growing = [f"tournament:8:{back}:1" for back in REVERSED]
    return [
        *_job("E7", tournaments, 1, "cross-entropy", seeds),
        *_job("E8", tournaments, 2, "cross-entropy", seeds),
        *_job("E9", ["complete:10"], 1, "cross-entropy", seeds),
        *_job("B2", ["complete:10"], 1, "gce", seeds),
        *_job("E10", complete, 2, "cross-entropy", seeds),
        *_job("E11", growing, 1, "cross-entropy", seeds),
        *_job("E11", growing, 1, "gce", seeds),
        *_job("E12", ["complete:10"], 1, "feed-forward", seeds),
        *_job("E2", ["cycle:5", "cycle:20", "complete:16", "jinja2"], 1, "gce", 4),
    ]


EDGES: dict[str, Any] = {
    "variants": ("two-head", "two-head-narrow"),
    "sinks": (3.0, 8.0, 16.0),
    "kinds": None,
    "methods": ("exact", "eap", "eap-ig-inputs", "eap-ig-activations"),
    "noises": (0.003, 0.01, 0.03),
    "draws": 8,
    "vertices": 8,
}
