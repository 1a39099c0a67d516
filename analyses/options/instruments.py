"""Arguments of the commands that look at one checkpoint, or compare two."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from headlab.analyses.options.common import Common, Directory


@dataclass(frozen=True)
class Info:
    """What a checkpoint is, and how it was made."""

    dir: Directory
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class Evaluate:
    """Accuracy or error, loss, margin and sample count of a checkpoint."""

    dir: Directory
    count: int | None = None
    """Samples to draw where the task cannot be listed."""
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class Ablate:
    """What each head is worth: the performance that is lost without it."""

    dir: Directory
    kind: Literal["zero", "mean", "positional_mean", "resample", "matched_resample"] = "mean"
    """What is put in the place of a head's output."""
    metric: str | None = None
    """Performance measure; the task's first by default."""
    factor: str | None = None
    """Factor by which effects are split, and on which matched_resample matches; the task's first by default."""
    groups: bool = False
    """Ablate every pair of heads together as well."""
    count: int = 256
    """Samples to draw where the task cannot be listed."""
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class Score:
    """The head specialisation score, with its chance level."""

    dir: Directory
    chance_seeds: int = 64
    """Untrained models of the same architecture for the chance level."""
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class Roles:
    """Which role each head plays, and what is lost when the group of a role is ablated."""

    dir: Directory
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class Align:
    """How exactly each head's query has found a target of its own, now and at the recorded steps of training."""

    dir: Directory
    shuffles: int = 64
    """Shuffles of the targets for the chance level."""
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class Patch:
    """Put activations of a source run into a destination run, cell by cell."""

    dir: Directory
    contrast: str | None = None
    """The factor in which source and destination differ; the task's first by default."""
    site: Literal["resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out", "z", "q", "k", "v", "pattern"] = "z"
    """The component that is patched."""
    metric: str | None = None
    """What is read off the logits; the contrast's first metric by default."""
    direction: Literal["denoising", "noising"] = "denoising"
    """denoising: what a source activation restores in the destination run; noising: what it breaks."""
    count: int = 64
    """Pairs of runs."""
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class CircuitOptions:
    """Find the circuit by exact edge patching, and hold it against the known one of a constructed model."""

    dir: Directory
    ablation: str | None = None
    """Ablation kind under which edges are judged; the task lists its kinds in the error of an unknown one."""
    contrast: str | None = None
    """Contrast whose metric is measured; the task's first by default."""
    threshold: float = 0.1
    """An edge belongs to the circuit when its effect is at least this share of the largest."""
    count: int = 64
    """Pairs of runs."""
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class Compare:
    """Two models of one task up to head order, head bases, scale and softmax shift."""

    dir_a: Directory
    dir_b: Directory
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class Certify:
    """ESP: is a one-head model in the theorem's class, which order has it learned, what is its bound."""

    dir: Directory
    nodes: int = 500
    """Nodes of the exact solver for the minimum feedback arc set; where they do not suffice, bounds. 0: bounds."""
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class Render:
    """Attention patterns and the attention circuit of a checkpoint, as an offline page or as a picture."""

    dir: Directory
    out: Path
    """File to write: .html (attention and circuit), .svg or .png (the circuit)."""
    example: int = 0
    """Which example is drawn."""
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class Claims:
    """What the papers claim, what was measured, and the verdict."""

    ids: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Claims to show, e.g. E3 B1; all by default."""
    results: Path = Path("out")
    """Folder in which studies have written their results."""
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class Bench:
    """A benchmark: ratios of CPU time against a peer in one run, with the equality of results checked."""

    name: Annotated[
        Literal["patching", "training", "generation", "xor", "retrieval", "startup", "sweep"], tyro.conf.Positional
    ]
    quick: bool = False
    """Smaller cases, one pair each."""
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class Notebooks:
    """Execute the notebooks and write them, with an offline page of each."""

    out: Path
    """Folder for NAME.ipynb and NAME.html; `notebooks` remakes the ones in the repository."""
    names: tuple[str, ...] = ()
    """Which, by name; all by default."""
    common: Common = field(default_factory=Common)
