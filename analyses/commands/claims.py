"""`headlab claims`: what the papers claim, what a study here measured, and the verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from analyses.claims import Claim, choose
from analyses.commands.tables import print_table
from analyses.options.instruments import Claims


def measured_rows(folder: Path) -> dict[str, dict[str, Any]]:
    """id -> the newest measurement that a study's results.json in `folder`, or below it, holds.

    Raises ValueError for a results.json that is damaged. A folder that does not exist holds none.
    """
    rows: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.rglob("results.json"), key=lambda p: p.stat().st_mtime) if folder.is_dir() else []:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))["claims"]
            rows.update({row["id"]: {**row, "results": str(path)} for row in found})
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is not a study's results ({error}); remove it or run the study again") from None
    return rows


def _row(claim: Claim, measured: dict[str, Any] | None) -> dict[str, Any]:
    row = {
        "id": claim.id,
        "claim": claim.claim,
        "paper": dict(claim.figures) or None,
        "doubtful": claim.doubtful,
        "beyond": claim.beyond,
        "verdict": None,
        "measured": None,
        "interval": None,
        "seeds": None,
        "command": f"headlab study {claim.system}",
    }
    if measured is not None:
        row.update({key: value for key, value in measured.items() if key != "paper"})
    return row


def run(options: Claims) -> dict[str, Any]:
    """The JSON of `headlab claims`; verdict and measured are null for a claim that no study in `results` measured."""
    measured = measured_rows(options.results)
    return {"claims": [_row(claim, measured.get(claim.id)) for claim in choose(options.ids)]}


def show(result: dict[str, Any]) -> None:
    """Print it for a reader."""
    rows = [
        [r["id"], r["claim"], r["verdict"] or "not measured here", r.get("summary"), r["command"]]
        for r in result["claims"]
    ]
    print_table(["id", "claim", "verdict", "measured", "command"], rows)
