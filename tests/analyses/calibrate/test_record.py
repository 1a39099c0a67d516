"""The record that ships, and the guide whose tables are made from it."""

from pathlib import Path

import headlab
from headlab.analyses.calibrate.guide import filled
from headlab.analyses.calibrate.ladder import NAMES
from headlab.analyses.calibrate.protocol import Calibration, Cell
from headlab.analyses.calibrate.record import foretells, load_record, tables

GUIDE = Path(headlab.__file__).resolve().parents[1] / "notebooks" / "guide" / "calibration.md"


def cell(method, rung, auroc, seed=0, faithfulness=1.0, kind="zero", state="enumerated"):
    return Cell("esp", rung, kind, seed, "edges", method, state, 3.0, 2, 5, auroc, 0.1, 0.9, faithfulness=faithfulness)


def test_the_guides_tables_are_those_of_the_record():
    text = GUIDE.read_text(encoding="utf-8")
    assert filled(text, load_record()) == text
    assert text.count("<!-- end -->") == 3


def test_the_record_says_where_each_instrument_breaks():
    record = load_record()
    rows = {(row["kind"], row["rung"], row["task"], row["method"]): row for row in record["edges"]["cells"]}
    assert {row["rung"] for row in record["edges"]["rungs"]} >= set(NAMES)
    exact = [row for row in rows.values() if row["method"] == "exact" and row["rung"] in NAMES and row["scored"]]
    assert (
        min(row["auroc"] for row in exact if row["rung"] == "as built") == 1.0
    )  # proved; elsewhere it is the reference,
    assert min(row["auroc"] for row in exact if row["rung"] != "backup head") > 0.99  # by its mean effect
    assert rows["zero", "shaken", "esp", "EAP"]["faithfulness"] < 0.5
    assert rows["zero", "negative heads", "esp", "exact signed"]["auroc"] < 0.7
    apart = {rung for rung in NAMES if any(spread(record, rung, kind) > 0.1 for kind in ("zero", "mean"))}
    assert len(apart) >= 8


def spread(record, rung, kind):
    rows = [row for row in record["edges"]["cells"] if (row["rung"], row["kind"]) == (rung, kind) and row["scored"]]
    means = []
    for method in ("exact", "exact signed", "greedy", "EAP", "EAP-IG inputs"):
        values = [row["auroc"] for row in rows if row["method"] == method]
        if values:
            means.append(sum(values) / len(values))
    return max(means) - min(means)


def test_tables_count_passed_rungs_and_void_cells_by_hand():
    found = Calibration(
        (
            cell("exact", "as built", 1.0),
            cell("exact", "shaken", 0.9),
            cell("exact", "shaken", 1.0, seed=1),
            Cell("esp", "unread heads", "zero", 0, "edges", "exact", "void", 1.2),
        ),
        "edges",
    )
    made = tables(found)
    assert made["methods"][0]["kinds"]["zero"]["passed"] == 1
    assert made["methods"][0]["kinds"]["zero"]["scored"] == 2
    assert made["methods"][0]["kinds"]["zero"]["first"] == "shaken"
    shaken, void = (row for row in made["cells"] if row["rung"] != "as built")
    assert (shaken["auroc"], shaken["seeds"], shaken["scored"]) == (0.95, 2, 2)
    assert (void["auroc"], void["scored"]) == (None, 0)
    assert [row["state"] for row in made["rungs"]] == ["enumerated", "enumerated", "void"]


def test_a_ladder_that_ranks_alike_foretells_and_one_that_ranks_upside_down_does_not():
    ranks = {"EAP": 0.6, "attention": 0.7, "random": 0.5}
    for sign in (1, -1):
        cells = [cell(m, "shaken", value, s) for m, value in ranks.items() for s in (0, 1)]
        cells += [cell(m, "trained", 0.5 + sign * (v - 0.5) / 2, s) for m, v in ranks.items() for s in (0, 1)]
        (row,) = foretells(Calibration(tuple(cells), "edges"))
        assert row["spearman"] == sign
        assert row["models"] == 2
