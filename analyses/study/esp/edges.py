"""Do exact patching and gradient estimates find the true edges of the two-head constructions? (claim B11)

Every cell is one construction, one sink strength M (the larger, the more its softmax is saturated), one kind of
ablation and one method; with weight noise, also one draw of it. Everything is in float64.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from headlab.analyses.study.frame import Work
from headlab.analyses.study.record import Measured, Table
from headlab.interp.errors import UnknownName
from headlab.interp.gradients import estimate_edges
from headlab.interp.interventions import Intervention
from headlab.interp.metrics import Metric
from headlab.interp.model import HookedModel
from headlab.interp.paths import EdgeEffects, patch_edges
from headlab.interp.recovery import recovery
from headlab.models.constructed import Constructed
from headlab.models.esp.circuits import KINDS
from headlab.models.esp.constructed import construct
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask
from headlab.models.task import Examples


def edges(config: Mapping[str, Any], work: Work) -> Measured:
    """Recover the true circuit of every variant, sink strength, kind and method on a complete digraph.

    Weight noise is tried at the largest sink under positional_mean, `draws` times for each size. Scores are means over
    samples of |effect| on the logit difference of target and other endpoint.
    """
    task, seed = EspTask(read_graph(f"complete:{config['vertices']}")), config["seed"]
    examples = task.examples()
    metric = task.metrics(examples)["logit_difference"]
    methods, rows = config["methods"], []
    for variant in config["variants"]:
        for sink in config["sinks"]:
            built = construct(task, variant, sink=sink, dtype="float64")
            for kind in config["kinds"] or KINDS:
                put = intervention(task, examples, kind, seed=seed)
                rows += _rows(built, built.model, examples, metric, put, kind, methods, 0.0, 0)
        built = construct(task, variant, sink=max(config["sinks"]), dtype="float64")
        for noise in config["noises"]:
            for draw in range(config["draws"]):
                put = intervention(task, examples, "positional_mean", seed=seed)
                noisy = _noisy(built.model, noise, seed=seed + draw)
                rows += _rows(built, noisy, examples, metric, put, "positional_mean", methods, noise, draw)
    return {"edges": Table(rows, {"noise": "standard deviation of a weight", "smallest_ratio": "estimate over exact"})}


def intervention(task: EspTask, examples: Examples, kind: str, *, seed: int) -> Intervention:
    """What `kind`, a key of a construction's circuits, puts in place; `resample:SLOT` is the run with it redrawn."""
    if kind == "zero":
        return Intervention("zero")
    if kind in ("positional_mean", "resample"):
        return Intervention(kind, examples.inputs, seed)  # type: ignore[arg-type]
    return Intervention("patch", redrawn(task, examples, kind.partition(":")[2], seed=seed))


def redrawn(task: EspTask, examples: Examples, slot: str, *, seed: int) -> Int[Tensor, "example position"]:
    """The same samples with one slot changed: u or v to another vertex, drawn with `seed`, or the other selector.

    Raises KeyError for a slot that does not exist.
    """
    u, v = task.endpoints(examples)
    selector = examples.factors["selector"]
    other = torch.randint(1, task.n, (len(u),), generator=torch.Generator().manual_seed(seed))
    changed = {"u": (u + other) % task.n, "v": (v + other) % task.n, "selector": 1 - selector}
    if slot not in changed:
        raise UnknownName(f"no slot '{slot}': there are {', '.join(changed)}")
    slots = {"u": u, "v": v, "selector": selector, slot: changed[slot]}
    return task.sequences(slots["u"], slots["v"], slots["selector"])


def _rows(
    built: Constructed,
    model: HookedModel,
    examples: Examples,
    metric: Metric,
    put: Intervention,
    kind: str,
    methods: Sequence[str],
    noise: float,
    draw: int,
) -> Iterator[dict[str, Any]]:
    """One row a method. smallest_ratio: the smallest estimate over the exact effect among true edges."""
    truth = built.circuit(kind)
    exact = patch_edges(model, examples.inputs, metric, put)
    true = torch.tensor([edge in truth.edges for edge in exact.edges])
    for method in methods:
        effects: EdgeEffects = exact
        if method != "exact":
            effects = estimate_edges(model, examples.inputs, metric, put, method=method, edges=exact.edges)
        row = asdict(recovery(effects, truth))
        for name in ("random_auroc", "random_average_precision"):
            chance = row.pop(name)
            row |= {name: chance["mean"], f"{name}_deviation": chance["deviation"]}
        yield {
            "variant": built.variant,
            "sink": float(built.options["sink"]),
            "kind": kind,
            "method": method,
            "noise": noise,
            "draw": draw,
            **row,
            "smallest_ratio": float((effects.scores() / exact.scores())[true].min()),
        }


def _noisy(model: HookedModel, deviation: float, *, seed: int) -> HookedModel:
    generator = torch.Generator().manual_seed(seed)
    noisy: Any = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in noisy.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_((deviation * noise).to(parameter))
    return noisy
