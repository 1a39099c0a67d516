"""Finite samples: success against their number, and the exponent with which the number needed grows in d."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float

from headlab.analyses.study.frame import Work
from headlab.analyses.study.record import Measured, Table
from headlab.interp.errors import RequestError
from headlab.interp.statistics import Estimate, slope
from headlab.models.xor.descent import DescentRule, descend, step
from headlab.models.xor.ensemble import draw, step_size
from headlab.models.xor.samples import draw_samples, gradients_by_sample_count, sample_objective
from headlab.models.xor.task import XorTask

RESAMPLES = 1000
MOST_NUMBERS = 30_000_000  # of samples held at once: 120 MB in float32


@dataclass(frozen=True)
class SampleCurve:
    """Success of each seed at each number of samples, at one d. one_to_one: each head on a target of its own."""

    bits: int
    width: int
    counts: tuple[int, ...]
    one_to_one: Bool[np.ndarray, "seed count"]
    on_support: Bool[np.ndarray, "seed count"]


@dataclass(frozen=True)
class Exponent:
    """How the samples needed for one half of the seeds grow: n ~ d^value (or m^value).

    value with its bootstrap interval over seeds. needed: bits (or width) -> samples at one half. fit: the least-squares
    slope with its t interval over those sizes, which also feels where the points leave a line.
    """

    value: float
    low: float
    high: float
    level: float
    needed: Mapping[int, float]
    fit: Estimate


def samples(config: Mapping[str, Any], work: Work) -> Measured:
    """Every curve of `curves`, and the exponents with which the samples needed grow over them."""
    first, curves = config["seed"], []
    for each in config["curves"]:
        measure = one_step_curve if each["method"] == "one step" else many_step_curve
        seeds = range(first, first + each["seeds"])
        curves.append(measure(each["bits"], seeds, each["counts"], width=each["width"]))
    rows = [
        {
            "method": each["method"],
            "bits": curve.bits,
            "width": curve.width,
            "samples": count,
            "seeds": len(curve.one_to_one),
            "one_to_one": int(curve.one_to_one[:, k].sum()),
            "on_support": int(curve.on_support[:, k].sum()),
        }
        for each, curve in zip(config["curves"], curves, strict=True)
        for k, count in enumerate(curve.counts)
    ]
    method = config["curves"][0]["method"]
    fits = {(which, by): exponent(curves, which=which, by=by, seed=first) for which, by in config["exponents"]}
    about = {(which, by): {"method": method, "which": which, "by": by} for which, by in fits}
    exponents = [
        about[key] | {"value": fit.value, "low": fit.low, "high": fit.high, "level": fit.level, "fit": fit.fit.value}
        for key, fit in fits.items()
    ]
    needed_rows = [
        about[key] | {"size": size, "samples": count} for key, fit in fits.items() for size, count in fit.needed.items()
    ]
    return {
        "samples": Table(rows),
        "exponents": Table(exponents),
        "samples_needed": Table(needed_rows),
    }


def one_step_curve(
    bits: int, seeds: Sequence[int], counts: Sequence[int], *, width: int, data_seed: int = 0
) -> SampleCurve:
    """One large step on the first n samples, for every n of `counts`, from the antisymmetric start."""
    task = XorTask(bits)
    models = draw(task, width=width, seeds=tuple(seeds), dtype=torch.float32)
    rule = DescentRule("plain", step_size(task, width))
    rows = []
    for _, gradient in gradients_by_sample_count(models, list(counts), seed=data_seed):
        placed = models.with_queries(step(models, rule, gradient)).placement()
        rows.append((placed.one_to_one.numpy(), placed.on_support.numpy()))
    right, support = (np.stack([row[part] for row in rows], axis=1) for part in (0, 1))
    return SampleCurve(bits, width, tuple(counts), right, support)


def many_step_curve(
    bits: int,
    seeds: Sequence[int],
    counts: Sequence[int],
    *,
    width: int,
    steps: int = 150,
    length: float = 0.5,
    data_seed: int = 0,
) -> SampleCurve:
    """Normalised steps on n fixed samples, for every n of `counts`, each n with samples of its own."""
    task = XorTask(bits)
    at_once = max(1, MOST_NUMBERS // (bits * max(counts)))
    right, support = [], []
    for first in range(0, len(seeds), at_once):
        models = draw(task, width=width, seeds=tuple(seeds[first : first + at_once]), dtype=torch.float32)
        rows = []
        for count in counts:
            objective = sample_objective(draw_samples(models, count, seed=data_seed))
            done = descend(
                models, DescentRule("normalised", length), steps, objective=objective, record=lambda number: False
            )
            placed = done.final.placement()
            rows.append((placed.one_to_one.numpy(), placed.on_support.numpy()))
        right.append(np.stack([row[0] for row in rows], axis=1))
        support.append(np.stack([row[1] for row in rows], axis=1))
    return SampleCurve(bits, width, tuple(counts), np.concatenate(right), np.concatenate(support))


def needed(counts: Sequence[int], shares: Float[np.ndarray, " count"], level: float = 0.5) -> float:
    """The number of samples at which the share of successes first reaches `level`; nan where it never does.

    Linear in log n between the counts, on the running maximum of the shares. A share that is there at the first count
    gives that count.
    """
    rising = np.maximum.accumulate(np.asarray(shares, dtype=np.float64))
    above = np.nonzero(rising >= level)[0]
    if not len(above):
        return float("nan")
    index = int(above[0])
    if index == 0:
        return float(counts[0])
    low, high = rising[index - 1], rising[index]
    part = (level - low) / (high - low)
    return float(np.exp((1 - part) * np.log(counts[index - 1]) + part * np.log(counts[index])))


def exponent(
    curves: Sequence[SampleCurve],
    *,
    which: Literal["one_to_one", "on_support"] = "one_to_one",
    by: Literal["bits", "width"] = "bits",
    level: float = 0.5,
    seed: int = 0,
) -> Exponent:
    """The slope of log(samples needed) against log d (or log m), with seeds resampled for its interval.

    Raises ValueError for fewer than three curves, or one on which `level` is never reached.
    """
    if len(curves) < 3:
        raise RequestError(f"an exponent takes at least 3 values of d, not {len(curves)}")
    table = [getattr(curve, which) for curve in curves]
    sizes = [getattr(curve, by) for curve in curves]
    logs = np.log(sizes)
    found = {size: needed(c.counts, t.mean(axis=0), level) for size, c, t in zip(sizes, curves, table, strict=True)}
    for size, count in found.items():
        if not np.isfinite(count):
            raise RequestError(f"a share of {level} is never reached at {by} = {size}: add larger sample counts")
    rng = np.random.default_rng(seed)
    slopes = []
    for _ in range(RESAMPLES):
        drawn = [
            needed(c.counts, t[rng.integers(0, len(t), len(t))].mean(axis=0), level)
            for c, t in zip(curves, table, strict=True)
        ]
        if np.all(np.isfinite(drawn)):
            slopes.append(np.polyfit(logs, np.log(drawn), 1)[0])
    values = np.log(list(found.values()))
    low, high = (float(end) for end in np.quantile(slopes, (0.025, 0.975)))
    value = float(np.polyfit(logs, values, 1)[0])
    return Exponent(value, min(low, value), max(high, value), level, found, slope(logs, values))
