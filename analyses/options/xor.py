"""Arguments of the sparse parity commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from headlab.analyses.options.common import Common, PartNames, RecordFolder


@dataclass(frozen=True)
class BuildOptions:
    """Constructed weights for sparse XOR and sparse parity: the limit solution."""

    out: Path
    """Folder of the checkpoint to write."""
    variant: str = "limit"
    """limit: each query along one target's position vector."""
    bits: int = 64
    """Bits d of an input."""
    width: int | None = None
    """Size m of position vectors and queries; 6 ln d by default."""
    targets: tuple[int, ...] = (0, 1)
    """Positions whose parity is asked for, counted from 0; one head each."""
    scale: float | None = None
    """Length K of the queries; by default what leaves 1e-9 of a head's attention elsewhere."""
    dtype: Literal["float32", "float64", "float16", "bfloat16"] = "float32"
    """Precision of the weights."""
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class TrainOptions:
    """Learned weights for sparse XOR and sparse parity."""

    out: Path
    """Folder to write: one checkpoint a seed, and runs.json with the best."""
    bits: int = 64
    """Bits d of an input."""
    width: int | None = None
    """Size m of position vectors and queries; 6 ln d by default."""
    targets: tuple[int, ...] | None = None
    """Positions whose parity is asked for, counted from 0; the first --heads positions by default."""
    heads: int | None = None
    """Attention heads: as many as targets, 2 by default."""
    seeds: int = 8
    """How many seeds, counted from --seed."""
    method: Literal["auto", "one-step", "plain", "normalised", "in-turn", "feed-forward"] = "auto"
    """auto: one large population step for two targets, normalised steps for more."""
    size: float | None = None
    """kappa of a plain step (how far it first moves a target's score), or the length of a normalised one."""
    steps: int | None = None
    """Training steps; the method's own number by default."""
    start: Literal["auto", "antisymmetric", "independent", "orthogonal", "equal"] = "auto"
    """How the queries start; auto: antisymmetric for two heads, independent for others."""
    attention: Literal["softmax", "linear", "erf", "normalised-linear", "normalised-erf"] = "softmax"
    """How attention weights come from scores."""
    samples: int | None = None
    """Train on that many fixed samples instead of the exact population loss."""
    neurons: int = 4
    """Hidden neurons of the feed-forward network."""
    dtype: Literal["float32", "float64", "float16", "bfloat16"] = "float32"
    """Precision of the weights that are saved; training is in float64."""
    resume: bool = False
    """Return the runs that --out already holds, where they are those asked for."""
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class StudyOptions:
    """Measure every claim on sparse XOR and sparse parity, and report."""

    out: Path = Path("out/xor")
    """Folder of the report."""
    quick: bool = False
    """Fewer seeds and smaller inputs; says which claims it skips."""
    record: RecordFolder = None
    """Draw the record in this folder (or `package`, the one that ships) and measure nothing."""
    parts: PartNames = ()
    """Measure only these parts of the plan, then report on all that the folder holds."""
    common: Common = field(default_factory=Common)
