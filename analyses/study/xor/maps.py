"""Softmax beside linear and erf attention: one step at the best of shared step sizes, and many steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headlab.analyses.query_alignment import align_ensemble
from headlab.analyses.study.frame import Work
from headlab.analyses.study.record import Measured, Table
from headlab.models.attention_maps import ATTENTION_MAPS
from headlab.models.xor.descent import DescentRule, descend, population_objective, step
from headlab.models.xor.ensemble import Ensemble, draw
from headlab.models.xor.task import XorTask

LEARNED = 0.1  # population loss; 1 is the loss of answering 0
STARTS = ("antisymmetric", "independent")


def maps(config: Mapping[str, Any], work: Work) -> Measured:
    """Every map from both starts. Step sizes are multiples of the gradient, the same for every map."""
    results = [_one(config, start, kind) for start in STARTS for kind in ATTENTION_MAPS]
    units = {"alignment": "0 to 1", "loss": "squared error"}
    return {
        "maps": Table([row for row, _ in results], {"once_best_loss": "squared error", "solved": "steps"}),
        "map_seeds": Table([row for _, rows in results for row in rows], units),
    }


def _alignment(models: Ensemble) -> np.ndarray:
    return np.array([each.alignment for each in align_ensemble(models)])


def _one(config: Mapping[str, Any], start: str, kind: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One step at the size of the largest median alignment; many steps at the size of the smallest median loss."""
    seeds = tuple(range(config["seed"], config["seed"] + config["seeds"]))
    models = draw(XorTask(config["bits"]), width=config["width"], seeds=seeds, start=start, kind=kind)
    _, gradient = population_objective(models)
    once = []
    for size in config["sizes"]:
        after = models.with_queries(step(models, DescentRule("plain", size), gradient))
        once.append((size, _alignment(after), after.loss().numpy()))
    once_size, aligned, loss = max(once, key=lambda row: (np.median(row[1]), -row[0]))
    many = []
    for size in config["coarse"]:
        try:
            descent = descend(
                models.select(range(config["few"])),
                DescentRule("plain", size),
                config["steps"],
                record=lambda number: number & (number - 1) == 0,
            )
        except ValueError:  # it overflows: too large a step for this map
            continue
        many.append((float(np.median(descent.final.loss().numpy())), size, descent))
    _, many_size, best = min(many, key=lambda row: row[:2])
    placed, medians = best.final.placement(), np.median(best.loss.numpy(), axis=1)
    about = {"map": kind, "start": start}
    row = {
        **about,
        "bits": config["bits"],
        "once_size": once_size,
        "once_best_loss": float(min(np.median(each[2]) for each in once)),
        "many_size": many_size,
        "steps": max(best.steps),
        "seeds": config["few"],
        "one_to_one": int(placed.one_to_one.sum()),
        "together": int(placed.together.sum()),
        "solved": next((number for number, each in zip(best.steps, medians, strict=True) if each < LEARNED), None),
    }
    last = zip(seeds, _alignment(best.final), best.final.loss().numpy(), strict=False)
    by_seed = [
        about | {"steps": "one", "seed": k, "alignment": a, "loss": x}
        for k, a, x in zip(seeds, aligned, loss, strict=True)
    ]
    return row, by_seed + [about | {"steps": "many", "seed": k, "alignment": a, "loss": x} for k, a, x in last]
