"""Every training that the tree study needs, by name, with its seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from models.tree.recipes import Plan, curriculum, direct, frozen_labels, plain_descent
from models.tree.source import TreeSource
from models.tree.task import TreeTask

DEPTHS = (3, 5, 7, 10)
FOLLOW = 64


@dataclass(frozen=True)
class Job:
    """One training. name: its folder. make: builds the plan. seeds: how many, from the study's seed on.

    follow: trees on which specialisation is followed while training. quick: whether a quick study does it too.
    """

    name: str
    make: Callable[[], Plan]
    seeds: int
    follow: int = 0
    quick: bool = False


def random_trees(depth: int, direction: str = "forward", **more: object) -> TreeTask:
    """Random trees whose shapes are split: an eighth of them is never seen in training."""
    return TreeTask(TreeSource(depths=(depth,), split="shape"), direction, **more)  # type: ignore[arg-type]


def binary_trees(depth: int, labels: int) -> TreeTask:
    """Perfect binary trees, forward; they have one shape, so labelled trees are split."""
    return TreeTask(TreeSource(depths=(depth,), shape="binary", labels=labels))


def jobs() -> dict[str, Job]:
    """name -> job, the cheap and central ones first."""
    found = [
        *(_direct("forward", heads, depth) for depth in DEPTHS for heads in (2,)),
        *(_direct("backward", 1, depth) for depth in DEPTHS),
        *(_direct("forward", 1, depth) for depth in DEPTHS),
        *(_direct("forward", heads, 5) for heads in (4, 6, 8)),
        *(_direct("forward", heads, depth) for heads, depth in ((4, 3), (6, 7), (4, 10), (8, 10))),
        Job("control-one-hot-wide", lambda: frozen_labels(random_trees(5), d_head=67), 5, FOLLOW, quick=True),
        *(
            Job(
                f"plain-descent-d{depth}",
                lambda depth=depth: plain_descent(_small_labels(depth)),
                3,
                FOLLOW,
                depth == 3,
            )
            for depth in (3, 5, 10)
        ),
        Job("unseen-labels", _unseen_labels, 3),
        Job("binary-curriculum-d7", lambda: _binary(256, (3, 5, 7), (3000, 2000, 2000), (64, 32, 16)), 3),
        Job("binary-curriculum-d9", lambda: _binary(1024, (3, 5, 7, 9), (5000, 2500, 1500, 800), (128, 64, 32, 8)), 3),
    ]
    return {job.name: job for job in found}


def _direct(direction: str, heads: int, depth: int) -> Job:
    name = f"{direction}-h{heads}-d{depth}"
    quick = depth in (3, 5) and (heads == 1 or (direction, heads) == ("forward", 2))
    return Job(name, lambda: direct(random_trees(depth, direction), heads=heads), 5, FOLLOW, quick)


def _small_labels(depth: int) -> TreeTask:
    return TreeTask(TreeSource(depths=(depth,), labels=32, split="shape"))


def _unseen_labels() -> Plan:
    task = TreeTask(TreeSource(depths=(5,), labels=512, split="labels"))
    return frozen_labels(task, label_width=34)


def _binary(labels: int, depths: tuple[int, ...], steps: tuple[int, ...], batches: tuple[int, ...]) -> Plan:
    return curriculum([binary_trees(depth, labels) for depth in depths], steps, batches)
