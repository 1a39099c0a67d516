"""What every study does around its own work: measure by part, keep the record, judge, draw and write the report.

A study is a package `analyses/study/NAME` that offers ``STUDY: Study`` and ``run = STUDY.run``. It provides only its
own:

* ``plan(options) -> [Part, ...]``: what is measured, as data. A part names the function that measures it
  ("headlab.analyses.study.xor.measure:one_step", imported when it runs) and everything that the function is given
  (`config`, plain JSON values). A part takes at most about 25 minutes of CPU and needs no other part: trainings are
  looked at in the part that trains them. `version` goes up when the code of a part changes what it returns.
* the measuring functions, ``measure(config, work) -> {name: Table | Array}``: tidy tables, one row a run, a head or a
  cell, with units; small arrays for figures. Parts may add to one table (each with the same columns): `Record.rows`
  and `Record.table` join them. Counts are stored, not shares; intervals are computed when they are judged or drawn.
* ``evidence(record) -> {claim id: Evidence}``: the numbers that the rule of each claim (claims.toml) reads, and what
  its sentence needs. A claim without evidence was not measured (left out of a quick run).
* ``figures(record, words) -> {name: Figure or None}``: ``words("name", n=3)`` gives title, description and caption.
* ``told(record) -> {name: value}``: what the page's templates need besides the evidence, which they see under each
  claim's id (``{{ X1.share | percent }}``). An entry `by_heads` becomes the study's part of the overview.
* ``templates/NAME.toml``: all words, see `words`.

The record of the full study ships as `analyses/records/NAME`: the folder `record` and the file results.json that
``headlab study NAME --out FOLDER`` writes, copied. ``--parts`` measures some parts only, for instance those whose
configuration or version has changed.

Nothing else carries results: evidence, figures and words are functions of the record alone, so that
``headlab study NAME --from RECORD`` gives the same report in seconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

from headlab.analyses.claims import Claim, Evidence, count_verdicts, ledger_row, load_claims
from headlab.analyses.progress import Report
from headlab.analyses.study.folder import require_folder, write_report
from headlab.analyses.study.record import (
    Measured,
    Record,
    key_of,
    read_part,
    read_record,
    to_json,
    to_plain,
    write_part,
)
from headlab.analyses.study.words import Words
from headlab.interp.errors import RequestError, UnknownName
from headlab.interp.render import ClaimRow, Figure, Section, claims_table, report_page
from headlab.interp.render.text import plain

SILENT = ("out", "common", "record", "parts")  # options that a command does not repeat


@dataclass(frozen=True)
class Work:
    """What a measuring function may use besides its configuration.

    folder: for checkpoints. device: a torch device. report: `report(what, done, total)`, None where nothing is drawn.
    """

    folder: Path
    device: str = "cpu"
    report: Report | None = None


@dataclass(frozen=True)
class Part:
    """One part of a plan. measure: "module:function". config: all that it depends on, the seed too."""

    name: str
    measure: str
    config: Mapping[str, Any]
    version: int = 1

    def run(self, work: Work) -> Measured:
        """Measure it."""
        module, _, name = self.measure.partition(":")
        return getattr(import_module(module), name)(to_plain(self.config), work)


@dataclass(frozen=True)
class Study:
    """A study as data; the module's text says what each function is given and returns."""

    name: str
    plan: Callable[[Any], Sequence[Part]]
    evidence: Callable[[Record], Mapping[str, Evidence]]
    figures: Callable[[Record, Words], Mapping[str, Figure | None]]
    told: Callable[[Record], Mapping[str, Any]] = lambda record: {}

    def run(self, options: Any, report: Report | None = None) -> dict[str, Any]:
        """Measure what the record does not hold yet, then write the report; returns what results.json holds.

        Args:
            options: The study's options. `record`: draw this record and measure nothing. `parts`: measure only these.
            report: Told how many parts are done.

        Raises:
            ValueError: A folder that cannot be written, a part that does not exist, a file that is not a record.
        """
        if options.record is not None:
            return self.publish(read_record(record_folder(self.name, options.record)), options)
        plan = self.plan(options)
        unknown = set(options.parts) - {part.name for part in plan}
        if unknown:
            names = ", ".join(part.name for part in plan)
            raise UnknownName(f"there is no part {', '.join(sorted(unknown))} in this plan: there are {names}")
        require_folder(options.out)
        wanted = [part for part in plan if not options.parts or part.name in options.parts]
        for done, part in enumerate(wanted):
            if report:
                report("study", done, len(wanted))
            self._measure(part, plan.index(part), options, report)
        if report:
            report("study", len(wanted), len(wanted))
        return self.publish(self._own(plan, options.out / "record"), options)

    def _measure(self, part: Part, order: int, options: Any, report: Report | None) -> None:
        """Measure one part, unless its file already holds the answer to the same question."""
        path = options.out / "record" / f"{part.name}.json"
        key = key_of(self.name, part.name, part.config, part.version)
        if path.is_file() and read_part(path)["key"] == key:
            return
        began = _cpu_seconds()
        measured = part.run(Work(options.out / "checkpoints", options.common.device, report))
        from headlab.models.checkpoints import versions

        about = {
            "study": self.name,
            "part": part.name,
            "order": order,
            "key": key,
            "version": part.version,
            "command": command(self.name, options),
            "date": datetime.now(UTC).date().isoformat(),
            "device": options.common.device,
            "versions": versions(),
            "cpu_seconds": round(_cpu_seconds() - began, 1),
            "config": part.config,
        }
        write_part(path, to_json(measured, **about))

    def _own(self, plan: Sequence[Part], folder: Path) -> Record:
        """The parts of this plan that `folder` holds; files of other plans are passed over."""
        keys = {part.name: key_of(self.name, part.name, part.config, part.version) for part in plan}
        record = read_record(folder)
        return Record({name: part for name, part in record.parts.items() if keys.get(name) == part["key"]})

    def publish(self, record: Record, options: Any) -> dict[str, Any]:
        """Judge, draw and tell a record: write tables, figures, results.json and the page into `options.out`."""
        require_folder(options.out)
        evidence = self.evidence(record)
        claims = [claim for claim in load_claims().values() if claim.system == self.name]
        rows = [ledger_row(claim, evidence[claim.id], _commands(record)) for claim in claims if claim.id in evidence]
        values = {**{row["id"]: row["values"] for row in rows}, **self.told(record)}
        words = Words(self.name, values)
        drawn = {name: figure for name, figure in self.figures(record, words).items() if figure is not None}
        results = {
            "study": self.name,
            "headline": [plain(line) for line in words.lines("headline")],
            "summary": plain(words.fill("summary")),
            "by_heads": to_plain(values.get("by_heads")),
            "claims": rows,
            "skipped": [claim.id for claim in claims if claim.rule and claim.id not in evidence],
            "command": _commands(record),
            "date": max(part["date"] for part in record.parts.values()),
            "version": version("headlab"),
            "seconds": round(sum(part["cpu_seconds"] for part in record.parts.values()), 1),
        }
        tables = {name: record.table(name) for name in record.names()}
        tables["claims"] = pd.DataFrame([_flat(row) for row in rows])
        page = self._page(words, drawn, claims, results)
        return write_report(options.out, page, results, tables, drawn)

    def _page(
        self, words: Words, drawn: Mapping[str, Figure], claims: Sequence[Claim], results: Mapping[str, Any]
    ) -> str:
        rows = {row["id"]: row for row in results["claims"]}
        counts = count_verdicts(results["claims"])
        common = Words("claims", {"counts": counts, "total": sum(counts.values()), **results})
        table = claims_figure(claims, rows, common)
        last = Section(
            plain(common.fill("name")), common.lines("heading"), common.fill("text"), [table], anchor="claims"
        )  # type: ignore[arg-type]
        return report_page(
            title=plain(words.fill("title")),
            kicker=words.fill("kicker"),
            headline=words.lines("headline"),
            summary=words.fill("summary"),
            verdicts_label=plain(common.fill("label")),
            verdicts=counts,
            verdicts_link="#claims",
            hero=drawn[words.texts["hero"]],
            sections=[*words.sections(drawn), last],
            footer=common.fill("footer"),
        )


def claims_figure(claims: Sequence[Claim], rows: Mapping[str, Mapping[str, Any]], words: Words) -> Figure:
    """The table of claims: each with its verdict, or why it has none, and the rules behind the verdicts."""
    shown = []
    for claim in claims:
        row = rows.get(claim.id)
        values = {"claim": claim, "row": row or {"seeds": None, "interval": None, "level": None}}
        verdict = row["verdict"] if row else "not tested" if claim.not_tested else "not in quick"
        measured = row["summary"] if row else claim.not_tested
        paper = plain(words.fill("paper", **values))
        shown.append(ClaimRow(claim.claim, paper, measured, verdict, detail=words.fill("detail", **values)))
    rules = {each: plain(words.fill(f"rule {each}")) for each in dict.fromkeys(row.verdict for row in shown)}
    return claims_table(shown, **words("table"), rules=rules)


def command(study: str, options: Any) -> str:
    """The command line that repeats a study: every option that is not its default."""
    parts = [f"headlab study {study}"]
    for each in fields(options):
        value = getattr(options, each.name)
        if each.name not in SILENT and value != each.default:
            name = f"--{each.name.replace('_', '-')}"
            parts.append(name if value is True else f"{name} {value}")
    return " ".join([*parts, f"--seed {options.common.seed}"] if options.common.seed else parts)


def seeds_of(options: Any, quick: int) -> int:
    """Seeds of a run. Raises ValueError for fewer than two, which show no spread."""
    if options.seeds < 2:
        raise RequestError(f"a study needs at least 2 seeds to show a spread, not {options.seeds}")
    return min(options.seeds, quick) if options.quick else options.seeds


def record_folder(study: str, given: Path) -> Path:
    """The folder of a record: as given, the `record` in it, or with the word `package` the one that ships."""
    if str(given) == "package":
        given = Path(str(files("headlab.analyses").joinpath("records", study)))
    return given / "record" if (given / "record").is_dir() else given


def _cpu_seconds() -> float:
    """CPU time of this process and of the processes that it waited for."""
    return sum(os.times()[:4])


def _commands(record: Record) -> str:
    """The command that made the record, of several the last."""
    return list(record.parts.values())[-1]["command"]


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    low, high = row["interval"] or (None, None)
    kept = {key: row[key] for key in ("id", "verdict", "summary", "seeds", "command")}
    return {**kept, "low": low, "high": high}
