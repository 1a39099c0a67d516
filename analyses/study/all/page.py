"""The page over the studies: a question a system, what came out, every claim with its verdict and its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headlab.analyses.claims import Claim, load_claims
from headlab.analyses.study.all.finished import Finished
from headlab.analyses.study.claims_section import rules_of
from headlab.analyses.tasks import task_entry
from headlab.interp.render import (
    Axis,
    ClaimRow,
    Curve,
    CurvePanel,
    Figure,
    Section,
    bold,
    claims_table,
    coloured,
    curve_chart,
    number,
    report_page,
)

NOT_MEASURED = "not measured"


def rows_of(studies: Sequence[Finished]) -> list[dict[str, Any]]:
    """Every claim there is, with what its study measured; a claim that was not measured says why."""
    measured = {row["id"]: row for each in studies if each.results for row in each.results["claims"]}
    skipped = {name for each in studies if each.results for name in each.results["skipped"]}
    failed = {each.system: each.failure for each in studies if each.failure}
    rows = []
    for claim in load_claims().values():
        row = measured.get(claim.id, {"verdict": None, "summary": "", "paper": "", "seeds": None})
        if row["verdict"] is None:
            why = f"the study failed: {failed[claim.system]}" if claim.system in failed else ""
            missing = "not tested" if claim.not_tested else NOT_MEASURED
            row = row | {"summary": why, "verdict": "not in quick" if claim.id in skipped else missing}
        rows.append({"id": claim.id, "system": claim.system, "claim": claim.claim, **row})
    return rows


def build_page(studies: Sequence[Finished], command: str) -> str:
    """The whole page; its links lead to the studies' own pages beside it."""
    rows = rows_of(studies)
    judged = [row for row in rows if row["verdict"] not in (NOT_MEASURED, "not in quick", "not tested")]
    counts = _counted(judged)
    done = [each for each in studies if each.results]
    chart = heads_chart(done)
    seconds = sum(each.results["seconds"] for each in done if each.results)
    return report_page(
        title="headlab: four systems, every claim",
        kicker=[bold("headlab"), " how many heads does a task need, and what does each do?"],
        headline=_headline(counts, len(judged)),
        summary="Four tasks whose transformer weights can be written down from a theorem. Each study builds those "
        "weights, trains models beside them, holds every instrument against the known mechanism, and then judges what "
        "the papers claim.",
        verdicts_label=f"{len(judged)} of {len(rows)} claims tested:",
        verdicts=counts,
        verdicts_link="#esp",
        links=[(task_entry(each.system).title, f"{each.system}/index.html") for each in done],
        hero=chart,
        sections=[_section(each, [row for row in rows if row["system"] == each.system]) for each in studies],
        footer=f"Offline report, no requests. Made by “{command}”; the studies took {number(round(seconds))} s.",
    )


def _headline(counts: Mapping[str, int], total: int) -> list[Any]:
    kept, failed = counts.get("holds", 0) + counts.get("exceeds", 0), counts.get("fails", 0)
    return [
        [coloured(f"{kept} of {total}", "positive"), " claims hold or are exceeded,"],
        [coloured(f"{failed}", "negative"), " fail when measured."],
    ]


def _counted(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for verdict in ("holds", "exceeds", "fails", "not reached", "outside class"):
        number_of = sum(row["verdict"] == verdict for row in rows)
        if number_of:
            found[verdict] = number_of
    return found


def _section(each: Finished, rows: Sequence[Mapping[str, Any]]) -> Section:
    entry = task_entry(each.system)
    name, question = entry.title, entry.question
    if each.results is None:
        return Section(f"{name}. {question}", "This study failed", each.failure, [_claims(rows)], anchor=each.system)
    return Section(
        f"{name}. {question}", each.results["headline"], each.results["summary"], [_claims(rows)], anchor=each.system
    )


def _claims(rows: Sequence[Mapping[str, Any]]) -> Figure:
    known: Mapping[str, Claim] = load_claims()
    shown = []
    for row in rows:
        claim = known[row["id"]]
        paper = row.get("paper") or claim.says or ("our own finding" if claim.beyond else "no figure")
        marks = [row["id"]]
        marks += [f"{row['seeds']} models"] if row["seeds"] else []
        marks += ["the paper's figures are known second-hand"] if claim.second_hand else []
        verdict = "not in quick" if row["verdict"] == NOT_MEASURED else row["verdict"]
        text = row["summary"] or claim.not_tested
        text = text or ("not measured in this run" if row["verdict"] == NOT_MEASURED else "")
        link = f"{row['system']}/index.html#claims"
        shown.append(ClaimRow(row["claim"], paper, text, verdict, detail=", ".join(marks), link=link))
    verdicts = dict.fromkeys(str(each.verdict) for each in shown)
    told = ", ".join(f"{sum(each.verdict == one for each in shown)} {one}" for one in verdicts)
    return claims_table(shown, title="Claims", description=told, rules=rules_of(verdicts))


def heads_chart(studies: Sequence[Finished]) -> Figure | None:
    """Quality by number of heads, a panel a system that has such a table; None where none has."""
    panels, said = [], []
    for each in studies:
        table = each.results["by_heads"] if each.results else None
        if not table or len(table["values"]) < 2:
            continue
        heads = sorted(int(count) for count in table["values"])
        values = [np.asarray(table["values"][str(count)], dtype=float) for count in heads]
        middle = [float(np.median(one)) for one in values]
        name = task_entry(each.system).title
        curve = Curve(
            heads,
            middle,
            low=[float(one.min()) for one in values],
            high=[float(one.max()) for one in values],
            points=True,
        )
        bounds = None if table["scale"] == "log" else (min(0.0, *middle), 100.0)
        panels.append(
            CurvePanel(
                [bold(name), f", {table['what']}"],
                [curve],
                axis=Axis("", scale=table["scale"], domain=bounds),
                height=130,
            )
        )
        said.append(f"{name}: {', '.join(f'{m:.3g} with {h}' for h, m in zip(heads, middle, strict=True))}")
    if not panels:
        return None
    return curve_chart(
        panels,
        title="Quality by number of heads",
        description="; ".join(said),
        caption="Trained models. Line: median over seeds, band: all of them. Sparse XOR has one head a hidden bit by "
        "its statement and no such table.",
        axis=Axis("attention heads", scale="linear", ticks=sorted({int(x) for p in panels for x in p.curves[0].x})),
    )
