"""All measurements of the study, in order, as one record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import log, sqrt
from pathlib import Path

import numpy as np
from jaxtyping import Float

from headlab.analyses.query_alignment import AlignmentCurve, over_training
from headlab.analyses.study.xor.equality import Equality, equality
from headlab.analyses.study.xor.look import Look, look
from headlab.analyses.study.xor.maps import MapResult, compare_maps
from headlab.analyses.study.xor.networks import Network, networks, smallest_attention
from headlab.analyses.study.xor.one_step import OneStep, one_step
from headlab.analyses.study.xor.parity import ParityCell, parity
from headlab.analyses.study.xor.plan import Plan
from headlab.analyses.study.xor.samples import (
    Exponent,
    SampleCurve,
    exponent,
    many_step_curve,
    one_step_curve,
    sample_curves,
)
from headlab.analyses.xor_scale import Scale, measure_apart
from headlab.interp.roles import score
from headlab.models.checkpoints import load
from headlab.models.xor.architecture import to_model
from headlab.models.xor.ensemble import STARTS, default_width, draw
from headlab.models.xor.runs import Method, train
from headlab.models.xor.task import XorTask

CHANCE_SEEDS = 64
SHOWN_SIZE = 0.5  # kappa of the small steps whose way is shown


@dataclass(frozen=True)
class Samples:
    """Curves of success against the number of samples, and their exponents; `wide` has m = d.

    by_width: one step at one d and several m; support_by_width: how the samples that put every head on some target
    fall with m.
    """

    once: list[SampleCurve]
    many: list[SampleCurve]
    wide: list[SampleCurve]
    by_width: list[SampleCurve]
    once_exponent: Exponent
    support_exponent: Exponent
    many_exponent: Exponent
    wide_exponent: Exponent
    support_by_width: Exponent


@dataclass(frozen=True)
class Results:
    """Everything that was measured; the fields are those of `Plan`, in its order.

    looks: the trained models of the shown size under the instruments, one per seed, all after one step; before: their
    attention before it. traced: one of them in small steps. chance: specialisation of untrained models.
    """

    bars: list[OneStep]
    widths: dict[float, list[OneStep]]
    kappas: list[OneStep]
    starts: dict[str, list[OneStep]]
    scales: list[Scale]
    maps: list[MapResult]
    samples: Samples | None
    parity: list[ParityCell]
    networks: list[Network]
    attention: dict[int, OneStep]
    equality: list[Equality]
    shown: XorTask
    looks: list[Look]
    before: Float[np.ndarray, "seed head position"]
    chance: list[float]
    traced: AlignmentCurve


def measure(plan: Plan, out: Path, *, seed: int = 0, stage: Callable[[str], None] = lambda name: None) -> Results:
    """Measure everything in `plan`; seeds count from `seed`, checkpoints go to `out`. stage: told what begins."""
    stage("equality with the formula")
    equal = equality(plan.equality, seeds=range(seed, seed + 2))

    stage("one step")
    bars = [one_step(bits, default_width(bits), range(seed, seed + count)) for bits, count in plan.bars]
    widths = {
        factor: [
            one_step(bits, max(1, round(factor * log(bits))), _seeds(seed, plan.width_seeds))
            for bits in plan.width_bits
        ]
        for factor in plan.widths
    }
    width = default_width(plan.kappa_bits)
    unit = sqrt(width) * log(plan.kappa_bits)
    kappas = [
        one_step(plan.kappa_bits, width, _seeds(seed, plan.width_seeds), kappa=factor * unit) for factor in plan.kappas
    ]

    stage("starts")
    starts = {
        start: [
            one_step(bits, default_width(bits), _seeds(seed, plan.start_seeds), start=start) for bits in plan.starts
        ]
        for start in STARTS
    }

    stage("a million bits")
    scales = [measure_apart(bits, size, seed) for bits, size in plan.scales]

    stage("attention maps")
    maps = compare_maps(
        plan.maps_bits,
        plan.maps_width,
        _seeds(seed, plan.maps_seeds),
        few=plan.maps_few,
        sizes=plan.maps_sizes,
        coarse=plan.maps_coarse,
        steps=plan.maps_steps,
    )

    stage("finite samples")
    samples = _samples(plan, seed) if plan.one_step_samples else None

    stage("parity of more bits")
    cells = parity(plan.parity_heads, plan.parity_bits, _seeds(seed, plan.parity_seeds), methods=plan.parity_methods)

    stage("feed-forward networks")
    nets = [
        network
        for bits, neurons in plan.networks
        for network in networks([bits], neurons, _seeds(seed, plan.network_seeds), steps=250)
    ]
    smallest = smallest_attention(plan.attention, _seeds(seed, plan.attention_seeds))

    stage("instruments on trained models")
    task = XorTask(plan.shown, (5, plan.shown - 9))
    seeds = _seeds(seed, plan.shown_seeds)
    folder = train(task, Method(), seeds, out / "one-step", dtype="float64")
    looks = [look(load(out / "one-step" / run["dir"]).model, task, seed=seed) for run in folder["runs"]]
    train(task, Method("plain", size=SHOWN_SIZE, steps=32), seeds[:1], out / "small-steps", dtype="float64")
    return Results(
        bars=bars,
        widths=widths,
        kappas=kappas,
        starts=starts,
        scales=scales,
        maps=maps,
        samples=samples,
        parity=cells,
        networks=nets,
        attention=smallest,
        equality=equal,
        shown=task,
        looks=looks,
        before=draw(task, width=default_width(task.bits), seeds=seeds).attention().numpy(),
        chance=_chance(task, seed),
        traced=over_training(out / "small-steps", task.roles(count=8)),
    )


def _seeds(first: int, count: int) -> range:
    return range(first, first + count)


def _samples(plan: Plan, seed: int) -> Samples:
    once = sample_curves(plan.one_step_samples, one_step_curve, first_seed=seed, power=2)
    many = sample_curves(plan.many_step_samples, many_step_curve, first_seed=seed, power=1)
    wide = sample_curves(
        plan.wide_samples, partial(many_step_curve, width_of=lambda bits: bits), first_seed=seed, power=1
    )
    bits, factors = plan.sample_widths_bits, (1 / 64, *(2.0**power for power in range(-5, 3)))
    by_width = [
        one_step_curve(
            bits,
            _seeds(seed, plan.sample_widths_seeds),
            [round(factor * bits**2) for factor in factors],
            width=width,
        )
        for width in plan.sample_widths
    ]
    return Samples(
        by_width=by_width,
        support_by_width=exponent(by_width, which="on_support", by="width", seed=seed),
        once=once,
        many=many,
        wide=wide,
        once_exponent=exponent(once, seed=seed),
        support_exponent=exponent(once, which="on_support", seed=seed),
        many_exponent=exponent(many, seed=seed),
        wide_exponent=exponent(wide, seed=seed),
    )


def _chance(task: XorTask, seed: int) -> list[float]:
    models = draw(task, width=default_width(task.bits), seeds=_seeds(seed + 10_000, CHANCE_SEEDS))
    roles = task.roles(seed=seed, count=8)
    found = [score(to_model(models, row), roles).specialisation for row in range(CHANCE_SEEDS)]
    return [0.0 if value is None else float(value) for value in found]


def median_seed(results: Results) -> int:
    """The row of the trained model of median alignment, the lower one of two."""
    order = np.argsort([each.alignment.alignment for each in results.looks], kind="stable")
    return int(order[(len(order) - 1) // 2])
