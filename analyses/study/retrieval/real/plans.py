"""Which models are trained on which data, and how: every cell of the head-count study on real data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from headlab.models.classifier.architecture import class_reader, place_reader, widths
from headlab.models.hooked import Architecture
from headlab.models.passages.docstrings import PACKAGES
from headlab.models.recipe import Recipe

Kind = Literal["digits", "pictures", "passages"]
Family = Literal["growing", "fixed"]
FAMILIES: tuple[Family, ...] = ("growing", "fixed")


@dataclass(frozen=True)
class Plan:
    """The cells of one kind of data and how each is trained.

    sizes: what sets the length, the side of the extended picture or the number of passages. heads: of the growing
    family, `width` numbers a head. fixed: of the control, whose heads share `total` numbers; where both families have
    a head count that makes the same model it is trained once. train, held: sequences. passes over the training
    sequences. rate: the learning rate is rate / sqrt(d_model).
    documents: packages whose documentation gives the passages.
    """

    kind: Kind
    sizes: tuple[int, ...]
    heads: tuple[int, ...]
    fixed: tuple[int, ...]
    width: int
    total: int
    train: int
    held: int
    passes: int
    layers: int
    patch: int = 0
    batch: int = 32
    rate: float = 0.012
    seeds: int = 3
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    documents: tuple[str, ...] = PACKAGES

    def length(self, size: int) -> int:
        """The sequence length T that the claims speak of: patches, or passages."""
        return (size // self.patch) ** 2 if self.patch else size

    def cells(self) -> list[Cell]:
        """Every cell, the short sequences first; where the families share a model it appears in both."""
        return [
            Cell(self.kind, family, size, self.length(size), heads, *self.widths(family, heads))
            for size in self.sizes
            for family, counts in zip(FAMILIES, (self.heads, self.fixed), strict=True)
            for heads in counts
        ]

    def widths(self, family: Family, heads: int) -> tuple[int, int]:
        """(d_model, d_head) of a family's model."""
        return widths(heads, self.width, self.total if family == "fixed" else None)

    def meeting(self) -> int | None:
        """The head count at which both families have the same model, None where there is none."""
        both = [h for h in self.heads if h in self.fixed and self.widths("growing", h) == self.widths("fixed", h)]
        return both[0] if both else None

    def steps(self) -> int:
        """Updates of one training."""
        return max(1, self.passes * self.train // self.batch)

    def recipe(self, cell: Cell) -> Recipe:
        """How a cell is trained; the learning rate falls by a cosine after 5 % of the steps."""
        steps = self.steps()
        return Recipe(
            steps=steps,
            lr=self.rate / cell.model**0.5,
            warmup=steps // 20,
            schedule="cosine",
            final_fraction=0.01,
            batch=self.batch,
            record=1,
        )

    def settings(self) -> dict[str, Any]:
        """What a cell that is kept must have been made with, JSON-ready."""
        named = asdict(self)
        for name in ("sizes", "heads", "fixed", "seeds", "documents"):
            del named[name]
        return named


@dataclass(frozen=True)
class Cell:
    """One architecture on one kind of data at one length. model, head: d_model and d_head."""

    kind: Kind
    family: Family
    size: int
    length: int
    heads: int
    model: int
    head: int

    @property
    def name(self) -> str:
        """Of the file that keeps it: cells with the same model share it."""
        return f"{self.kind}-T{self.length}-h{self.heads}-E{self.model}"

    def architecture(self, *, features: int, classes: int, layers: int) -> Architecture:
        """The model to train: `features` numbers a token."""
        total = None if self.heads * self.head == self.model else self.model
        shape: dict[str, Any] = {"size": features, "length": self.length, "heads": self.heads, "layers": layers}
        if self.kind == "passages":
            return place_reader(**shape, width=self.head, total_width=total)
        return class_reader(**shape, classes=classes, width=self.head, total_width=total)


HEADS = (1, 2, 3, 4, 6, 8, 10, 12)
DIGITS = Plan(
    kind="digits",
    sizes=(8, 10, 12),
    heads=HEADS,
    fixed=(1, 2, 4, 6, 12),
    width=4,
    total=24,
    train=1500,
    held=297,
    passes=4,
    layers=4,
    patch=2,
    precision="float32",
)
PICTURES = Plan(
    kind="pictures",
    sizes=(32, 40, 48),
    heads=HEADS,
    fixed=(1, 2, 4, 6, 12),
    width=16,
    total=96,
    train=800,
    held=500,
    passes=12,
    layers=4,
    patch=8,
)
PASSAGES = Plan(
    kind="passages",
    sizes=(8, 24, 64),
    heads=(1, 2, 4, 6, 8, 10, 12),
    fixed=(1, 2, 6, 12),
    width=16,
    total=96,
    train=600,
    held=300,
    passes=12,
    layers=2,
    batch=16,
)


def plans(*, quick: bool = False, pictures: bool = False) -> list[Plan]:
    """The plans of a study; pictures: whether there are any beside the digits."""
    if not quick:
        return [DIGITS, *([PICTURES] if pictures else []), PASSAGES]
    few = (1, 2, 6)
    digits = replace(DIGITS, sizes=(8, 10), heads=few, fixed=(1, 6), train=500, seeds=2)
    passages = replace(PASSAGES, sizes=(8,), heads=few, fixed=(1, 6), train=300, held=100, passes=6, seeds=2)
    passages = replace(passages, documents=("networkx",))
    some = replace(PICTURES, sizes=(32,), heads=few, fixed=(1, 6), train=400, held=200, passes=8, seeds=2)
    return [digits, *([some] if pictures else []), passages]
