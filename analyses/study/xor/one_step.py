"""One population step: how often both heads find a target of their own, from which start, and how sharply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from headlab.interp.statistics import Share, share
from headlab.models.xor.descent import Rule, descend
from headlab.models.xor.ensemble import default_kappa, draw, step_size
from headlab.models.xor.task import XorTask

MOST_NUMBERS = 8_000_000  # of position vectors held at once: 64 MB in float64


@dataclass(frozen=True)
class OneStep:
    """One step from many seeds at one size.

    one_to_one, together (all heads on targets, two of them on one), on_support: shares of seeds with exact intervals.
    loss, attention: after the step, of the one-to-one seeds: population loss, and the smallest share of a head's
    attention on its target. start_loss: median before the step.
    """

    bits: int
    width: int
    start: str
    kappa: float
    seeds: int
    one_to_one: Share
    together: Share
    on_support: Share
    loss: Float[np.ndarray, " success"]
    attention: Float[np.ndarray, " success"]
    start_loss: float


def one_step(
    bits: int,
    width: int,
    seeds: Sequence[int],
    *,
    start: str = "antisymmetric",
    heads: int = 2,
    kappa: float | None = None,
) -> OneStep:
    """Take one step of size kappa (the default of models.xor) from every seed, a few seeds in memory at a time."""
    task = XorTask(bits, tuple(range(heads)))
    kappa = default_kappa(task, width) if kappa is None else kappa
    rule = Rule("plain", step_size(task, width, kappa))
    at_once = max(1, MOST_NUMBERS // (bits * width))
    parts: dict[str, list[np.ndarray]] = {}
    for first in range(0, len(seeds), at_once):
        done = descend(draw(task, width=width, seeds=tuple(seeds[first : first + at_once]), start=start), rule, 1)
        found = done.final.placement()
        measured = {
            "one_to_one": found.one_to_one,
            "together": found.together,
            "on_support": found.on_support,
            "attention": found.at_targets.amin(dim=-1),
            "loss": done.loss[-1].clamp(min=0),
            "start": done.loss[0],
        }
        for name, value in measured.items():
            parts.setdefault(name, []).append(value.numpy())
    whole = {name: np.concatenate(values) for name, values in parts.items()}
    right = whole["one_to_one"]
    return OneStep(
        bits=bits,
        width=width,
        start=start,
        kappa=kappa,
        seeds=len(seeds),
        one_to_one=share(int(right.sum()), len(seeds)),
        together=share(int(whole["together"].sum()), len(seeds)),
        on_support=share(int(whole["on_support"].sum()), len(seeds)),
        loss=whole["loss"][right],
        attention=whole["attention"][right],
        start_loss=float(np.median(whole["start"])),
    )
