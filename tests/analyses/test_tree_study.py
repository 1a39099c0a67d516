"""The path-finding study on tiny trainings: what it takes up, verdicts by their rules, the report."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headlab.analyses.claims import load_claims
from headlab.analyses.options.tree import StudyOptions
from headlab.analyses.study.tree import measure, study, verdicts
from headlab.analyses.study.tree.bars import bars
from headlab.analyses.study.tree.findings import Findings
from headlab.analyses.study.tree.measure import Unseen
from headlab.analyses.study.tree.plans import Job, jobs
from headlab.analyses.study.tree.records import Built, Look, Row, Run, Trained
from headlab.analyses.tree_heads import Formation, TreeHeads
from headlab.interp.assignment import Assignment
from headlab.models.tree.recipes import PLAIN, RECIPE, curriculum, direct, plain_descent
from headlab.models.tree.source import TreeSource
from headlab.models.tree.task import TreeTask
from tests.interp.played import specialised

TREES = TreeSource(depths=(2,), labels=8, nodes=6)
QUICKLY = replace(RECIPE, steps=12, batch=4, record=8)


def tiny(direction: str, heads: int):
    return lambda: direct(TreeTask(TREES, direction), heads=heads, d_model=12, d_head=6, recipe=QUICKLY)


def tiny_jobs() -> dict[str, Job]:
    two = {f"forward-h2-d{d}": Job(f"forward-h2-d{d}", tiny("forward", 2), 5, 8, True) for d in (3, 5)}
    one = {"forward-h1-d3": Job("forward-h1-d3", tiny("forward", 1), 5, 0, True)}
    back = {"backward-h1-d3": Job("backward-h1-d3", tiny("backward", 1), 5, 0, True)}
    task = TreeTask(replace(TREES, labels=6))
    plain = Job("plain-descent-d3", lambda: plain_descent(task, recipe=replace(PLAIN, steps=6, record=5)), 3, 8, True)
    full_only = Job("left-out", tiny("forward", 2), 5)
    return {**two, **one, **back, "plain-descent-d3": plain, "left-out": full_only}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The results of a tiny quick study, and its folder."""
    out = tmp_path_factory.mktemp("study")
    patch = pytest.MonkeyPatch()
    patch.setattr(study, "jobs", tiny_jobs)
    patch.setattr(study, "constructed_table", lambda quick, seed: [Built("forward, random", 3, 8, 10, 5, 5, 5, 9.0)])
    patch.setattr(study.bench_generation, "measure", lambda *a, **b: {"ratio": {"median": 12.0}})
    patch.setattr(study, "untrained_scores", lambda run, models: [0.0] * models)
    try:
        said = []
        results = study.run(StudyOptions(out, quick=True), lambda what, done, total: said.append(what))
        yield results, out, said
    finally:
        patch.undo()


def test_a_study_writes_its_report_results_and_tables(done):
    results, out, said = done
    assert {row["id"] for row in results["claims"]} == {"T1", "T2", "T5", "T6", "T7", "T8", "B4"}
    assert results["skipped"] == ["T3", "T4", "B5", "B6", "B9"]
    assert "left-out" not in results["trainings"]
    assert len(results["trainings"]["forward-h2-d3"]["path_accuracy"]) == 2
    assert json.loads((out / "results.json").read_text("utf-8"))["command"] == "headlab study tree --quick"
    page = (out / "index.html").read_text("utf-8")
    assert "12 times faster" in page
    assert not re.search(r'(src|href)="https?:', page)
    assert {path.stem for path in (out / "tables").iterdir()} == {
        "models", "heads", "instruments", "constructed", "length", "claims", "bars",
    }  # fmt: skip
    assert {"accuracy", "attention", "usage", "phases", "patched", "circuits", "length"} == {
        path.stem for path in (out / "figures").iterdir()
    }
    assert {"trainings", "study", "instruments"} <= set(said)


def test_a_second_study_takes_up_what_is_there(done, monkeypatch):
    results, out, _ = done
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*.safetensors")}
    from headlab.analyses.study.tree import training

    monkeypatch.setattr(training, "train", lambda *a, **b: pytest.fail("a finished training was done again"))
    trained = training.train_jobs(
        {name: job for name, job in tiny_jobs().items() if job.quick}, out / "runs", seed=0, seeds=2, device="cpu"
    )
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*.safetensors")} == before
    assert [run.seed for run in trained["forward-h2-d3"].runs] == [0, 1]
    assert trained["forward-h2-d3"].accuracy.tolist() == results["trainings"]["forward-h2-d3"]["path_accuracy"]
    with pytest.raises(ValueError, match="finished runs without seed 2"):
        training.train_jobs(
            {"forward-h2-d3": tiny_jobs()["forward-h2-d3"]}, out / "runs", seed=0, seeds=3, device="cpu"
        )


def test_every_named_training_can_be_made():
    made = {name: job.make() for name, job in jobs().items()}
    assert made["binary-curriculum-d9"].recipe.steps == 9800
    assert made["control-one-hot-wide"].architecture.config["d_head"] == 67
    assert {job.name for job in jobs().values()} == set(made)
    assert {"forward-h2-d3", "forward-h2-d5", "plain-descent-d3"} <= {n for n, job in jobs().items() if job.quick}


def trained(name: str, accuracy: list[float], heads: int = 2, steps: int = 1200) -> Trained:
    runs = [Run(k, 1000, round(1000 * (1 - a)), a, a, 0.1, Path("x")) for k, a in enumerate(accuracy)]
    return Trained(name, heads, 1, steps, tuple(runs))


def looked(score: float, first: str | None = "reverse", own: float = 0.1, other: float = 1.0) -> Look:
    """A two-head model with that specialisation; without a role's head that role is `own` right, the other `other`."""
    roles = ("backward", "reverse")
    scores = specialised(roles, ((0, 0), (0, 1)), np.eye(2), score)
    loss = {gone: {role: 1 - (own if role == gone else other) for role in roles} for gone in roles}
    heads = TreeHeads(Assignment(scores, roles, dict.fromkeys(roles, 1.0), loss), 1.0, {}, ())
    return Look("x", 0, heads, Formation({}, first, 1.0, {}), {}, 0.0, {})


def findings(**changes) -> Findings:
    names = [f"{kind}-d{d}" for kind in ("forward-h2", "backward-h1", "forward-h1") for d in (3, 5, 7, 10)]
    jobs_ = {n: trained(n, [1.0, 0.9995] if "h1" not in n or "back" in n else [0.0, 0.001]) for n in names}
    jobs_ |= {f"forward-h{h}-d5": trained("x", [1.0]) for h in (4, 6, 8)}
    jobs_ |= {f"binary-direct-d{d}": trained("x", [0.0, 0.1]) for d in (5, 7, 9)}
    jobs_ |= {f"binary-curriculum-d{d}": trained("x", [1.0, 1.0]) for d in (7, 9)}
    jobs_ |= {f"without-chain-l{k}-d{d}": trained("x", [0.5]) for k in range(1, 7) for d in (3, 5, 7)}
    jobs_["control-one-hot-wide"] = trained("x", [1.0, 1.0])
    looks = {n: [looked(0.98), looked(0.97)] for n in jobs_ if n.startswith("forward-h") and "h1" not in n}
    looks |= {"control-one-hot-wide": [looked(0.04), looked(0.7)], "plain-descent-d3": [looked(0.8)]}
    base = Findings(
        constructed=[Built("forward, random", 200, 512, 66, 50, 50, 50, 10.0)],
        trained=jobs_,
        looks=looks,
        constructed_score=1.0,
        untrained=[0.0, 0.001],
        length=[Row(5, [1.0, 1.0]), Row(20, [0.999, 1.0])],
        unseen=[Unseen("shapes", 1.0, 0.9995, 100)],
        plain={},
        never={1: [0.7], 3: [0.999]},
        taught={5: [1.0], 7: [0.9995]},
        generation={},
        guess={3: 0.2, 5: 0.15, 7: 0.1},
        command="headlab study tree",
        quick=False,
        seeds=2,
    )
    return replace(base, **changes)


def verdict_of(found: Findings) -> dict[str, str]:
    return {row.id: row.verdict for row in verdicts.judge(found)}


def test_verdicts_follow_their_rules():
    found = findings()
    said = verdict_of(found)
    assert said == {
        "T1": "exceeds", "T2": "exceeds", "T3": "not reached", "T4": "exceeds", "T5": "fails", "T6": "holds",
        "T7": "holds", "T8": "holds", "B4": "holds", "B5": "holds", "B6": "holds", "B9": "holds",
    }  # fmt: skip
    assert set(said) == {name for name, claim in load_claims().items() if claim.system == "tree"}
    for row in verdicts.judge(found):
        assert row.command == "headlab study tree"
        assert row.summary.endswith(".")


@pytest.mark.parametrize(
    ("claim", "verdict", "changes"),
    [
        ("T2", "not reached", {"forward-h2-d10": [0.9]}),
        ("T1", "holds", {"backward-h1-d10": [0.971]}),
        ("T5", "not reached", {"forward-h2-d10": [0.9]}),
        ("B5", "not reached", {"forward-h2-d10": [0.9985]}),
        ("B5", "fails", {"forward-h2-d10": [0.9]}),
        ("B6", "fails", {"binary-direct-d7": [1.0]}),
        ("B6", "not reached", {"binary-curriculum-d7": [0.9]}),
        ("T3", "exceeds", {"without-chain-l3-d5": [0.9], "without-chain-l5-d7": [0.9]}),
    ],
)
def test_other_accuracies_make_other_verdicts(claim, verdict, changes):
    base = findings()
    jobs_ = {**base.trained, **{name: trained(name, accuracy) for name, accuracy in changes.items()}}
    looks = {**base.looks, **{n: base.looks[n][: len(a)] for n, a in changes.items() if n in base.looks}}
    assert verdict_of(replace(base, trained=jobs_, looks=looks))[claim] == verdict


@pytest.mark.parametrize(
    ("claim", "verdict", "changes"),
    [
        ("T6", "fails", {"constructed": [Built("x", 3, 8, 10, 50, 49, 50, 1.0)]}),
        ("T8", "not reached", {"unseen": [Unseen("shapes", 1.0, 0.9, 100)]}),
        ("T8", "fails", {"unseen": [Unseen("shapes", 1.0, 0.1, 100)]}),
        ("T7", "not reached", {"looks": {"forward-h2-d3": [looked(0.9)]}}),
        ("T7", "fails", {"looks": {"forward-h2-d3": [looked(0.1)]}}),
        ("T7", "not reached", {"looks": {"forward-h2-d3": [looked(0.98, own=0.9)]}}),
        ("B4", "fails", {"looks": {"forward-h2-d3": [looked(0.98, "backward")]}}),
        ("B4", "not reached", {"looks": {"forward-h2-d3": [looked(0.98), looked(0.98, None)]}}),
        ("B9", "fails", {"looks": {"control-one-hot-wide": [looked(0.9), looked(0.8)]}}),
        ("B9", "not reached", {"looks": {"control-one-hot-wide": [looked(0.3), looked(0.8)]}}),
    ],
)
def test_other_findings_make_other_verdicts(claim, verdict, changes):
    base = findings()
    if "looks" in changes:
        kept = {n: v for n, v in base.looks.items() if not (claim == "B4" and n.startswith(("forward-h2", "plain")))}
        kept = {n: v for n, v in kept.items() if not (claim == "T7" and n.startswith("forward-h2"))}
        needed = {f"forward-h2-d{d}": [looked(0.98, None)] * 2 for d in (3, 5, 7, 10)}
        if claim in ("T7", "B4"):
            rows = {"T7": verdicts._division, "B4": verdicts._which_first}
            assert rows[claim](replace(base, looks={**kept, **changes["looks"]})).verdict == verdict
            return
        changes = {"looks": {**needed, **kept, **changes["looks"]}}
    assert verdict_of(replace(base, **changes))[claim] == verdict


def test_bars_are_met_or_not():
    found = findings(looks={**findings().looks, "forward-h2-d3": [with_figures(looked(0.98))]})
    found = replace(found, looks={n: [with_figures(look) for look in looks] for n, looks in found.looks.items()})
    rows = {row.what: row for row in bars(found)}
    assert all(row.met for row in rows.values()), [row for row in rows.values() if not row.met]
    assert rows["binary trees of depth 9, never trained on"].measured == 0.999
    worse = replace(found, untrained=[0.2], never={3: [0.5]}, generation={"ratio": {"median": 2.0}})
    missed = {row.what for row in bars(worse) if not row.met}
    assert missed == {
        "specialisation, untrained",
        "binary trees of depth 9, never trained on",
        "generation at depth 200, times faster",
    }


def with_figures(look: Look) -> Look:
    """The same with patches and circuits as they should be."""
    return replace(look, recovery={"goal": (0.99, 0.01)}, diagonal={"backward QK": 1.0})


def test_guessing_a_deepest_node():
    assert measure.guess_rate(1, trees=50) == pytest.approx(1 / 3)  # a root with three children
    assert 0.05 < measure.guess_rate(3, trees=200) < 0.6


def test_a_study_needs_two_seeds_and_a_folder(tmp_path):
    with pytest.raises(ValueError, match="at least 2 seeds"):
        study.run(StudyOptions(tmp_path / "a", seeds=1))
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="choose another --out"):
        study.run(StudyOptions(tmp_path / "file"))


def test_accuracy_at_a_depth_before_it_was_trained_on(tmp_path):
    from headlab.models.tree.runs import train

    tasks = [TreeTask(TreeSource(depths=(depth,), labels=16, shape="binary")) for depth in (1, 2)]
    plan = curriculum(tasks, (4, 4), (4, 2), d_model=8, d_head=4, recipe=replace(RECIPE, warmup=2, record=3))
    train(plan, (0, 1), tmp_path, validation=8, paths=10)
    rows = [Run(k, 0, 0, 0.0, 0.0, 0.0, tmp_path / "after-stage-1" / f"seed-{k}") for k in (0, 1)]
    found = measure.other_depth(Trained("x", 2, 1, 4, tuple(rows)), 2, count=10)
    assert len(found) == 2
    assert all(0 <= value <= 1 for value in found)
    assert np.isfinite(found).all()
