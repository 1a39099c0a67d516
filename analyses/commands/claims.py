"""`headlab claims`: what the papers claim, what a study here measured, and the verdict."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from headlab.analyses.claims import VERDICTS, Claim, choose
from headlab.analyses.options.instruments import Claims
from headlab.interp.errors import RequestError
from headlab.interp.interval import show_level

NOT_MEASURED = "not measured here"


def measured_rows(folder: Path) -> dict[str, dict[str, Any]]:
    """id -> the measurement that a study's results.json in `folder`, or below it, holds: of several the one that a full
    study made, and then the newest.

    Raises ValueError for a results.json that is damaged. A folder that does not exist holds none.
    """
    found: list[tuple[bool, float, str, dict[str, Any]]] = []
    for path in folder.rglob("results.json") if folder.is_dir() else []:
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            full, rows = not held.get("skipped"), {row["id"]: row for row in held["claims"]}
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise RequestError(f"{path} is not a study's results ({error}); remove it or run the study again") from None
        found += [(full, path.stat().st_mtime, str(path), row) for row in rows.values()]
    found.sort(key=lambda each: each[:3])
    return {row["id"]: {**row, "results": path, "full": full} for full, _, path, row in found}


def _row(claim: Claim, measured: dict[str, Any] | None) -> dict[str, Any]:
    row = {
        "id": claim.id,
        "claim": claim.claim,
        "paper": dict(claim.figures) or None,
        "doubtful": claim.doubtful,
        "beyond": claim.beyond,
        "tested_by": claim.tested_by or None,
        "rule": claim.rule,
        "verdict": None,
        "measured": None,
        "interval": None,
        "level": None,
        "seeds": None,
        "summary": None,
        "command": f"headlab study {claim.system}",
    }
    if measured is not None:
        said = measured.get("paper") or None
        row.update({**{key: value for key, value in measured.items() if key != "paper"}, "paper_said": said})
    return row


def run(options: Claims) -> dict[str, Any]:
    """The JSON of `headlab claims`; verdict and measured are null for a claim that no study in `results` measured, and
    `missing` lists those with the commands that measure them.
    """
    measured = measured_rows(options.results)
    rows = [_row(claim, measured.get(claim.id)) for claim in choose(options.ids)]
    missing: dict[str, list[str]] = {}
    for row in rows:
        if row["verdict"] is None:
            missing.setdefault(row["command"], []).append(row["id"])
    counts = Counter(row["verdict"] for row in rows if row["verdict"])
    return {
        "claims": rows,
        "results": str(options.results),
        "counts": {verdict: counts[verdict] for verdict in VERDICTS if counts[verdict]},
        "missing": missing,
    }


def show(result: dict[str, Any]) -> None:
    """Print each claim with its verdict, the paper's figure and ours, and how to measure it again."""
    console = Console(highlight=False)
    for row in result["claims"]:
        console.print(
            Text.assemble((f"{row['id']:<4}", "bold"), (row["verdict"] or NOT_MEASURED, "bold"), f"  {row['claim']}")
        )
        for name, text in _lines(row):
            console.print(Padding(Text.assemble((f"{name:<7}", "dim"), text), (0, 0, 0, 4)))
    total = len(result["claims"])
    said = ", ".join(f"{count} {verdict}" for verdict, count in result["counts"].items())
    missing = sum(map(len, result["missing"].values()))
    console.print(f"{total} claims: {said or 'no verdict'}" + (f"; {missing} {NOT_MEASURED}" if missing else ""))
    for command, ids in result["missing"].items():
        console.print(f"{command} measures {', '.join(ids)}")


def _lines(row: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [("paper", _paper(row))]
    if row["summary"]:
        lines.append(("ours", f"{row['summary']}{_over(row)}"))
    if row["tested_by"]:
        lines.append(("tested", f"by a consequence, since it is theory only: {row['tested_by']}"))
    return [*lines, ("again", row["command"])]


def _paper(row: dict[str, Any]) -> str:
    if row["beyond"]:
        return "none says this: found here"
    said = row.get("paper_said") or ", ".join(f"{name} {value}" for name, value in (row["paper"] or {}).items())
    doubt = " (doubtful: known from a digest only, at odds with the paper itself)" if row["doubtful"] else ""
    return f"{said or 'a statement without a figure'}{doubt}"


def _over(row: dict[str, Any]) -> str:
    """Seeds and interval, where there are any."""
    if row["seeds"] is None:
        return " [no chance in it]"
    over = f"{row['seeds']} seed{'s' if row['seeds'] != 1 else ''}"
    if row["interval"] is None:
        return f" [{over}]"
    low, high = row["interval"]
    level = "" if row["level"] is None else f"{show_level(row['level'])} "
    return f" [{over}, {level}interval {low:.3g} to {high:.3g}]"
