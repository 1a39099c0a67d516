"""`headlab claims`: what the papers claim, what was measured (the record that ships, and studies here), the verdict."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from headlab.analyses.claims import VERDICTS, Claim, choose, load_papers
from headlab.analyses.options.instruments import Claims
from headlab.interp.errors import RequestError
from headlab.interp.interval import show_level

NOT_MEASURED = "not measured here"
SHIPPED = "the record that ships"


def shipped_folder() -> Path:
    """Where the package keeps the record of the full studies, one folder a study."""
    return Path(str(files("headlab.analyses").joinpath("records")))


def measured_rows(folder: Path) -> dict[str, dict[str, Any]]:
    """Claim id -> the row that a study's results.json in `folder`, or below it, holds: of several the one that a full
    study made, and then the newest.

    Raises ValueError for a results.json that is damaged. A folder that does not exist holds none.
    """
    rows: list[tuple[bool, float, str, dict[str, Any]]] = []
    for path in folder.rglob("results.json") if folder.is_dir() else []:
        try:
            study = json.loads(path.read_text(encoding="utf-8"))
            about = {"date": study.get("date"), "version": study.get("version")}
            full, own = not study.get("skipped"), {row["id"]: {**about, **row} for row in study["claims"]}
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise RequestError(f"{path} is not a study's results ({error}); remove it or run the study again") from None
        rows += [(full, path.stat().st_mtime, str(path), row) for row in own.values()]
    rows.sort(key=lambda each: each[:3])
    return {row["id"]: {**row, "results": path, "full": full} for full, _, path, row in rows}


def _row(claim: Claim, measured: dict[str, Any] | None, shipped: dict[str, Any] | None) -> dict[str, Any]:
    paper = load_papers().get(claim.paper)
    row = {
        "id": claim.id,
        "claim": claim.claim,
        "short": claim.short,
        "paper": vars(paper) if paper else None,
        "figures": dict(claim.figures) or None,
        "says": claim.says,
        "second_hand": claim.second_hand,
        "beyond": claim.beyond,
        "tested_by": claim.tested_by or None,
        "not_tested": claim.not_tested or None,
        "verdict": "not tested" if claim.not_tested else None,
        **dict.fromkeys(("summary", "line", "values", "interval", "level", "seeds", "date", "version", "results")),
        "command": f"headlab study {claim.system}",
        "shipped": _judged(claim, shipped),
    }
    chosen = _judged(claim, measured) or (shipped and {**_judged(claim, shipped), "results": SHIPPED})
    for key, value in (chosen or {}).items():
        row["says" if key == "paper" else key] = value
    return row


def _judged(claim: Claim, row: dict[str, Any] | None) -> Any:
    """The row with the verdict that the claim's rule gives its numbers today."""
    if row is None or claim.rule is None or "values" not in row:
        return row
    return {**row, "verdict": claim.rule.judge(row["values"])}


def run(options: Claims) -> dict[str, Any]:
    """The JSON of `headlab claims`: each claim with what a study in `results` measured, else with what ships.

    The verdict is null for a claim that neither measured, and `missing` lists those with the commands that measure
    them.
    """
    measured, shipped = measured_rows(options.results), measured_rows(shipped_folder())
    rows = [_row(claim, measured.get(claim.id), shipped.get(claim.id)) for claim in choose(options.ids)]
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
            console.print(Padding(Text.assemble((f"{name:<9}", "dim"), text), (0, 0, 0, 4)))
    counted = ", ".join(f"{count} {verdict}" for verdict, count in result["counts"].items())
    missing = sum(map(len, result["missing"].values()))
    console.print(
        f"{len(result['claims'])} claims: {counted or 'no verdict'}"
        + (f"; {missing} {NOT_MEASURED}" if missing else "")
    )
    for command, ids in result["missing"].items():
        console.print(f"{command} measures {', '.join(ids)}")


def _lines(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "paper", _paper(row)
    if row["summary"]:
        yield "measured", f"{row['summary']}{_over(row)}"
    if row["not_tested"]:
        yield "why", row["not_tested"]
    if row["tested_by"]:
        yield "tested", f"by a consequence, since it is theory only: {row['tested_by']}"
    if row["results"]:
        about = [row["results"], row["date"], row["version"] and f"headlab {row['version']}"]
        yield "source", ", ".join(filter(None, about))
    shipped = row["shipped"]
    if shipped and row["results"] != SHIPPED:
        yield "shipped", f"{shipped['verdict']} ({shipped['date']}): {shipped['summary']}"
    if not row["not_tested"]:
        yield "again", row["command"]


def _paper(row: dict[str, Any]) -> str:
    if row["beyond"]:
        return "none says this: a finding of this project"
    figures = ", ".join(f"{name} {value}" for name, value in (row["figures"] or {}).items())
    doubt = " (second-hand: known from a summary only, at odds with the paper itself)" if row["second_hand"] else ""
    return f"{row['paper']['title']} ({row['paper']['venue']}): {row['says'] or figures or 'a statement'}{doubt}"


def _over(row: dict[str, Any]) -> str:
    """Seeds and interval, where there are any."""
    if row["seeds"] is None:
        return " [no chance in it]"
    over = f"{row['seeds']} seed{'s' if row['seeds'] != 1 else ''}"
    if row["interval"] is None:
        return f" [{over}]"
    low, high = row["interval"]
    level = "" if row.get("level") is None else f"{show_level(row['level'])} "
    return f" [{over}, {level}interval {low:.3g} to {high:.3g}]"
