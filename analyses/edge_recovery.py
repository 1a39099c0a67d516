"""Do exact patching and gradient estimates find the true edges of the two-head constructions? (claim B11)

Every cell is one construction, one sink strength M (the larger, the more its softmax is saturated), one kind of
ablation and one method; with weight noise, also one draw of it. Everything is in float64.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from headlab.analyses.claims import Measurement, judge_statement
from headlab.interp.errors import UnknownName
from headlab.interp.gradients import estimate_edges
from headlab.interp.interventions import Intervention
from headlab.interp.metrics import Metric
from headlab.interp.model import HookedModel
from headlab.interp.paths import EdgeEffects, patch_edges
from headlab.interp.recovery import Recovery, recovery
from headlab.interp.statistics import median
from headlab.models.constructed import Constructed
from headlab.models.esp.circuits import KINDS
from headlab.models.esp.constructed import construct
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask
from headlab.models.task import Examples

METHODS = ("exact", "eap", "eap-ig-inputs", "eap-ig-activations")
VARIANTS = ("two-head", "two-head-narrow")
SINKS = (3.0, 8.0, 16.0)
NOISES = (0.003, 0.01, 0.03)
SATURATED_FROM = 8.0


@dataclass(frozen=True)
class Cell:
    """One recovery. noise: standard deviation added to every weight (0 for the construction itself), drawn with `draw`.

    smallest_ratio: the smallest estimate over exact effect among true edges, 1 for exact patching.
    """

    variant: str
    sink: float
    kind: str
    method: str
    noise: float
    draw: int
    recovery: Recovery
    smallest_ratio: float

    def row(self) -> dict[str, Any]:
        """The cell as one flat row of plain values."""
        found = asdict(self.recovery)
        for name in ("random_auroc", "random_average_precision"):
            chance = found.pop(name)
            found |= {name: chance["mean"], f"{name}_deviation": chance["deviation"]}
        own = {name: value for name, value in vars(self).items() if name != "recovery"}
        return {**found, **own, "separation": self.recovery.separation}


@dataclass(frozen=True)
class EdgeRecovery:
    """All cells, and the figures that the bars and the claim look at."""

    cells: tuple[Cell, ...]
    vertices: int

    def select(self, **chosen: Any) -> list[Cell]:
        """The cells whose fields equal `chosen`, e.g. select(method="eap", noise=0.0)."""
        return [cell for cell in self.cells if all(getattr(cell, name) == value for name, value in chosen.items())]

    def lowest_auroc(self, **chosen: Any) -> float:
        """The lowest AUROC among `select(**chosen)`."""
        return min(cell.recovery.auroc for cell in self.select(**chosen))

    def to_frame(self) -> pd.DataFrame:
        """One row per cell."""
        return pd.DataFrame([cell.row() for cell in self.cells])


def measure(
    *,
    variants: Sequence[str] = VARIANTS,
    sinks: Sequence[float] = SINKS,
    kinds: Sequence[str] = KINDS,
    methods: Sequence[str] = METHODS,
    noises: Sequence[float] = NOISES,
    draws: int = 8,
    vertices: int = 8,
    seed: int = 0,
) -> EdgeRecovery:
    """Recover the true circuit of every variant, sink, kind and method on the complete digraph of `vertices`.

    Weight noise is tried at the largest sink under positional_mean, `draws` times for each size. Scores are means over
    samples of |effect| on the logit difference of target and other endpoint.
    """
    task = EspTask(read_graph(f"complete:{vertices}"))
    examples = task.examples()
    metric = task.metrics(examples)["logit_difference"]
    cells: list[Cell] = []
    for variant in variants:
        for sink in sinks:
            built = construct(task, variant, sink=sink, dtype="float64")
            for kind in kinds:
                put = intervention(task, examples, kind, seed=seed)
                cells += _cells(built, built.model, examples, metric, put, kind, methods, 0.0, 0)
        built = construct(task, variant, sink=max(sinks), dtype="float64")
        for noise in noises:
            for draw in range(draws):
                put = intervention(task, examples, "positional_mean", seed=seed)
                noisy = _noisy(built.model, noise, seed=seed + draw)
                cells += _cells(built, noisy, examples, metric, put, "positional_mean", methods, noise, draw)
    return EdgeRecovery(tuple(cells), vertices)


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


def _cells(
    built: Constructed,
    model: HookedModel,
    examples: Examples,
    metric: Metric,
    put: Intervention,
    kind: str,
    methods: Sequence[str],
    noise: float,
    draw: int,
) -> Iterator[Cell]:
    truth = built.circuit(kind)
    exact = patch_edges(model, examples.inputs, metric, put)
    true = torch.tensor([edge in truth.edges for edge in exact.edges])
    for method in methods:
        found: EdgeEffects = exact
        if method != "exact":
            found = estimate_edges(model, examples.inputs, metric, put, method=method, edges=exact.edges)
        ratio = float((found.scores() / exact.scores())[true].min())
        sink = float(built.options["sink"])
        yield Cell(built.variant, sink, kind, method, noise, draw, recovery(found, truth), ratio)


def _noisy(model: HookedModel, deviation: float, *, seed: int) -> HookedModel:
    generator = torch.Generator().manual_seed(seed)
    noisy: Any = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in noisy.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_((deviation * noise).to(parameter))
    return noisy


def claim(found: EdgeRecovery, command: str) -> Measurement:
    """B11: with saturated heads EAP must rank as exact patching does (AUROC .95 or more in every cell), and be wrong in
    size by two orders of magnitude or more for some true edge. It fails where either is plainly not so."""
    saturated = _saturated(found, "eap")
    exact = found.lowest_auroc(method="exact", noise=0.0)
    lowest, ratio = min(c.recovery.auroc for c in saturated), min(c.smallest_ratio for c in saturated)
    noises = sorted({cell.noise for cell in found.cells} - {0.0})
    methods = [method for method in METHODS if found.select(method=method)]
    noisy = {method: {noise: _median(found, method, noise) for noise in noises} for method in methods}
    random = np.mean([cell.recovery.random_auroc.mean for cell in saturated])
    spread = max(cell.recovery.random_auroc.deviation for cell in saturated)
    integrated = [cell for method in METHODS[2:] for cell in _saturated(found, method)]
    over_draws = [cell.recovery.auroc for cell in found.select(method="eap") if noises and cell.noise == noises[0]]
    told = ", ".join(f"{value:.3f} at {noise:g}" for noise, value in noisy["eap"].items())
    return Measurement(
        "B11",
        judge_statement(lowest >= 0.95 and ratio <= 1e-2, contradicted=lowest < 0.8 or ratio > 0.1),
        f"On {len(saturated)} saturated cells EAP ranks with AUROC {lowest:.3f} or more (exact {exact:.3f}, random "
        f"{random:.2f} ± {spread:.2f}), while its smallest estimate of a true edge is {ratio:.1e} of the truth"
        + (f"; with weight noise its median AUROC is {told}." if told else "."),
        {
            "cells": len(saturated),
            "lowest_auroc_exact": exact,
            "lowest_auroc_eap": lowest,
            "lowest_auroc_eap_ig": min((c.recovery.auroc for c in integrated), default=None),
            "smallest_ratio_eap": ratio,
            "smallest_ratio_eap_ig": min((c.smallest_ratio for c in integrated), default=None),
            "median_auroc_by_noise": noisy,
            "random_auroc": float(random),
            "random_deviation": spread,
            "interval_of": f"median AUROC of EAP over draws of weight noise {noises[0]:g}" if noises else None,
            "smallest_separation_exact": min(c.recovery.separation for c in _saturated(found, "exact")),
        },
        command,
        interval=median(over_draws).interval if over_draws else None,
        seeds=len({cell.draw for cell in found.cells if cell.noise}) or None,
    )


def _saturated(found: EdgeRecovery, method: str) -> list[Cell]:
    return [cell for cell in found.select(method=method, noise=0.0) if cell.sink >= SATURATED_FROM]


def _median(found: EdgeRecovery, method: str, noise: float) -> float:
    return float(np.median([cell.recovery.auroc for cell in found.select(method=method, noise=noise)]))
