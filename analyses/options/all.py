"""Arguments of the study of all systems."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from headlab.analyses.options.common import Common


@dataclass(frozen=True)
class StudyOptions:
    """Every study, and one report over them: what was asked, what came out, every claim with its verdict."""

    out: Path = Path("out/all")
    """Folder of the report, with one folder a study; finished studies in it are taken up."""
    quick: bool = False
    """The quick form of each study; says which claims it skips."""
    images: str | None = None
    """Pictures for the study of retrieval, as its own --images."""
    passages: str = "installed"
    """Passages for it, as its own --passages."""
    workers: int = 2
    """Studies that run at once, each in a process of one thread."""
    common: Common = field(default_factory=Common)
