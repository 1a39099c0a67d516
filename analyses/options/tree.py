"""Arguments of the tree path-finding commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from headlab.analyses.options.common import Common, PartNames, RecordFolder

Shape = Literal["random", "binary", "path", "caterpillar"]


@dataclass(frozen=True)
class BuildOptions:
    """Constructed weights for path finding in rooted trees."""

    out: Path
    """Folder of the checkpoint to write."""
    variant: str = "forward"
    """backward (goal to root, one head), forward (then root to goal, two heads) or pointer-doubling (root to goal at
    once, one head a layer)."""
    depth: tuple[int, ...] = (5,)
    """Depth of the goal; several are drawn evenly."""
    vocabulary: int = 64
    """Node labels."""
    shape: Shape = "random"
    """random, binary (perfect), path or caterpillar."""
    tree: Path | None = None
    """A file with one tree instead: GraphML, GML, JSON adjacency, or an edge list."""
    goal: str | None = None
    """The goal in that tree, by name; drawn by default."""
    nodes: int | None = None
    """Nodes of random trees; 3 (depth + 1) by default."""
    beta: float = 20.0
    """Attention score of a match, and logit of a right answer."""
    order: Literal["random", "parents-first"] | None = None
    """Order of the edges; parents-first for pointer-doubling, random for the others by default."""
    layers: int | None = None
    """Layers of pointer-doubling; ceil(log2(depth + 1)) + 1 by default."""
    label_width: int | None = None
    """Dimensions of a label; one-hot by default, random near-orthogonal labels where it is less than the labels."""
    dtype: Literal["float32", "float64", "float16", "bfloat16"] = "float32"
    """Precision of the weights."""
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class TrainOptions:
    """Learned weights for path finding in rooted trees, many seeds together."""

    out: Path
    """Folder to write: one checkpoint a seed, and runs.json with the best."""
    direction: Literal["forward", "backward"] = "forward"
    """forward predicts goal to root and back down; backward stops at the root."""
    chain_of_thought: bool = True
    """Without it, forward predicts root to goal at once."""
    form: Literal["pair", "plain"] = "pair"
    """Pair tokens (type, a, b), or plain tokens with one label a position."""
    depth: tuple[int, ...] = (5,)
    """Depth of the goal; several are drawn evenly, or follow one another with --recipe curriculum."""
    vocabulary: int = 64
    """Node labels."""
    shape: Shape = "random"
    """random, binary (perfect), path or caterpillar."""
    tree: Path | None = None
    """A file with one tree instead: GraphML, GML, JSON adjacency, or an edge list."""
    goal: str | None = None
    """The goal in that tree, by name; drawn by default."""
    nodes: int | None = None
    """Nodes of random trees; 3 (depth + 1) by default."""
    split: Literal["labelling", "shape", "labels", "none"] = "labelling"
    """What training never sees and evaluation draws from: an eighth of labelled trees, of shapes, or of labels."""
    recipe: Literal["direct", "curriculum", "plain-descent", "frozen-labels"] = "direct"
    """Adam on the task; on several depths in turn; the paper's gradient descent from zero; fixed label vectors."""
    heads: int = 2
    """Attention heads a layer."""
    layers: int = 1
    """Attention layers."""
    d_model: int = 128
    """Width of the residual stream (the labels decide it with plain-descent and frozen-labels)."""
    d_head: int = 32
    """Width of a head."""
    label_width: int | None = None
    """Dimensions of the fixed labels of frozen-labels; one-hot by default."""
    seeds: int = 5
    """How many seeds, counted from --seed."""
    steps: int | None = None
    """Training steps; the recipe's own number by default (3 : 2 : 2 : .. over the stages of a curriculum)."""
    batch: int | None = None
    """Fresh trees a step; the recipe's own number by default."""
    lr: float | None = None
    """Learning rate; the recipe's own by default."""
    paths: int = 2000
    """Held-out trees that each seed is evaluated on."""
    resume: bool = False
    """Go on from the last state that an interrupted run left in --out."""
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class StudyOptions:
    """Train, construct, look inside and report: path finding in rooted trees."""

    out: Path = Path("out/tree")
    """Folder of the report; finished trainings in it are taken up, interrupted ones resumed."""
    seeds: int = 5
    """Seeds of each training (3 where one takes minutes; 2 with --quick)."""
    quick: bool = False
    """Small depths and two seeds; says which claims it skips."""
    record: RecordFolder = None
    """Draw the record in this folder (or `package`, the one that ships) and measure nothing."""
    parts: PartNames = ()
    """Measure only these parts of the plan, then report on all that the folder holds."""
    common: Common = field(default_factory=Common)
