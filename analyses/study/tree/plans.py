"""Every training that the tree study needs, by name, with its seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from headlab.models.tree.recipes import RECIPE, Plan, curriculum, direct, frozen_labels, plain_descent
from headlab.models.tree.source import TreeSource
from headlab.models.tree.task import TreeTask

DEPTHS = (3, 5, 7, 10)
LAYERS = (1, 2, 3, 4, 5, 6)
FOLLOW = 64
WITHOUT_CHAIN = replace(RECIPE, steps=2000, warmup=100, record=40)


@dataclass(frozen=True)
class Job:
    """One training. name: its folder. make: builds the plan. seeds: how many, from the study's seed on.

    follow: trees on which specialisation is followed while training. quick: whether a quick study does it too. always:
    whether it has its number of seeds whatever the study's is.
    """

    name: str
    make: Callable[[], Plan]
    seeds: int
    follow: int = 0
    quick: bool = False
    always: bool = False


def random_trees(depth: int, direction: str = "forward", **more: object) -> TreeTask:
    """Random trees whose shapes are split: an eighth of them is never seen in training."""
    return TreeTask(TreeSource(depths=(depth,), split="shape"), direction, **more)  # type: ignore[arg-type]


def binary_trees(depth: int, labels: int) -> TreeTask:
    """Perfect binary trees, forward; they have one shape, so labelled trees are split."""
    return TreeTask(TreeSource(depths=(depth,), shape="binary", labels=labels))


def jobs() -> dict[str, Job]:
    """name -> job, the cheap and central ones first."""
    found = [
        *(_direct("forward", 2, depth) for depth in DEPTHS),
        *(_direct("backward", 1, depth) for depth in DEPTHS),
        *(_direct("forward", 1, depth) for depth in DEPTHS),
        *(_plain_descent(depth) for depth in (3, 5, 10)),
        Job("control-one-hot-wide", _control, 16, always=True),
        *(_direct("forward", heads, 5) for heads in (4, 6, 8)),
        Job("binary-curriculum-d9", lambda: _binary(1024, (3, 5, 7, 9), (5000, 2500, 1500, 800), (128, 64, 32, 8)), 3),
        Job("unseen-labels", _unseen_labels, 3),
        Job("binary-curriculum-d7", lambda: _binary(256, (3, 5, 7), (3000, 2000, 2000), (64, 32, 16)), 3),
        *(_direct("forward", heads, depth) for heads, depth in ((4, 3), (6, 7), (8, 10), (4, 10))),
        *(_without_chain(layers, depth) for depth in (3, 5, 7) for layers in LAYERS),
        *(_without_chain(layers, 10) for layers in (1, 3, 6)),
        *(_plain_tokens(layers) for layers in (1, 2)),
        _binary_direct(5, 256, steps=4000, batch=32, seeds=3),
        _binary_direct(7, 256, steps=4300, batch=16, seeds=3),
        _binary_direct(9, 1024, steps=5900, batch=8, seeds=1),
    ]
    return {job.name: job for job in found}


def _direct(direction: str, heads: int, depth: int) -> Job:
    name = f"{direction}-h{heads}-d{depth}"
    quick = depth in (3, 5) and (heads == 1 or (direction, heads) == ("forward", 2))
    follow = FOLLOW if heads <= 2 or depth == 5 else 0
    return Job(name, lambda: direct(random_trees(depth, direction), heads=heads), 5 if follow else 3, follow, quick)


def _control() -> Plan:
    """Fixed one-hot labels and heads as wide as the labels are many: one head has room for more than one look-up."""
    return frozen_labels(random_trees(5), d_head=67, recipe=replace(RECIPE, steps=2400))


def _plain_descent(depth: int) -> Job:
    """The paper's training; 32 labels, since every head holds a matrix of the whole residual width."""
    task = TreeTask(TreeSource(depths=(depth,), labels=32, split="shape"))
    return Job(f"plain-descent-d{depth}", lambda: plain_descent(task), 3, FOLLOW, depth == 3)


def _without_chain(layers: int, depth: int) -> Job:
    def make() -> Plan:
        return direct(random_trees(depth, chain_of_thought=False), heads=4, layers=layers, recipe=WITHOUT_CHAIN)

    return Job(f"without-chain-l{layers}-d{depth}", make, 1)


def _plain_tokens(layers: int) -> Job:
    def make() -> Plan:
        return direct(random_trees(3, form="plain"), heads=4, layers=layers, recipe=WITHOUT_CHAIN)

    return Job(f"plain-tokens-l{layers}-d3", make, 2)


def _unseen_labels() -> Plan:
    """Heads have one dimension more than labels, as in the construction: narrower ones confuse labels."""
    task = TreeTask(TreeSource(depths=(5,), labels=512, split="labels"))
    return frozen_labels(task, label_width=34, d_head=35)


def _binary(labels: int, depths: tuple[int, ...], steps: tuple[int, ...], batches: tuple[int, ...]) -> Plan:
    return curriculum([binary_trees(depth, labels) for depth in depths], steps, batches)


def _binary_direct(depth: int, labels: int, *, steps: int, batch: int, seeds: int) -> Job:
    """As many positions as the curriculum up to that depth has seen, all of them at that depth."""

    def make() -> Plan:
        return direct(binary_trees(depth, labels), heads=2, recipe=replace(RECIPE, steps=steps, batch=batch))

    return Job(f"binary-direct-d{depth}", make, seeds)
