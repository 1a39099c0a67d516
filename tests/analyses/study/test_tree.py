"""The study of trees: its plan, what a part measures, the evidence and verdicts, and the page from a record."""

import copy
import json
import re

import numpy as np
import pytest

from headlab.analyses.claims import ledger_row, load_claims
from headlab.analyses.options.common import Common
from headlab.analyses.options.tree import StudyOptions
from headlab.analyses.study.frame import Part, Work
from headlab.analyses.study.record import Record, to_json
from headlab.analyses.study.tree import measure
from headlab.analyses.study.tree.evidence import evidence
from headlab.analyses.study.tree.plan import jobs, plan
from headlab.analyses.study.tree.study import STUDY


def options(tmp_path, **more):
    return StudyOptions(out=tmp_path, common=Common(), **more)


def test_the_plan_has_every_training_once_and_as_data(tmp_path):
    parts = plan(options(tmp_path))
    names = [part.name for part in parts]
    assert len(set(names)) == len(names)
    assert {"forward-h2-d10", "plain-descent-d5", "without-chain-l6-d7", "binary-curriculum-d9"} <= set(names)
    for part in parts:
        json.dumps(part.config)
        if part.measure.endswith(":training"):
            assert measure.name_of(part.config) == part.name
    quick = plan(options(tmp_path, quick=True))
    assert {part.name for part in quick} < set(names)
    assert all(part.config["seeds"] == 2 for part in quick if part.measure.endswith(":training"))
    with pytest.raises(ValueError, match="at least 2 seeds"):
        plan(options(tmp_path, seeds=1))


@pytest.mark.parametrize("name", jobs())
def test_a_job_s_settings_make_the_training_they_name(name):
    job = jobs()[name]
    made = measure.make_plan(job)
    assert made.task.trees.depths[-1] == job["depth"]
    assert made.task.direction == job["direction"]
    assert made.architecture.config["n_layers"] == job["layers"]
    if job["method"] == "direct":
        assert made.architecture.config["n_heads"] == job["heads"]
    assert made.task.chain_of_thought == (job["kind"] != "without-chain")
    split = {"shapes": "shape", "labels": "labels"}.get(job["unseen"])
    assert split is None or made.task.trees.split == split


def small(monkeypatch, **more):
    """A training of seconds: `make_plan` with six steps, and few trees to evaluate on."""
    made, trained = measure.make_plan, measure.train
    monkeypatch.setattr(measure, "make_plan", lambda job: made({**job, "steps": 6, "batch": 4, **more}))
    monkeypatch.setattr(measure, "train", lambda *a, **k: trained(*a, **k, validation=8, paths=10))


def test_a_training_is_measured_and_taken_up(tmp_path, monkeypatch):
    small(monkeypatch)
    job = {**jobs()["forward-h2-d3"], "seeds": 2, "seed": 0, "look": {"count": 12, "pairs": 6}, "trees": 12}
    job |= {"lengths": (2, 4), "unseen": "shapes"}
    work = Work(tmp_path)
    first = to_json(measure.training(job, work))
    assert first == to_json(measure.training(job, work))
    record = Record({"forward-h2-d3": first})
    assert [row["seed"] for row in record.rows("models")] == [0, 1]
    assert len(record.rows("usage")) == 2 * 2 * 2
    assert {row["contrast"] for row in record.rows("recovery")} == {"goal", "edge", "predecessor"}
    assert {row["depth"] for row in record.rows("lengths")} == {2, 4}
    pattern = record.array("pattern")
    assert pattern.shape[0] == 2
    np.testing.assert_allclose(pattern.sum(-1), 1, atol=1e-4)
    assert record.array("circuits").shape[:2] == (4, 2)
    made = measure.make_plan
    monkeypatch.setattr(measure, "make_plan", lambda settings: made({**settings, "heads": 4}))
    with pytest.raises(ValueError, match=r"another|other"):  # another request is not taken for this one
        measure.training(job, work)


def test_constructions_and_controls(tmp_path):
    work = Work(tmp_path)
    cases = [{"direction": "backward", "depth": 3, "paths": 20}, {"direction": "forward", "depth": 4, "paths": 20}]
    record = Record({"constructed": to_json(measure.constructed({"cases": cases, "seed": 0}, work))})
    assert all(row["generated"] == row["teacher_forced"] == row["paths"] for row in record.rows("constructed"))
    assert record.one("constructed_score")["specialisation"] > 0.99
    fresh = Record({"untrained": to_json(measure.untrained({"depth": 3, "models": 3, "seed": 0}, work))})
    assert max(row["specialisation"] for row in fresh.rows("untrained")) < 0.05
    assert measure.guess_rate(1, trees=50) == pytest.approx(1 / 3)  # a root with three children
    assert 0.05 < measure.guess_rate(3, trees=200) < 0.6


# ---- evidence and verdicts from made-up records ----------------------------------------------------------------


def model(job, kind, accuracy, seed=0, *, heads=2, depth=5, layers=1, reached=500, paths=1000):
    errors = round(paths * (1 - accuracy))
    row = {"job": job, "kind": kind, "direction": "forward", "heads": heads, "layers": layers, "depth": depth}
    row |= {"seed": seed, "steps": 1200, "paths": paths, "errors": errors, "path_accuracy": accuracy}
    return row | {"steps_to_0.5": 100, "steps_to_0.95": reached, "steps_to_0.99": None}


def looked(job, kind, seed=0, *, score=0.98, first="reverse", own=0.1, other=1.0, heads=2, depth=5):
    row = {"job": job, "kind": kind, "heads": heads, "depth": depth, "seed": seed, "specialisation": score}
    row |= {"first": first, "backward without backward": own, "reverse without reverse": own}
    return row | {"backward without reverse": other, "reverse without backward": other}


def part(**tables):
    content = {}
    for name, rows in tables.items():
        columns = list(rows[0])
        content[name] = {"columns": columns, "units": {}, "rows": [[row[c] for c in columns] for row in rows]}
    return {"tables": content, "arrays": {}, "order": 0}


def full():
    """Every part, as good as the full study's."""
    parts = {}
    for depth in (3, 5, 7, 10):
        for kind, heads, accuracy in (("forward", 2, 0.9999), ("backward", 1, 0.9999), ("forward", 1, 0.002)):
            job = f"{kind}-h{heads}-d{depth}"
            own = {"models": [model(job, kind, accuracy, seed, heads=heads, depth=depth) for seed in (0, 1)]}
            if heads == 2:
                own["instruments"] = [looked(job, kind, seed, depth=depth) for seed in (0, 1)]
            parts[job] = part(**own)
        without = f"without-chain-l1-d{depth}"
        parts[without] = part(models=[model(without, "without-chain", 0.2, heads=4, depth=depth)])
        more = f"without-chain-l3-d{depth}"
        parts[more] = part(models=[model(more, "without-chain", 0.5, heads=4, depth=depth, layers=3)])
    lengths = [{"job": "forward-h2-d5", "seed": s, "depth": d, "path_accuracy": 0.995} for s in (0, 1) for d in (1, 20)]
    unseen = [{"kind": "shapes", "seen": 1.0, "unseen": 0.999, "trees": 800}]
    parts["forward-h2-d5"]["tables"] |= part(lengths=lengths, unseen=unseen)["tables"]
    for heads in (4, 6, 8):
        job = f"forward-h{heads}-d5"
        parts[job] = part(models=[model(job, "forward", 0.99995, s, heads=heads, reached=300) for s in (0, 1)])
    parts["guesses"] = part(guesses=[{"depth": depth, "share": 0.1} for depth in (3, 5, 7, 10)])
    parts["untrained"] = part(untrained=[{"seed": 0, "specialisation": 1e-5}])
    built = {"paths": 100, "generated": 100, "teacher_forced": 100}
    parts["constructed"] = part(
        constructed=[{"shape": s, "depth": d, **built} for s, d in (("random", 9), ("binary", 4))]
    )
    for depth, accuracy in ((7, 0.9995), (9, 0.997)):
        job = f"binary-curriculum-d{depth}"
        rows = [model(job, "binary-curriculum", accuracy, s, depth=depth) for s in (0, 1, 2)]
        others = [{"job": job, "stage": 3.0, "depth": 9, "seed": 0, "paths": 400, "path_accuracy": 0.99}]
        parts[job] = part(models=rows, **({"other_depths": others} if depth == 9 else {}))
    for depth in (5, 7, 9):
        job = f"binary-direct-d{depth}"
        parts[job] = part(models=[model(job, "binary-direct", 0.0, depth=depth)])
    job = "control-one-hot-wide"
    rows = [looked(job, "control", s, score=score) for s, score in enumerate((0.03, 0.7))]
    parts[job] = part(models=[model(job, "control", 0.999, s) for s in (0, 1)], instruments=rows)
    return Record(parts)


def changed(table, column, value, **where):
    """The full record with one column of a table's chosen rows replaced."""
    record = copy.deepcopy(full())
    touched = 0
    for one in record.parts.values():
        content = one["tables"].get(table)
        for row in content["rows"] if content else ():
            named = dict(zip(content["columns"], row))
            if all(named.get(key) == wanted for key, wanted in where.items()):
                row[content["columns"].index(column)] = value
                touched += 1
    assert touched
    return record


def verdict_of(record, claim):
    return ledger_row(load_claims()[claim], evidence(record)[claim], "headlab study tree")["verdict"]


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [("T1", "exceeds"), ("T2", "exceeds"), ("T3", "holds"), ("T4", "holds"), ("T5", "fails"), ("T6", "holds"),
     ("T7", "holds"), ("T8", "holds"), ("T9", "fails"), ("B4", "holds"), ("B5", "holds"), ("B6", "holds"),
     ("B9", "holds")],
)  # fmt: skip
def test_the_verdicts_on_good_figures(claim, verdict):
    assert verdict_of(full(), claim) == verdict


FORWARD_2 = {"kind": "forward", "heads": 2}


@pytest.mark.parametrize(
    ("claim", "verdict", "change"),
    [
        ("T1", "not reached", ("models", "path_accuracy", 0.95, {"kind": "backward", "depth": 10})),
        ("T1", "fails", ("models", "path_accuracy", 0.3, {"kind": "backward", "depth": 3})),
        ("T2", "holds", ("models", "path_accuracy", 0.995, {**FORWARD_2, "depth": 3})),
        ("T3", "fails", ("models", "path_accuracy", 1.0, {"kind": "without-chain", "layers": 1})),
        ("T3", "not reached", ("models", "path_accuracy", 0.1, {"kind": "without-chain", "layers": 3})),
        ("T4", "not reached", ("models", "steps_to_0.95", None, {**FORWARD_2, "depth": 5})),
        ("T4", "not reached", ("models", "path_accuracy", 1.0, {**FORWARD_2, "depth": 5})),
        ("T5", "holds", ("models", "path_accuracy", 0.5, FORWARD_2)),
        ("T5", "not reached", ("models", "path_accuracy", 0.95, FORWARD_2)),
        ("T6", "fails", ("constructed", "generated", 99, {"shape": "random"})),
        ("T7", "fails", ("instruments", "backward without backward", 0.9, FORWARD_2)),
        ("T7", "not reached", ("instruments", "backward without backward", 0.9, {**FORWARD_2, "depth": 10})),
        ("T8", "not reached", ("unseen", "unseen", 0.98, {})),
        ("T8", "fails", ("unseen", "unseen", 0.1, {})),
        ("T9", "holds", ("instruments", "first", "backward", FORWARD_2)),
        ("T9", "not reached", ("instruments", "first", None, FORWARD_2)),
        ("B4", "fails", ("instruments", "first", "backward", FORWARD_2)),
        ("B4", "not reached", ("instruments", "first", None, {**FORWARD_2, "depth": 3})),
        ("B5", "not reached", ("models", "path_accuracy", 0.995, {**FORWARD_2, "depth": 10})),
        ("B5", "fails", ("models", "path_accuracy", 0.9, {**FORWARD_2, "depth": 10})),
        ("B6", "fails", ("models", "path_accuracy", 1.0, {"kind": "binary-direct"})),
        ("B6", "not reached", ("models", "path_accuracy", 0.9, {"kind": "binary-curriculum"})),
        ("B9", "not reached", ("instruments", "specialisation", 0.3, {"kind": "control"})),
        ("B9", "fails", ("instruments", "specialisation", 0.9, {"kind": "control"})),
    ],
)
def test_other_figures_make_other_verdicts(claim, verdict, change):
    table, column, value, where = change
    assert verdict_of(changed(table, column, value, **where), claim) == verdict


def test_what_was_not_measured_is_not_judged():
    record = full()
    assert "B6" not in evidence(Record({k: v for k, v in record.parts.items() if k != "binary-direct-d7"}))
    assert set(evidence(Record({}))) == set()


def test_a_quick_study_end_to_end(tmp_path, monkeypatch):
    """A plan of tiny trainings: measured once, drawn twice, the same page."""
    small(monkeypatch)
    chosen = {
        "forward-h2-d3",
        "forward-h2-d5",
        "forward-h1-d5",
        "backward-h1-d3",
        "constructed",
        "untrained",
        "guesses",
    }
    parts = [p for p in plan(options(tmp_path, quick=True)) if p.name in chosen]
    parts = [Part(p.name, p.measure, tiny(p.config), p.version) for p in parts]
    study = STUDY.__class__("tree", lambda _: parts, STUDY.evidence, STUDY.figures, STUDY.told)
    results = study.run(options(tmp_path / "one", quick=True))
    assert {row["id"] for row in results["claims"]} >= {"T5", "T6", "T7", "T8", "T9", "B4"}
    page = (tmp_path / "one" / "index.html").read_text()
    assert "Attention on one tree" in page
    assert "When the heads form" in page
    monkeypatch.setattr(measure, "training", None)  # nothing is measured again
    again = study.run(options(tmp_path / "two", quick=True, record=tmp_path / "one"))
    assert again["claims"] == results["claims"]
    assert plain((tmp_path / "two" / "index.html").read_text()) == plain(page)


def plain(page):
    """A page without the numbers of its elements' ids, which count the figures that a process has drawn."""
    return re.sub(r"\bhl\d+", "hl", page)


def tiny(config):
    config = {**config, **({"trees": 12} if "trees" in config else {})}
    if config.get("look"):
        config["look"] = {"count": 12, "pairs": 6}
    if "cases" in config:
        config["cases"] = [{**case, "paths": 10} for case in config["cases"] if case["depth"] <= 5]
    return config | ({"models": 3} if "models" in config else {})
