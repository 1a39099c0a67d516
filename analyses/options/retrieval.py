"""Arguments of the retrieval commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from headlab.analyses.options.common import Common


@dataclass(frozen=True)
class BuildOptions:
    """Constructed weights for retrieval: one head per coordinate, or one head that memorises."""

    out: Path
    """Folder of the checkpoint to write."""
    variant: str = "head-per-coordinate"
    """head-per-coordinate, or memorise."""
    coordinates: int = 4
    """Coordinates D of the sum of maxima."""
    length: int = 8
    """Tokens T of a sequence."""
    size: int = 4
    """Dimension d of a token."""
    vectors: Literal["orthonormal", "unit", "gaussian"] = "orthonormal"
    """How the a_i are drawn, with --seed."""
    target: Path | None = None
    """JSON file that describes another target, in the place of coordinates, length, size and vectors."""
    heads: int | None = None
    """Heads; as many as coordinates by default, fewer for the control."""
    beta: float = 1000.0
    """Softmax scale."""
    dtype: Literal["float32", "float64", "float16", "bfloat16"] = "float32"
    """Precision of the weights."""
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class TrainOptions:
    """Learned weights for retrieval."""

    out: Path
    """Folder to write: one checkpoint a seed, and runs.json with the best."""
    coordinates: int = 4
    """Coordinates D of the sum of maxima."""
    length: int = 8
    """Tokens T of a sequence."""
    size: int = 4
    """Dimension d of a token."""
    vectors: Literal["orthonormal", "unit", "gaussian"] = "orthonormal"
    """How the a_i are drawn; the target does not change with --seed, which is that of the weights."""
    target: Path | None = None
    """JSON file that describes another target, in the place of coordinates, length, size and vectors."""
    heads: int | None = None
    """Attention heads a layer; as many as coordinates by default."""
    layers: int = 1
    """Layers."""
    encoder: Literal["linear", "mlp"] = "linear"
    """How tokens are encoded."""
    width: int = 8
    """Numbers n a head."""
    total_width: int | None = None
    """Fixed width of the residual stream, shared among the heads, in the place of --width."""
    seeds: int = 4
    """How many seeds, counted from --seed."""
    recipe: str = "standard"
    """quick, standard or long."""
    steps: int | None = None
    """Steps; the recipe's own number by default."""
    lr: float | None = None
    """Learning rate; the recipe's own by default."""
    examples: int = 8000
    """Sequences to train on."""
    grow: bool = False
    """Begin on the first tokens of each sequence: fewer seeds get stuck on long ones."""
    optimiser: Literal["adam", "gauss-newton"] = "adam"
    """adam, or damped Gauss-Newton on all weights after a short Adam on short sequences (1000 steps at 1e-2 by
    default)."""
    resume: bool = False
    """Go on from the last state that an interrupted run left in --out; finished runs are returned as they are."""
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class StudyOptions:
    """Train, construct, look inside and report: how many heads retrieval needs."""

    out: Path = Path("out/retrieval")
    """Folder of the report; finished trainings in it are taken up, interrupted ones resumed."""
    seeds: int = 4
    """Seeds of each training, at most (2 with --quick); the share of stuck seeds has its own number."""
    quick: bool = False
    """Linear encoder, eight tokens, two seeds; says which claims it skips."""
    synthetic_only: bool = False
    """Leave out images and passages."""
    images: str | None = None
    """Pictures beside the bundled digits: a folder or .zip of train/CLASS/*.jpg and test/CLASS/*.jpg, CIFAR-10's binary
    archive (folder or .tar.gz), or datasets:NAME."""
    passages: str = "installed"
    """Passages: installed (documentation of installed packages), a folder of MS MARCO's files, or datasets:NAME."""
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class HeadsNeeded:
    """How many heads a task needs, read off a table of errors over head counts and lengths."""

    file: Annotated[Path, tyro.conf.Positional]
    """CSV or Parquet: columns heads (or h), error (or nmse) and, where lengths vary, length (or T)."""
    mass: float = 0.9
    """Probability that the set of answers holds."""
    gaps: bool = False
    """Take a table in which some head counts were not measured at every length."""
    common: Common = field(default_factory=Common)
