"""The claims as data, and the rules that make a verdict of a number."""

import json

import pytest

from headlab.analyses.claims import (
    RULES,
    Measurement,
    choose,
    count_verdicts,
    judge_bound,
    judge_figure,
    judge_statement,
    load_claims,
)
from headlab.analyses.commands.claims import measured_rows, run, show
from headlab.analyses.options.instruments import Claims


def test_every_claim_of_the_papers_and_of_our_own_is_there():
    claims = load_claims()
    by_system = {
        system: sum(c.system == system and not c.beyond for c in claims.values())
        for system in ("esp", "retrieval", "xor", "tree")
    }
    assert by_system == {"esp": 13, "retrieval": 10, "xor": 8, "tree": 8}
    assert sum(claim.beyond for claim in claims.values()) == 12
    assert all(claim.rule in RULES for claim in claims.values())
    assert all(claim.figures for claim in claims.values() if claim.rule == "figure")


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


def results(folder, rows, skipped=()):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps({"claims": rows, "skipped": list(skipped)}))


def test_a_full_study_stands_before_a_quick_one_that_is_newer(tmp_path):
    results(tmp_path / "full", [{"id": "E1", "verdict": "holds", "seeds": 16}])
    results(tmp_path / "quick", [{"id": "E1", "verdict": "fails"}, {"id": "E2", "verdict": "holds"}], skipped=["E9"])
    found = measured_rows(tmp_path)
    assert (found["E1"]["verdict"], found["E1"]["full"]) == ("holds", True)
    assert (found["E2"]["verdict"], found["E2"]["full"]) == ("holds", False)


def test_all_claims_are_listed_and_what_is_missing_names_its_command(tmp_path, capsys):
    claims = load_claims()
    measured = [claim for claim in claims.values() if claim.id not in ("R8", "T3")]
    rows = [
        {
            "id": claim.id,
            "verdict": "holds",
            "summary": f"{claim.id} measured",
            "measured": {"x": 1.0},
            "interval": [0.25, 0.5],
            "level": 0.875,
            "seeds": 4,
            "paper": "as printed",
            "command": f"headlab study {claim.system}",
        }
        for claim in measured
    ]
    results(tmp_path / "a", rows)
    answer = run(Claims(results=tmp_path))
    assert len(answer["claims"]) == 51
    assert answer["counts"] == {"holds": 49}
    assert answer["missing"] == {"headlab study retrieval": ["R8"], "headlab study tree": ["T3"]}
    assert all(row["command"] for row in answer["claims"])
    show(answer)
    shown = " ".join(capsys.readouterr().out.split())
    assert "51 claims: 49 holds; 2 not measured here" in shown
    assert "headlab study retrieval measures R8" in shown
    assert "[4 seeds, 87.5 % interval 0.25 to 0.5]" in shown
    assert shown.count("doubtful: known from a digest only") == sum(claim.doubtful for claim in claims.values()) == 5
    assert shown.count("found here") == 12


def test_a_claim_that_is_theory_only_says_by_what_it_is_tested():
    theory = [claim for claim in load_claims().values() if claim.theory]
    assert [claim.id for claim in theory] == ["E2", "R2", "X2"]
    assert all(claim.tested_by for claim in theory)
    assert not any(claim.tested_by for claim in load_claims().values() if not claim.theory)
