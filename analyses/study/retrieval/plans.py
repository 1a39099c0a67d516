"""Every training that the retrieval study needs, by name, with its seeds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headlab.models.hooked import Architecture
from headlab.models.recipe import Recipe
from headlab.models.retrieval.architecture import architecture
from headlab.models.retrieval.family import Family, sum_of_maxima
from headlab.models.retrieval.recipes import recipe
from headlab.models.retrieval.task import RetrievalTask

LENGTHS = (8, 32, 128)
LAYERED_LENGTH = 16  # two layers attend from every token, not from the CLS alone: long sequences take hours
WIDTH = 8  # numbers a head where the total is not fixed
FIXED = {1: 32, 2: 32, 3: 33, 4: 32}  # heads -> total width
DRAWS = (1, 2, 3)


@dataclass(frozen=True)
class Way:
    """One way of training. name: its folder in that of the job. seeds: how many, from the study's seed on.

    recipe, steps, lr, grow: see models.retrieval.recipes. always: whether it has its number of seeds whatever the
    study's is.
    """

    name: str
    seeds: int
    recipe: str = "standard"
    steps: int | None = None
    lr: float | None = None
    grow: bool = False
    always: bool = False

    def plan(self) -> Recipe:
        """As models.training takes it."""
        return recipe(self.recipe, steps=self.steps, lr=self.lr)


@dataclass(frozen=True)
class Job:
    """One cell: a target, an architecture, and the ways in which it is trained, of which the best model counts.

    kind: which table it belongs to. vectors, draw: how the a_i are drawn, and with which seed.
    """

    kind: str
    coordinates: int
    length: int
    heads: int
    ways: tuple[Way, ...]
    encoder: str = "linear"
    layers: int = 1
    total_width: int | None = None
    vectors: str = "orthonormal"
    draw: int = 0

    @property
    def name(self) -> str:
        """The folder of its runs."""
        return f"{self.kind}-D{self.coordinates}-T{self.length}-h{self.heads}"

    def family(self) -> Family:
        """The target."""
        size = max(
            4, self.coordinates
        )  # five directions in four dimensions depend on each other, and four heads do more
        return sum_of_maxima(self.coordinates, self.length, size=size, seed=self.draw, vectors=self.vectors)

    def task(self) -> RetrievalTask:
        """The target as a task."""
        return RetrievalTask(self.family())

    def architecture(self) -> Architecture:
        """The model that is trained."""
        return architecture(
            self.family(), self.heads, encoder=self.encoder, total_width=self.total_width, layers=self.layers
        )


FAST = Way("fast", 3, recipe="quick")
GROWN = Way("grown", 3, steps=2000, lr=1e-2, grow=True)  # fewer seeds get stuck where heads are many, more where few


def jobs(*, quick: bool = False) -> dict[str, Job]:
    """name -> job, in the order in which they are trained: the central tables first.

    quick: the linear encoder at the shortest length alone, with fewer steps.
    """
    if quick:
        way = Way("direct", 2, steps=800, lr=1e-2)
        found = [Job("linear", d, LENGTHS[0], h, (way,)) for d in (2, 3, 4) for h in range(1, d + 2)]
        return {job.name: job for job in found}
    found = [
        *(_linear(4, t, h) for t in LENGTHS for h in range(1, 6)),
        *(_linear(d, t, h) for d in (2, 3, 5) for t in LENGTHS for h in range(1, d + 2) if t == 8 or d - 1 <= h <= d),
        *(_nonlinear(t, h) for t, most in ((8, 5), (128, 4)) for h in range(1, most + 1)),
        *(Job("mlp", 4, 32, h, (GROWN,), encoder="mlp") for h in (3, 4)),
        *(_long(t, steps) for t, steps in ((8, 6000), (128, 10_000))),
        *(Job("mlp", 3, t, h, (replace(GROWN, seeds=2),), encoder="mlp") for t in (8, 128) for h in (2, 3)),
        *(_layered(layers, h) for layers, h in ((1, 2), (1, 4), (2, 1), (2, 2))),
        *(_fixed(t, h) for t in (8, 128) for h in (1, 2, 3)),
        Job("stuck", 4, 128, 4, (Way("direct", 32, always=True),)),
        *(_drawn(draw) for draw in DRAWS),
    ]
    return {job.name: job for job in found}


def _linear(coordinates: int, length: int, heads: int) -> Job:
    """Four seeds where the error falls, two elsewhere."""
    seeds = 4 if coordinates - 1 <= heads <= coordinates else 2
    steps = 2000 if coordinates == 4 or length == LENGTHS[-1] else 1500
    return Job("linear", coordinates, length, heads, (Way("direct", seeds, steps=steps),))


def _nonlinear(length: int, heads: int) -> Job:
    """Four coordinates. Growing sequences help where heads suffice; with two and three both ways are tried."""
    ways = {1: (FAST,), 4: (GROWN,), 5: (GROWN,)}.get(heads, (FAST, GROWN))
    return Job("mlp", 4, length, heads, ways, encoder="mlp")


def _long(length: int, steps: int) -> Job:
    return Job("long", 4, length, 4, (Way("grown", 2, recipe="long", steps=steps, grow=True),), encoder="mlp")


def _fixed(length: int, heads: int) -> Job:
    """Four heads of width 8 are the job of four heads with 32 numbers in all, so that it is not trained twice."""
    ways = (replace(FAST, seeds=2), replace(GROWN, seeds=2))
    return Job("fixed", 4, length, heads, ways, encoder="mlp", total_width=FIXED[heads])


def _layered(layers: int, heads: int) -> Job:
    way = Way("direct", 2, steps=1500, lr=1e-2)
    return Job(f"layers{layers}", 4, LAYERED_LENGTH, heads, (way,), encoder="mlp", layers=layers)


def _drawn(draw: int) -> Job:
    """Three heads and other a_i, of unequal lengths: the paper does not give its own."""
    ways = (replace(GROWN, seeds=1),)
    return Job(f"gaussian{draw}", 4, 128, 3, ways, encoder="mlp", vectors="gaussian", draw=draw)
