"""One study done in a process of its own, or found done in its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headlab.analyses.options.all import StudyOptions
from headlab.analyses.tasks import task_entry


@dataclass(frozen=True)
class Finished:
    """A study's results.json, or the sentence with which it failed."""

    system: str
    results: Mapping[str, Any] | None
    failure: str = ""


def already(system: str, out: Path) -> Finished | None:
    """What a finished study left in `out`, None where there is none or it is damaged, so that it runs again."""
    try:
        results = json.loads((out / "results.json").read_text(encoding="utf-8"))
        complete = (out / "index.html").is_file() and {"claims", "headline", "summary"} <= set(results)
    except (OSError, ValueError, TypeError):
        return None
    return Finished(system, results) if complete else None


def options_of(system: str, options: StudyOptions) -> Any:
    """What the study of one system is asked."""
    kind = task_entry(system).options.StudyOptions
    data = {"images": options.images, "passages": options.passages} if system == "retrieval" else {}
    return kind(out=options.out / system, quick=options.quick, common=replace(options.common, json=True), **data)


def study(system: str, options: StudyOptions) -> Finished:
    """Run one study into its folder. Its failure is a result: the other studies go on."""
    import torch

    torch.set_num_threads(1)
    try:
        return Finished(system, task_entry(system).study(options_of(system, options)))
    except Exception as error:
        return Finished(system, None, f"{type(error).__name__}: {error}")
