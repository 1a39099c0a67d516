"""The sparse XOR study on a small plan: the record, evidence by its rules, the report, and the figures' numbers."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from headlab.analyses.claims import load_claims
from headlab.analyses.options.xor import StudyOptions
from headlab.analyses.study.frame import Part, Work
from headlab.analyses.study.record import Record, read_record, to_plain
from headlab.analyses.study.xor import measure, plan
from headlab.analyses.study.xor import samples as s
from headlab.analyses.study.xor import study as xor
from headlab.analyses.study.xor.evidence import evidence
from headlab.analyses.study.xor.figures import FIGURES
from headlab.analyses.study.xor.measure import at_angle, one_step
from headlab.models.xor.ensemble import draw
from headlab.models.xor.task import XorTask


def _curves(method, factors, seeds, widths=None):
    return [plan._curve(method, bits, seeds, factors, width=(widths or {}).get(bits)) for bits in (12, 16, 24)]


ONCE, MANY = (1 / 32, 1 / 4, 1.0, 8.0), (0.25, 1.0, 8.0, 16.0)
TINY = {
    "equality": {"sizes": [[6, 2]], "width": 6, "seeds": 1},
    "one-step": {"group": "size", "cells": plan._cells((32, 1024), 20)},
    "widths": {"group": "width", "cells": [c for f in (2.0, 4.0) for c in plan._cells((32, 256), 10, factor=f)]},
    "step-sizes": {"group": "kappa", "cells": plan._kappas(64, 10, (1 / 16, 1024.0))},
    "starts": {"group": "start", "cells": [c for k in plan.STARTS for c in plan._cells((64, 128), 30, start=k)]},
    "angles": {"cells": plan._cells((64,), 60), "angles": (1.0, 90.0, 180.0)},
    "first-gradient": {"cells": plan._cells((64, 256), 10)},
    "maps": {
        "bits": 32,
        "width": 21,
        "seeds": 4,
        "few": 2,
        "sizes": [1e-1, 1e3, 1e6],
        "coarse": [1e-2, 1e3],
        "steps": 8,
    },
    "samples-one-step": {
        "curves": _curves("one step", ONCE, 12),
        "exponents": [["one_to_one", "bits"], ["on_support", "bits"]],
    },
    "samples-many-steps": {"curves": _curves("many steps", MANY, 8), "exponents": [["one_to_one", "bits"]]},
    "samples-wide": {
        "curves": _curves("many steps, m = d", MANY, 8, {12: 12, 16: 16, 24: 24}),
        "exponents": [["one_to_one", "bits"]],
    },
    "samples-by-width": {
        "curves": [plan._curve("one step", 24, 12, ONCE, width=width) for width in (10, 14, 20)],
        "exponents": [["on_support", "width"]],
    },
    "parity": {
        "heads": [3],
        "bits": [32],
        "seeds": 4,
        "starts": ["independent"],
        "methods": ["one-step", "normalised"],
    },
    "networks": {"sizes": [[bits, 4] for bits in (12, 16, 24)], "seeds": 2, "steps": 250},
    "smallest-attention": {"bits": [32, 64, 128], "seeds": 12, "level": 0.75},
    "heads": {"bits": 32, "seeds": 2, "untrained": 8, "small_size": 0.5, "small_steps": 4, "spine_bits": 64},
}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The folder of the report on the tiny plan, and what the study returned."""
    out = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "QUICK", TINY)
        return out, xor.run(StudyOptions(out=out, quick=True))


@pytest.fixture(scope="module")
def record(report):
    return read_record(report[0] / "record")


def test_every_claim_with_a_rule_gets_a_verdict(report):
    out, result = report
    tested = {name for name, claim in load_claims().items() if claim.system == "xor" and claim.rule}
    assert {row["id"] for row in result["claims"]} == tested
    assert result["skipped"] == []
    stored = json.loads((out / "results.json").read_text())["claims"]
    assert [(row["id"], row["verdict"], row["summary"]) for row in stored] == [
        (row["id"], row["verdict"], row["summary"]) for row in result["claims"]
    ]
    for row in result["claims"]:
        assert row["summary"].endswith(".")
        assert row["command"] == "headlab study xor --quick"
        assert row["interval"] is None or row["interval"][0] <= row["interval"][1]


def test_the_report_is_one_page_with_its_figures_and_tables(report):
    out, result = report
    page = (out / "index.html").read_text(encoding="utf-8")
    assert result["report"] == str(out / "index.html")
    assert len(page) < 400_000
    assert "http" not in page.replace("http://www.w3.org", "")
    assert page.count("<h2") >= 8
    drawn = {path.stem for path in (out / "figures").iterdir()}
    assert drawn == set(FIGURES)
    assert {path.stem for path in (out / "tables").iterdir()} >= {"steps", "samples", "claims"}


def test_the_record_draws_the_same_report_without_measuring(report, tmp_path, monkeypatch):
    out, result = report
    monkeypatch.setattr(Part, "run", None)
    again = xor.run(StudyOptions(out=tmp_path, record=out))
    pages = [re.sub(r"hl\d+-", "", (folder / "index.html").read_text()) for folder in (out, tmp_path)]
    assert pages[0] == pages[1]
    assert again["claims"] == result["claims"]


def test_a_quick_plan_leaves_out_samples_alone():
    names = {part.name for part in plan.parts(plan.FULL, 0)}
    assert names - {part.name for part in plan.parts(plan.QUICK, 0)} == {
        "scale",
        *(name for name in names if name.startswith("samples")),
    }


def test_one_step_counts_what_it_says():
    cell = one_step(64, 25, range(40))
    assert cell["one_to_one"] + cell["together"] <= cell["seeds"] == 40
    assert cell["sharp"] == cell["one_to_one"] > 30
    assert cell["loss_largest"] < 1e-3
    assert cell["attention_lowest"] > 0.99
    assert one_step(64, 25, range(40), start="equal")["one_to_one"] == 0


def test_batches_of_seeds_change_nothing(monkeypatch):
    whole = one_step(32, 10, range(12))
    monkeypatch.setattr(measure, "MOST_NUMBERS", 32 * 10 * 5)
    parts = one_step(32, 10, range(12))
    assert {key: whole[key] for key in ("one_to_one", "together", "sharp")} == {
        key: parts[key] for key in ("one_to_one", "together", "sharp")
    }
    assert whole["loss_largest"] == pytest.approx(parts["loss_largest"], rel=0, abs=1e-12)


@pytest.mark.parametrize("degrees", [0.0, 30.0, 90.0, 180.0])
def test_the_second_query_stands_at_the_angle_that_was_asked_for(degrees):
    models = at_angle(draw(XorTask(16), width=8, seeds=(0, 1, 2), start="orthogonal"), degrees)
    cosines = torch.cosine_similarity(*models.queries.unbind(dim=1), dim=-1)
    assert cosines.numpy() == pytest.approx(np.cos(np.deg2rad(degrees)), abs=1e-9)


@pytest.mark.parametrize("power", [1, 2])
def test_the_exponent_of_a_known_law_is_found(power):
    rng = np.random.default_rng(power)
    curves = []
    for bits in (16, 32, 64, 128):
        counts = tuple(round(bits**power * factor) for factor in (1, 2, 4, 8, 16))
        threshold = 3 * bits**power * np.exp(0.5 * rng.standard_normal(400))
        table = np.asarray(counts) >= threshold[:, None]
        curves.append(s.SampleCurve(bits, 8, counts, table, table))
    fit = s.exponent(curves)
    assert fit.value == pytest.approx(power, abs=0.1)
    assert fit.low <= power <= fit.high
    assert fit.high - fit.low < 0.3
    assert fit.needed[64] == pytest.approx(3 * 64**power, rel=0.15)


def test_samples_needed_by_hand():
    counts = (10, 100, 1000)
    assert s.needed(counts, np.array([0.0, 0.5, 1.0])) == pytest.approx(100)
    assert s.needed(counts, np.array([0.0, 0.25, 0.75])) == pytest.approx(10**2.5)
    assert s.needed(counts, np.array([0.6, 0.7, 1.0])) == 10
    assert np.isnan(s.needed(counts, np.array([0.0, 0.1, 0.4])))
    assert s.needed(counts, np.array([0.0, 0.6, 0.4])) == pytest.approx(10 ** (1 + 0.5 / 0.6))  # dips count as noise
    with pytest.raises(ValueError, match="at least 3"):
        s.exponent([])
    flat = [s.SampleCurve(b, 4, counts, np.zeros((5, 3), dtype=bool), np.zeros((5, 3), dtype=bool)) for b in (2, 4, 8)]
    with pytest.raises(ValueError, match="never reached at bits = 2"):
        s.exponent(flat)


def changed(record, part, table, where, **values):
    """The record with other values in the rows of one table that `where` chooses."""
    content = record.parts[part]
    columns = content["tables"][table]["columns"]
    rows = [dict(zip(columns, row, strict=True)) for row in content["tables"][table]["rows"]]
    rows = [list((row | values if where(row) else row).values()) for row in rows]
    tables = {**content["tables"], table: {**content["tables"][table], "rows": rows}}
    return Record({**record.parts, part: {**content, "tables": tables}})


@pytest.mark.parametrize(
    ("claim", "part", "table", "where", "values", "verdict"),
    [
        ("X1", "one-step", "steps", lambda row: True, {"one_to_one": 20, "seeds": 20}, "holds"),
        ("X1", "one-step", "steps", lambda row: True, {"one_to_one": 2, "seeds": 20}, "fails"),
        ("X3", "maps", "map_seeds", lambda row: True, {"loss": 0.0}, "fails"),
        ("X4", "one-step", "steps", lambda row: True, {"sharp": 10}, "fails"),
        ("X4", "one-step", "steps", lambda row: True, {"sharp": 20, "seeds": 20}, "holds"),
        ("X5", "angles", "angles", lambda row: row["angle"] == 180, {"together": 50}, "fails"),
        ("X5", "angles", "angles", lambda row: row["angle"] == 90, {"together": 59}, "holds"),
        ("X6", "samples-one-step", "exponents", lambda row: True, {"low": 0.9, "high": 1.1}, "holds"),
        ("X6", "samples-one-step", "exponents", lambda row: True, {"low": 1.9, "high": 2.1}, "fails"),
        ("X7", "equality", "equality", lambda row: True, {}, "holds"),
        ("X7", "equality", "equality", lambda row: row["map"] == "erf", {"loss": 1e-6}, "fails"),
        ("X8", "parity", "parity", lambda row: True, {"one_to_one": 4}, "fails"),
        ("X10", "first-gradient", "first_gradient", lambda row: True, {"relevant": 1e-9}, "fails"),
        ("B7", "samples-many-steps", "exponents", lambda row: True, {"low": 1.5, "high": 1.6}, "fails"),
        ("B8", "parity", "parity", lambda row: True, {"one_to_one": 0, "seeds": 40}, "fails"),
        ("B8", "parity", "parity", lambda row: True, {"one_to_one": 4}, "holds"),
    ],
)
def test_verdicts_turn_with_the_numbers(record, claim, part, table, where, values, verdict):
    given = evidence(changed(record, part, table, where, **values))[claim]
    assert load_claims()[claim].rule.judge(to_plain(given.values)) == verdict


def test_the_smallest_width_grows_slowly():
    table = measure.smallest_attention({"bits": [32, 1024], "seeds": 20, "level": 0.75, "seed": 0}, Work(Path()))
    small, large = table["smallest_attention"].rows
    assert 2 <= small["width"] <= large["width"] <= 4 * small["width"]
    assert all(row["one_to_one"] >= 15 for row in (small, large))


def test_a_wrong_request_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="cannot be written"):
        xor.run(StudyOptions(out=tmp_path / "file"))
    with pytest.raises(ValueError, match="there is no part nothing in this plan: there are equality, one-step"):
        xor.run(StudyOptions(out=tmp_path / "out", parts=("nothing",)))
    with pytest.raises(FileNotFoundError, match="holds no record"):
        xor.run(StudyOptions(out=tmp_path / "out", record=tmp_path / "nowhere"))
