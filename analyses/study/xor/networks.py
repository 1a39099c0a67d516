"""Parameters: the smallest feed-forward network and the smallest attention model that learn, at each d."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log

from headlab.analyses.study.xor.one_step import OneStep, one_step
from headlab.interp.statistics import Share, share
from headlab.models.xor import feedforward
from headlab.models.xor.task import XorTask

ENOUGH = 0.9  # share of seeds that must learn


@dataclass(frozen=True)
class Network:
    """A hidden layer of `neurons` at d = bits: the share of seeds under the error bar, and the steps they took."""

    bits: int
    neurons: int
    parameters: int
    learned: Share
    steps: tuple[int | None, ...]


def networks(
    bits: Sequence[int],
    neurons: Sequence[int],
    seeds: Sequence[int],
    *,
    steps: int = 400,
    progress: Callable[[], None] = lambda: None,
) -> list[Network]:
    """Train every size; a network has learned once its held-out squared error is under feedforward.SOLVED."""
    found = []
    for size in bits:
        task = XorTask(size)
        for count in neurons:
            _, run = feedforward.train(task, count, tuple(seeds), plan=feedforward.recipe(task, steps=steps))
            learned = sum(solved is not None for solved in run.solved)
            found.append(
                Network(size, count, feedforward.parameters(task, count), share(learned, len(seeds)), tuple(run.solved))
            )
            progress()
    return found


def smallest_networks(found: Sequence[Network]) -> dict[int, Network]:
    """bits -> the network with the fewest parameters that at least 90 % of the seeds learn with."""
    best: dict[int, Network] = {}
    for each in sorted(found, key=lambda network: network.parameters):
        if each.learned.value >= ENOUGH:
            best.setdefault(each.bits, each)
    return best


def smallest_attention(
    bits: Sequence[int], seeds: Sequence[int], *, level: float = 0.75, progress: Callable[[], None] = lambda: None
) -> dict[int, OneStep]:
    """bits -> the smallest width m, in steps of ln d / 4, at which one step succeeds in a share `level` of seeds.

    Widths are tried upwards from ln d / 2 to 16 ln d; bits without such a width are left out.
    """
    best: dict[int, OneStep] = {}
    for size in bits:
        widths = sorted({max(1, round(quarter * log(size) / 4)) for quarter in range(2, 65)})
        for width in widths:
            found = one_step(size, width, seeds)
            if found.one_to_one.value >= level:
                best[size] = found
                break
        progress()
    return best
