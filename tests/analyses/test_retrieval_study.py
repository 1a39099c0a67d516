"""The retrieval study on tiny trainings: what it takes up, verdicts by their rules, the report."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headlab.analyses.claims import load_claims
from headlab.analyses.head_count import heads_needed
from headlab.analyses.options.common import Common
from headlab.analyses.options.retrieval import StudyOptions
from headlab.analyses.study.retrieval import figures, measure, page, study, verdicts
from headlab.analyses.study.retrieval.bars import bars
from headlab.analyses.study.retrieval.findings import Findings, error_table
from headlab.analyses.study.retrieval.part import Part
from headlab.analyses.study.retrieval.plans import FAST, GROWN, Job, Way, jobs
from headlab.analyses.study.retrieval.records import Built, FourMax, Look, Memory, Pair, Run, Trained
from headlab.analyses.study.retrieval.training import train_jobs
from headlab.interp.alignment import Alignment
from headlab.interp.roles import Specialisation
from headlab.interp.statistics import chance
from headlab.models.retrieval.constructed import construct
from headlab.models.retrieval.witness import find_witness

TINY = Way("direct", 2, steps=3)
CLAIMS = {"R1", "R2", "R3", "R4", "R5", "R6", "R7", "R10", "B12"}


def tiny_jobs(*, quick: bool) -> dict[str, Job]:
    made = [Job("linear", d, 8, h, (TINY,)) for d in (2, 4) for h in range(1, d + 2)]
    return {job.name: job for job in made}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The results of a tiny quick study, and its folder."""
    out = tmp_path_factory.mktemp("study")
    patch = pytest.MonkeyPatch()
    patch.setattr(study, "jobs", tiny_jobs)
    patch.setattr(study, "constructed_table", lambda quick, seed: [measure._built(2, 3, 100.0, seed=seed)])
    patch.setattr(measure, "find_witness", lambda model, task, **more: find_witness(model, task, starts=2, steps=2))
    try:
        said = []
        options = StudyOptions(out, quick=True, synthetic_only=True)
        results = study.run(options, lambda what, done, total: said.append(what))
        yield results, out, said
    finally:
        patch.undo()


def test_a_study_writes_its_report_results_and_tables(done):
    results, out, said = done
    assert {row["id"] for row in results["claims"]} == {"R1", "R2", "R3", "R10", "B12"}
    assert results["skipped"] == ["R4", "R5", "R6", "R7", "R8", "R9", "B10"]
    assert len(results["trainings"]["linear-D4-T8-h3"]["nmse"]) == 2
    kept = json.loads((out / "results.json").read_text("utf-8"))
    assert kept["command"] == "headlab study retrieval --quick --synthetic-only"
    assert set(kept["by_heads"]["values"]) == {"1", "2", "3", "4", "5"}
    assert kept["headline"][0] == "As many heads as coordinates:"
    text = (out / "index.html").read_text("utf-8")
    assert not re.search(r'(src|href)="https?:', text)
    assert {path.stem for path in (out / "tables").iterdir()} == {
        "models", "heads", "alignment", "heads_needed", "constructed", "four_maxima", "memory", "pairs", "claims",
        "bars",
    }  # fmt: skip
    assert {path.stem for path in (out / "figures").iterdir()} == {
        "fall", "bound", "read", "witness", "division", "usage", "fewer",
    }  # fmt: skip
    assert {"trainings", "study", "roles", "pairs of sequences"} <= set(said)


def test_a_second_study_takes_up_what_is_there(done, monkeypatch):
    results, out, _ = done
    from headlab.models.retrieval import runs

    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*.safetensors")}
    assert before
    monkeypatch.setattr(runs, "train", lambda *a, **b: pytest.fail("a finished training was done again"))
    again = train_jobs(tiny_jobs(quick=True), out / "runs", seed=0, seeds=2, device="cpu")
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*.safetensors")} == before
    assert again["linear-D4-T8-h3"].errors.tolist() == results["trainings"]["linear-D4-T8-h3"]["nmse"]
    with pytest.raises(ValueError, match="another request"):
        train_jobs(tiny_jobs(quick=True), out / "runs", seed=1, seeds=2, device="cpu")


def test_another_part_adds_to_the_report(done, monkeypatch):
    _, out, _ = done
    part = Part(skipped=("R8",), results={"images": 3})
    monkeypatch.setattr(study, "jobs", tiny_jobs)
    monkeypatch.setattr(study, "_find", lambda *a: findings())
    monkeypatch.setattr(study, "_real", lambda *a: part)
    results = study.run(StudyOptions(out / "whole", common=Common()))
    assert results["real"] == {"images": 3}
    assert results["skipped"] == ["R8"]
    assert {row["id"] for row in results["claims"]} == CLAIMS
    drawn = {path.stem for path in (out / "whole" / "figures").iterdir()}
    assert {"encoders", "fixed", "layers", "stuck"} <= drawn


def test_every_named_training_can_be_made():
    made = jobs()
    assert len({job.name for job in made.values()}) == len(made)
    for job in made.values():
        assert job.architecture().config["n_heads"] == job.heads
        assert all(way.plan().steps > 0 for way in job.ways)
    assert made["fixed-D4-T8-h3"].architecture().config["d_model"] == 33
    assert made["mlp-D4-T8-h4"].architecture().config["d_model"] == 32  # the fixed total with four heads
    assert made["stuck-D4-T128-h4"].ways[0].seeds == 32
    assert made["gaussian1-D4-T128-h3"].family() != made["gaussian2-D4-T128-h3"].family()
    assert {(job.kind, job.length) for job in jobs(quick=True).values()} == {("linear", 8)}


def trained(job: Job, errors: list[float]) -> Trained:
    way = job.ways[-1].name
    return Trained(job, tuple(Run(way, k, e, e, 10, e >= 1e-3, Path("x")) for k, e in enumerate(errors)))


def linear_error(coordinates: int, length: int, heads: int) -> float:
    return 0.6 * (coordinates - heads) / coordinates if heads < coordinates else 2e-5 * length**0.2


def nonlinear_error(coordinates: int, length: int, heads: int) -> float:
    if heads >= coordinates:
        return 2e-5
    return {1: 7.5e-2 if length == 8 else 1.5e-1, 2: 3e-2, 3: 1.5e-2}[heads]


def looked(job: Job, score: float, seed: int = 0) -> Look:
    """A model with that specialisation."""
    roles = tuple(f"coordinate-{k}" for k in range(job.coordinates))
    used = np.zeros((job.heads, job.coordinates))
    used[range(min(used.shape)), range(min(used.shape))] = score
    heads = tuple((0, k) for k in range(job.heads))
    scores = Specialisation(roles, heads, used, used / 4, used, score, score, score, score, (9,) * job.coordinates)
    aligned = Alignment(score, score, heads, roles, used, used, (None,) * job.heads, chance([0.01, 0.02]))
    return Look(job, seed, 0.1, scores, aligned)


def findings(**changes) -> Findings:
    every = jobs()
    made = {}
    for name, job in every.items():
        cell = (job.coordinates, job.length, job.heads)
        level = linear_error(*cell) if job.encoder == "linear" else nonlinear_error(*cell)
        if job.kind == "long":
            level = 4e-6
        if job.kind == "layers2":
            level = 2e-2 if job.heads == 1 else 5e-4
        if job.kind == "stuck":
            made[name] = trained(job, [1e-5] * 31 + [0.2])
            continue
        made[name] = trained(job, [level, 1.1 * level])
    looks = {
        name: [looked(job, 0.96 if job.heads >= 4 else 0.1, k) for k in (0, 1, 2)]
        for name, job in every.items()
        if job.kind == "mlp" and job.coordinates == 4
    }
    pairs = [
        Pair("linear", d, 8, h, 0.1, 0.01 if h < d else 0.3, 2.0, 0.2, 0.9 if h < d else 0.1)
        for d in (2, 3, 4, 5)
        for h in range(1, d + 2)
    ] + [Pair("mlp", 4, 128, 1, 0.1, 0.01, 2.0, 0.2, 0.9)]
    pairs += [Pair("constructed", 4, 8, h, 0.1, 0.0, 2.0, 0.0, 1.0 if h < 4 else 0.05) for h in (3, 4)]
    base = Findings(
        trained=made,
        built=[Built(3, 32, 100.0, 4, 4, 0.1, 0.7, 0)],
        four=[FourMax(t, b, 1e-3 / b**2, 0.1 / b, 1 / b, 0.995, 0.99) for t in (8, 128) for b in (10.0, 1000.0)],
        memory=[Memory(8, 1e-15, 400, 3, 10), Memory(128, 1e-14, 7120, 7, 10)],
        pairs=pairs,
        looks=looks,
        untrained={t: chance([0.0, 0.001, 0.002]) for t in (8, 32, 128)},
        readings=measure.readings(made),
        controls=measure.controls(made),
        command="headlab study retrieval",
        quick=False,
        seeds=4,
    )
    return replace(base, **changes)


def verdict_of(found: Findings) -> dict[str, str]:
    return {row.id: row.verdict for row in verdicts.judge(found)}


def with_errors(changes: dict[str, list[float]]) -> Findings:
    base = findings()
    return replace(base, trained={**base.trained, **{n: trained(base.trained[n].job, e) for n, e in changes.items()}})


def test_verdicts_follow_their_rules():
    found = findings()
    said = verdict_of(found)
    assert said == {
        "R1": "holds", "R2": "holds", "R3": "holds", "R4": "exceeds", "R5": "not reached", "R6": "not reached",
        "R7": "not reached", "R10": "holds", "B12": "holds",
    }  # fmt: skip
    own = {name for name, claim in load_claims().items() if claim.system == "retrieval" and not claim.not_tested}
    assert set(said) | set(verdicts.REAL) == own
    for row in verdicts.judge(found):
        assert row.command == "headlab study retrieval"
        assert row.summary.endswith(".")
    theory = next(row for row in verdicts.judge(found) if row.id == "R2")
    assert theory.measured["exponent"]["T8_h1_D4"] < 0 < theory.measured["exponent"]["T128_h1_D4"]
    assert "T = 128, 1 of 4 heads" in theory.summary


@pytest.mark.parametrize(
    ("claim", "verdict", "changes"),
    [
        ("R4", "not reached", {"long-D4-T128-h4": [6e-6]}),
        ("R4", "holds", {"long-D4-T128-h4": [5.23e-6], "long-D4-T8-h4": [6.1e-5]}),
        ("R4", "fails", {"mlp-D4-T128-h4": [5e-3]}),
        ("R5", "fails", {"fixed-D4-T128-h3": [1e-5], "mlp-D4-T128-h4": [1e-5]}),
        ("R5", "exceeds", {"long-D4-T128-h4": [1e-7]}),
        ("R6", "exceeds", {"mlp-D3-T128-h3": [1e-7]}),
        ("R6", "fails", {"mlp-D3-T128-h3": [2e-2]}),
        ("R7", "fails", {"layers2-D4-T16-h2": [1.5e-2]}),
        ("R7", "exceeds", {"layers2-D4-T16-h2": [1e-6]}),
        ("B12", "not reached", {f"mlp-D4-T{t}-h3": [3e-5] for t in (8, 32, 128)}),
    ],
)
def test_other_errors_make_other_verdicts(claim, verdict, changes):
    assert verdict_of(with_errors(changes))[claim] == verdict


def scored(at: float, below: float) -> dict[str, list[Look]]:
    return {
        name: [looked(looks[0].job, at if looks[0].job.heads >= 4 else below)]
        for name, looks in findings().looks.items()
    }


def pairs_that_force(few: float, enough: float) -> list[Pair]:
    return [replace(p, forced=few if p.heads < p.coordinates else enough) for p in findings().pairs]


WRONG = {"linear D=2": (2, heads_needed(error_table(findings().trained, "linear", 4)))}


@pytest.mark.parametrize(
    ("claim", "verdict", "changes"),
    [
        ("R1", "fails", {"built": [Built(3, 32, 100.0, 4, 4, 0.1, 1.2, 1)]}),
        ("R1", "fails", {"four": [FourMax(8, b, 1e-3 * b, 0.01, 1 / b, 0.9, 0.9) for b in (10.0, 1000.0)]}),
        ("R2", "not reached", {"pairs": pairs_that_force(0.3, 0.1)}),
        ("R2", "not reached", {"pairs": pairs_that_force(0.9, 0.3)}),
        ("R2", "fails", {"pairs": pairs_that_force(0.1, 0.1)}),
        ("R3", "fails", {"memory": [Memory(8, 1e-9, 400, 3, 10)]}),
        ("R10", "not reached", {"controls": WRONG}),
        ("B12", "not reached", {"looks": scored(0.7, 0.1)}),
        ("B12", "not reached", {"looks": scored(0.96, 0.5)}),
        ("B12", "fails", {"looks": scored(0.1, 0.4)}),
    ],
)
def test_other_findings_make_other_verdicts(claim, verdict, changes):
    assert verdict_of(findings(**changes))[claim] == verdict


def test_a_number_of_coordinates_read_off_wrongly_everywhere_is_a_failure():
    wrong = {("linear", 2): findings().readings["linear", 4]}
    assert verdict_of(findings(readings=wrong))["R10"] == "fails"


def test_bars_are_met_or_not():
    found = findings()
    rows = {row.what: row for row in bars(found)}
    assert all(row.met for row in rows.values()), [row for row in rows.values() if not row.met]
    assert rows["stuck seeds, upper end of the interval"].measured == pytest.approx(0.162, abs=1e-3)
    worse = with_errors({"linear-D5-T32-h5": [0.2, 3e-4], "stuck-D4-T128-h4": [1e-5] * 27 + [0.2] * 5})
    worse = replace(worse, looks=scored(0.96, 0.4), untrained={8: chance([0.1])})
    assert {row.what for row in bars(worse) if not row.met} == {
        "linear encoder, NMSE with as many heads as coordinates",
        "linear encoder, times the error with one head fewer",
        "stuck seeds, upper end of the interval",
        "specialisation, one head fewer, median",
        "specialisation, untrained, median",
    }


def test_both_ways_of_training_count_and_the_last_is_looked_at():
    job = Job("mlp", 4, 8, 4, (FAST, GROWN), encoder="mlp")
    runs = (Run("fast", 0, 1e-5, 2e-5, 9, False, Path("x")), Run("grown", 0, 1e-2, 1e-2, 9, True, Path("y")))
    both = Trained(job, runs)
    assert both.best.way == "fast"
    assert [run.way for run in both.last] == ["grown"]
    assert (both.stuck.successes, both.stuck.trials) == (1, 2)


def test_random_targets_keep_their_bound_and_the_control_forces_an_error():
    row = measure._built(3, 8, 100.0, seed=1)
    assert (row.violations, row.models) == (0, 4)
    assert 0 < row.used <= 1
    sharp = measure.four_maxima([8], [10.0, 1000.0], seed=0)
    assert sharp[1].nmse <= 1e-8 < sharp[0].nmse
    assert sharp[1].usage >= 0.99 > sharp[0].usage
    assert sharp[1].attention > sharp[0].attention > 0.8
    assert measure.memory_table([8], seed=0)[0].max_error <= 1e-12


def test_a_bound_that_is_too_small_is_seen(monkeypatch):
    def halved(task, **more):
        made = construct(task, **more)
        return replace(made, notes={**made.notes, "bound": made.notes["bound"] / 1000})

    monkeypatch.setattr(measure, "construct", halved)
    assert measure._built(2, 32, 10.0, seed=0).violations > 0


def test_words_for_numbers():
    assert figures.power(1e-4) == "10⁻⁴"
    assert figures.power(1.0) == "1"
    assert page.round_down(1294.0) == "1\N{NARROW NO-BREAK SPACE}200"
    assert page.round_down(98.7) == "98"
    axis = figures.errors_axis(3e-6)
    assert axis.domain == (1e-6, 1.0)


def test_a_study_needs_two_seeds_and_a_folder(tmp_path):
    with pytest.raises(ValueError, match="at least 2 seeds"):
        study.run(StudyOptions(tmp_path / "a", seeds=1))
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="choose another --out"):
        study.run(StudyOptions(tmp_path / "file"))
