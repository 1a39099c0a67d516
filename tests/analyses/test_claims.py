"""The claims as data, and the rules that make a verdict of a number."""

import json

import pytest

from headlab.analyses.claims import (
    Evidence,
    Measurement,
    choose,
    claim_of,
    count_verdicts,
    judge_bound,
    judge_figure,
    judge_statement,
    ledger_row,
    load_claims,
    load_papers,
)
from headlab.analyses.commands import claims as command
from headlab.analyses.commands.claims import measured_rows, run, show
from headlab.analyses.options.instruments import Claims
from headlab.analyses.rules import KINDS, Condition, Rule
from headlab.interp.interval import Interval

SYSTEMS = ("esp", "retrieval", "xor", "tree")
RULED = [claim for claim in load_claims().values() if claim.rule]


def test_every_claim_of_the_papers_and_of_our_own_is_there():
    claims = load_claims()
    of_papers = [claim for claim in claims.values() if not claim.beyond]
    assert {name: sum(c.paper == name for c in of_papers) for name in SYSTEMS} == {
        "esp": 14,
        "retrieval": 16,
        "xor": 11,
        "tree": 12,
    }
    assert [name for name in claims if name[0] == "B"] == [f"B{k}" for k in range(1, 17)]
    assert all(claim.short and len(claim.short) <= 34 for claim in claims.values())
    assert all(paper.title and paper.venue and paper.link.startswith("https://") for paper in load_papers().values())
    assert set(load_papers()) == set(SYSTEMS)


@pytest.mark.parametrize("claim", RULED, ids=lambda claim: claim.id)
def test_each_rule_can_say_that_the_statement_holds_and_that_it_fails(claim):
    for verdict, expected in (("holds", ("holds", "exceeds")), ("fails", ("fails",))):
        example = claim.rule.example(verdict)
        assert claim.rule.judge(example) in expected
    for name in claim.rule.names():
        nothing = dict.fromkeys(claim.rule.names()) | {}
        assert claim.rule.judge(nothing) == "not reached"
        with pytest.raises(KeyError, match=name):
            claim.rule.judge({key: None for key in nothing if key != name})


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (
            {"rule": "statement", "holds": ["share > 0.5"], "fails": ["share > 1"]},
            "no evidence gives the verdict 'fails'",
        ),
        ({"rule": "statement", "holds": ["share > 1.2"], "fails": ["share < 0.5"]}, "gives the verdict 'holds'"),
        ({"rule": "statement", "holds": ["x > 1", "x < 0"], "fails": ["x == 3"]}, "gives the verdict 'holds'"),
        ({"rule": "statement", "holds": ["x > 1"], "fails": ["x > 0"]}, "gives the verdict 'holds'"),
        ({"rule": "statement", "holds": ["x > 1"]}, "gives the verdict 'fails'"),
        ({"rule": "statement", "fails": ["x > 1"]}, "no condition under which the statement holds"),
        ({"rule": "figure", "fails": ["x > 1"]}, "names no figure"),
        ({"rule": "bound", "violations": "errors", "tried": "models", "holds": ["errors > 0"]}, "verdict 'holds'"),
        ({"rule": "opinion"}, "there is no rule 'opinion'"),
        ({"rule": "statement", "holds": ["x is large"], "fails": ["x < 0"]}, "is not a condition"),
        ({}, "why no run settles it"),
        ({"paper": "nowhere", "not_tested": "x"}, "there is no paper 'nowhere'"),
    ],
)
def test_a_rule_that_cannot_decide_is_refused_when_it_is_loaded(row, sentence):
    with pytest.raises(ValueError, match=rf"claim Z1: .*{sentence}"):
        claim_of("Z1", {"system": "esp", "claim": "c", **row})


def test_rules_judge_by_hand():
    rule = Rule.parse(
        {"rule": "statement", "holds": ["a >= 1"], "fails": ["a < 0 and b > 2"], "outside": ["c > 0"]}, {}
    )
    assert rule.judge({"a": 1, "b": 0, "c": 0}) == "holds"
    assert rule.judge({"a": 0.5, "b": 9, "c": 0}) == "not reached"
    assert rule.judge({"a": -1, "b": 2, "c": 0}) == "not reached"
    assert rule.judge({"a": -1, "b": 3, "c": 0}) == "fails"
    assert rule.judge({"a": 1, "b": 0, "c": 1}) == "outside class"
    figures = {"h3": 1e-3, "h4": 1e-5}
    rule = Rule.parse({"rule": "figure", "better": "lower", "decides": ["h4"], "fails": ["h4 > 1"]}, figures)
    assert rule.judge({"h4": 1e-6, "h3": 5.0}) == "exceeds"
    assert rule.cells({"h4": 1e-6, "h3": 5.0}) == {"h3": "not reached", "h4": "exceeds"}
    assert rule.judge({"h4": 2.0, "h3": None}) == "fails"
    assert KINDS == ("bound", "statement", "figure")
    assert Condition.parse("x <= -1.5e-3") == Condition("x", "<=", -1.5e-3)


def test_a_row_of_the_ledger_has_numbers_sentence_and_verdict():
    row = ledger_row(load_claims()["B8"], Evidence(EVIDENCE_OF_B8, Interval(0.9, 1.0, 0.95), 20), "headlab study xor")
    assert (row["verdict"], row["interval"], row["seeds"], row["level"]) == ("holds", [0.9, 1.0], 20, 0.95)
    assert row["line"] == "20 of 20 trainings"
    assert row["summary"].startswith("20 of 20 trainings with 150 normalised steps are one to one (k = 3, 4; d = 64;")
    with pytest.raises(ValueError, match="claim X2 has no rule"):
        ledger_row(load_claims()["X2"], Evidence({}), "")


EVIDENCE_OF_B8 = {
    "share_lowest": 1.0,
    "share_lowest_high": 1.0,
    "right": 20,
    "trainings": 20,
    "heads": [3, 4],
    "bits": [64],
    "in_turn": None,
}


def test_one_violation_refutes_a_bound_and_no_case_supports_nothing():
    assert judge_bound(0, 10_000) == "holds"
    assert judge_bound(1, 10_000) == "fails"
    assert judge_bound(0, 0) == "not reached"


@pytest.mark.parametrize(
    ("measured", "paper", "higher", "tolerance", "verdict"),
    [
        (0.75, [0.6455, 0.724], True, 0.0, "exceeds"),
        (0.70, [0.6455, 0.724], True, 0.0, "holds"),
        (0.60, [0.6455, 0.724], True, 0.0, "not reached"),
        (1.0, 1.0, True, 0.0, "holds"),
        (5.0e-6, 5.23e-6, False, 1e-7, "exceeds"),
        (6.0e-6, 5.23e-6, False, 1e-6, "holds"),
        (1.3e-2, 1.58e-3, False, 1e-4, "not reached"),
    ],
)
def test_a_figure_is_judged_in_its_own_direction(measured, paper, higher, tolerance, verdict):
    assert judge_figure(measured, paper, higher_is_better=higher, tolerance=tolerance) == verdict


def test_a_statement_outside_its_class_is_no_refutation():
    assert judge_statement(True) == "holds"
    assert judge_statement(False) == "not reached"
    assert judge_statement(True, contradicted=True) == "fails"
    assert judge_statement(False, contradicted=True, in_class=False) == "outside class"


def test_an_unknown_claim_is_named_with_those_there_are():
    with pytest.raises(KeyError, match="no claim 'E99': there are E1, E2"):
        choose(["E99"])
    assert [claim.id for claim in choose(["B1", "E3"])] == ["B1", "E3"]


def test_verdicts_are_counted_in_their_order():
    rows = [Measurement(str(i), verdict, "", {}, "") for i, verdict in enumerate(["fails", "holds", "holds"])]
    assert count_verdicts(rows) == {"holds": 2, "fails": 1}


def test_measured_rows_come_from_results_and_a_damaged_file_is_named(tmp_path):
    assert measured_rows(tmp_path / "nowhere") == {}
    (tmp_path / "esp").mkdir()
    path = tmp_path / "esp" / "results.json"
    path.write_text(json.dumps({"claims": [{"id": "E1", "verdict": "holds"}]}))
    assert measured_rows(tmp_path)["E1"]["verdict"] == "holds"
    path.write_text("{")
    with pytest.raises(ValueError, match="is not a study's results"):
        measured_rows(tmp_path)


def results(folder, rows, skipped=(), **about):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps({"claims": rows, "skipped": list(skipped), **about}))


def test_a_full_study_stands_before_a_quick_one_that_is_newer(tmp_path):
    results(tmp_path / "full", [{"id": "E1", "verdict": "holds", "seeds": 16}])
    results(tmp_path / "quick", [{"id": "E1", "verdict": "fails"}, {"id": "E2", "verdict": "holds"}], skipped=["E9"])
    found = measured_rows(tmp_path)
    assert (found["E1"]["verdict"], found["E1"]["full"]) == ("holds", True)
    assert (found["E2"]["verdict"], found["E2"]["full"]) == ("holds", False)


@pytest.fixture
def nothing_shipped(tmp_path, monkeypatch):
    """A package whose record is empty."""
    monkeypatch.setattr(command, "shipped_folder", lambda: tmp_path / "shipped")
    return tmp_path / "shipped"


def test_all_claims_are_listed_and_what_is_missing_names_its_command(tmp_path, capsys, nothing_shipped):
    claims = load_claims()
    tested = [claim for claim in claims.values() if not claim.not_tested]
    rows = [
        {
            "id": claim.id,
            "verdict": "holds",
            "summary": f"{claim.id} measured",
            "interval": [0.25, 0.5],
            "level": 0.875,
            "seeds": 4,
        }
        for claim in tested
        if claim.id not in ("R8", "T3")
    ]
    results(tmp_path / "a", rows)
    answer = run(Claims(results=tmp_path))
    untested = len(claims) - len(tested)
    assert len(answer["claims"]) == len(claims)
    assert answer["counts"] == {"holds": len(tested) - 2, "not tested": untested}
    assert answer["missing"] == {"headlab study retrieval": ["R8"], "headlab study tree": ["T3"]}
    assert all(row["command"] for row in answer["claims"])
    assert all(row["paper"]["title"] for row in answer["claims"] if not row["beyond"])
    show(answer)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{len(claims)} claims: {len(tested) - 2} holds, {untested} not tested; 2 not measured here" in shown
    assert "headlab study retrieval measures R8" in shown
    assert "[4 seeds, 87.5 % interval 0.25 to 0.5]" in shown
    assert shown.count("second-hand: known from a summary only") == sum(c.second_hand for c in claims.values()) > 0
    assert shown.count("a finding of this project") == 16


def test_what_ships_is_shown_beside_what_was_measured_here_and_judged_by_the_rule(tmp_path, nothing_shipped, capsys):
    row = {
        "id": "B8",
        "verdict": "fails",
        "summary": "as shipped",
        "values": EVIDENCE_OF_B8,
        "seeds": 20,
        "interval": None,
    }
    results(nothing_shipped / "xor", [row], date="2026-01-02", version="0.2.0")
    (shipped,) = run(Claims(ids=("B8",), results=tmp_path / "here"))["claims"]
    assert (shipped["verdict"], shipped["date"], shipped["version"]) == ("holds", "2026-01-02", "0.2.0")
    assert shipped["results"] == command.SHIPPED
    values = EVIDENCE_OF_B8 | {"share_lowest": 0.1, "share_lowest_high": 0.2}
    results(tmp_path / "here", [{**row, "summary": "as measured", "values": values}])
    both = run(Claims(ids=("B8",), results=tmp_path / "here"))
    assert (both["claims"][0]["verdict"], both["claims"][0]["shipped"]["verdict"]) == ("fails", "holds")
    show(both)
    shown = " ".join(capsys.readouterr().out.split())
    assert "measured as measured" in shown
    assert "shipped holds (2026-01-02): as shipped" in shown


def test_a_lower_bound_says_by_what_it_is_tested():
    assert [claim.id for claim in load_claims().values() if claim.tested_by] == ["E2", "R2"]
