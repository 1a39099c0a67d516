"""Parity of more than two bits: one step, normalised steps and heads in turn, from every start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import factorial

import numpy as np

from headlab.interp.statistics import Share, share
from headlab.models.xor.descent import descend
from headlab.models.xor.ensemble import draw
from headlab.models.xor.runs import Method
from headlab.models.xor.task import XorTask

STARTS = ("antisymmetric", "independent", "orthogonal")


@dataclass(frozen=True)
class ParityCell:
    """One method at one k, d and start. chance: one-to-one when every head takes a target at random, k! / k^k."""

    heads: int
    bits: int
    start: str
    method: str
    one_to_one: Share
    on_support: Share
    loss: float
    worst_loss: float

    @property
    def chance(self) -> float:
        """k! / k^k."""
        return factorial(self.heads) / self.heads**self.heads


def parity(
    heads: Sequence[int],
    bits: Sequence[int],
    seeds: Sequence[int],
    *,
    methods: Sequence[str] = ("one-step", "normalised", "in-turn"),
    starts: Sequence[str] = STARTS,
    progress: Callable[[], None] = lambda: None,
) -> list[ParityCell]:
    """Every combination; the antisymmetric start is left out where the number of heads is odd."""
    cells = []
    for count in heads:
        for size in bits:
            task = XorTask(size, tuple(range(count)))
            for start in starts:
                if start == "antisymmetric" and count % 2:
                    continue
                for method in methods:
                    plan = Method(method, start=start).plan(task)
                    models = draw(task, width=plan.width, seeds=tuple(seeds), start=start)
                    done = descend(models, plan.rule(task), plan.steps, record=lambda number: False)
                    placed, loss = done.final.placement(), done.loss[-1].clamp(min=0).numpy()
                    cells.append(
                        ParityCell(
                            heads=count,
                            bits=size,
                            start=start,
                            method=method,
                            one_to_one=share(int(placed.one_to_one.sum()), len(seeds)),
                            on_support=share(int(placed.on_support.sum()), len(seeds)),
                            loss=float(np.median(loss)),
                            worst_loss=float(loss.max()),
                        )
                    )
                progress()
    return cells
