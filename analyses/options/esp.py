"""Arguments of the endpoint selection commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from headlab.analyses.options.common import Common, PartNames, RecordFolder


@dataclass(frozen=True)
class BuildOptions:
    """Constructed weights for endpoint selection on a directed graph."""

    out: Path
    """Folder of the checkpoint to write."""
    variant: str = "two-head"
    """one-head-dag, one-head, two-head or two-head-narrow."""
    graph: str = "rich"
    """click, httpx, jinja2 or rich (bundled), complete:8, tournament:8, cycle:5, random:10:0.3:SEED, or a file."""
    tied: bool = False
    """The unembedding is the embedding's transpose."""
    sink: float | None = None
    """Score of the attention sink, M, in the two-head constructions; the construction's own by default."""
    induction: bool = False
    """The 2-hop induction form (1, a, 2, b, #, i, #)."""
    dtype: Literal["float32", "float64", "float16", "bfloat16"] = "float32"
    """Precision of the weights."""
    memory: float = 2.0
    """GB that the graph and one model's weights may take, by estimate."""
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class TrainOptions:
    """Learned weights for endpoint selection on a directed graph, many seeds together."""

    out: Path
    """Folder to write: one checkpoint a seed, and runs.json with the best."""
    graph: str = "rich"
    """click, httpx, jinja2 or rich (bundled), complete:8, tournament:8, cycle:5, random:10:0.3:SEED, or a file."""
    heads: int = 2
    """Attention heads."""
    seeds: int = 8
    """How many seeds, counted from --seed."""
    method: Literal["auto", "cross-entropy", "gce", "solver-guided", "feed-forward", "layer-norm"] = "auto"
    """Loss and architecture. auto: cross-entropy where zero errors are possible, else generalised cross-entropy."""
    induction: bool = False
    """The 2-hop induction form (1, a, 2, b, #, i, #)."""
    steps: int | None = None
    """Training steps; the method's own number by default."""
    resume: bool = False
    """Go on from the last state that an interrupted run left in --out."""
    memory: float = 2.0
    """GB that the graph and one model's weights may take, by estimate."""
    common: Common = field(default_factory=Common)


@dataclass(frozen=True)
class StudyOptions:
    """Train, construct, look inside and report: endpoint selection on one graph."""

    out: Path = Path("out/esp")
    """Folder of the report."""
    graph: str = "rich"
    """click, httpx, jinja2 or rich (bundled), complete:8, tournament:8, cycle:5, random:10:0.3:SEED, or a file."""
    seeds: int = 16
    """Seeds of each training method (8 with --quick)."""
    quick: bool = False
    """Fewer seeds and no side studies; says which claims it skips."""
    record: RecordFolder = None
    """Draw the record in this folder (or `package`, the one that ships) and measure nothing."""
    parts: PartNames = ()
    """Measure only these parts of the plan, then report on all that the folder holds."""
    memory: float = 2.0
    """GB that the graph and one model's weights may take, by estimate."""
    common: Common = field(default_factory=Common)
