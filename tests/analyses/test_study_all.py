"""The report over all studies: every claim is there, what failed is said, what was finished is kept."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from headlab.analyses.claims import load_claims
from headlab.analyses.cli import main
from headlab.analyses.options.all import StudyOptions
from headlab.analyses.options.common import Common
from headlab.analyses.study.all import study as overview
from headlab.analyses.study.all.finished import Finished, already
from headlab.analyses.study.all.page import heads_chart, rows_of
from headlab.analyses.study.all.study import run
from headlab.analyses.tasks import TASKS


def outcome(system: str, **changes) -> dict:
    """What a study of `system` would leave, with a verdict for each of its claims but the last."""
    own = [claim.id for claim in load_claims().values() if claim.system == system]
    row = {"verdict": "holds", "summary": "as stated", "paper": "<paper> & co", "seeds": 3, "command": "c"}
    return {
        "headline": [f"{system} <done>", "twice"],
        "summary": "It was measured.",
        "by_heads": {"what": "right, %", "scale": "linear", "chance": 0.0, "values": {"1": [10.0, 30.0], "2": [99.0]}},
        "claims": [{"id": name, **row} for name in own[:-1]],
        "skipped": own[-1:],
        "seconds": 2.0,
        **changes,
    }


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Studies that take no time and leave their folder; which were done, in order."""
    done: list[str] = []

    def study(system: str, options: StudyOptions) -> Finished:
        done.append(system)
        out = options.out / system
        out.mkdir(parents=True)
        (out / "results.json").write_text(json.dumps(outcome(system)))
        (out / "index.html").write_text("<p>done</p>")
        return Finished(system, outcome(system))

    monkeypatch.setattr(overview, "study", study)
    return done


def test_every_claim_is_on_the_page_with_a_verdict_or_why_it_has_none(tmp_path: Path, counted: list[str]):
    options = StudyOptions(out=tmp_path / "all", quick=True, workers=1)
    result = run(options)
    assert sorted(counted) == sorted(TASKS)
    page = Path(result["report"]).read_text()
    claims = load_claims()
    assert [row["id"] for row in result["claims"]] == list(claims)
    for name in claims:
        assert re.search(rf"<small>{name}\b", page), name
    assert page.count('class="hl-chip hl-not-in-quick"') == len(TASKS)
    assert set(re.findall(r'href="([a-z]+/index\.html)"', page)) == {f"{system}/index.html" for system in TASKS}
    assert not re.search(r'(src|href)="https?:', page)
    assert "esp &lt;done&gt;" in page
    assert "&lt;paper&gt; &amp; co" in page
    tested = len(claims) - len(TASKS)
    assert f"{tested} of {len(claims)} claims tested" in page


def test_finished_studies_are_taken_up_and_damaged_ones_done_again(tmp_path: Path, counted: list[str]):
    options = StudyOptions(out=tmp_path / "all", workers=1)
    first = run(options)
    (options.out / "xor" / "results.json").write_text('{"claims": [')
    (options.out / "tree" / "index.html").unlink()
    for name in ("xor", "tree"):
        (options.out / name).rename(tmp_path / name)  # the stub wants an empty place
        assert already(name, tmp_path / name) is None
    counted.clear()
    again = run(options)
    assert sorted(counted) == ["tree", "xor"]
    assert again["claims"] == first["claims"]


def test_a_folder_of_another_request_is_refused(tmp_path: Path, counted: list[str], capsys):
    run(StudyOptions(out=tmp_path / "all", workers=1, quick=True))
    with pytest.raises(ValueError, match="another request"):
        run(StudyOptions(out=tmp_path / "all", workers=1, common=Common(seed=3)))
    assert main(["study", "all", "--out", str(tmp_path / "all")]) == 2
    assert "choose another --out" in capsys.readouterr().err
    with pytest.raises(ValueError, match="at least 1 study"):
        run(StudyOptions(out=tmp_path / "new", workers=0))
    counted.clear()
    assert main(["study", "all", "--out", str(tmp_path / "new"), "--images", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err
    assert not counted
    assert not (tmp_path / "new").exists()


def test_a_study_that_fails_is_said_and_the_others_are_kept(tmp_path: Path, counted: list[str], monkeypatch):
    whole = overview.study

    def fails(system: str, options: StudyOptions) -> Finished:
        return Finished(system, None, "MemoryError: no room") if system == "retrieval" else whole(system, options)

    monkeypatch.setattr(overview, "study", fails)
    options = StudyOptions(out=tmp_path / "all", workers=1)
    with pytest.raises(RuntimeError, match="retrieval: MemoryError: no room"):
        run(options)
    page = (options.out / "index.html").read_text()
    assert "This study failed" in page
    assert "the study failed: MemoryError: no room" in page
    assert "esp/index.html" in page
    assert "retrieval/index.html#claims" in page
    found = json.loads((options.out / "overview.json").read_text())
    assert {row["verdict"] for row in found["claims"] if row["id"].startswith("R")} == {"not measured", "not tested"}
    monkeypatch.setattr(overview, "study", whole)
    counted.clear()
    assert not run(options)["failed"]
    assert counted == ["retrieval"]


def test_a_worker_runs_a_real_study_and_reports_its_failure(tmp_path: Path):
    (tmp_path / "esp").write_text("a file where the study's folder should be")
    found = overview.study("esp", StudyOptions(out=tmp_path, quick=True))
    assert found.results is None
    assert found.failure.startswith("RequestError: the folder")


def test_claims_that_nobody_measured_are_rows_too():
    rows = rows_of([Finished("esp", outcome("esp"))])
    assert len(rows) == len(load_claims())
    by_id = {row["id"]: row["verdict"] for row in rows}
    assert by_id["E1"] == "holds"
    assert by_id["R1"] == "not measured"


def test_the_chart_of_heads_needs_a_table_of_two_numbers_of_heads():
    assert heads_chart([Finished("xor", outcome("xor", by_heads=None))]) is None
    alone = outcome("esp", by_heads={"what": "right, %", "scale": "linear", "chance": None, "values": {"2": [9.0]}})
    assert heads_chart([Finished("esp", alone)]) is None
    errors = {"what": "error", "scale": "log", "chance": None, "values": {"1": [0.3], "2": [0.1, 0.2], "3": [1e-5]}}
    chart = heads_chart([Finished("esp", outcome("esp")), Finished("retrieval", outcome("retrieval", by_heads=errors))])
    assert chart is not None
    assert "20 with 1, 99 with 2" in chart.description
    assert "1e-05 with 3" in chart.description
