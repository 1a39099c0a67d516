"""The sparse parity study on a small plan: verdicts by their rules, the report, and the figures' numbers."""

import json
from dataclasses import replace

import numpy as np
import pytest

from headlab.analyses.claims import load_claims
from headlab.analyses.options.xor import StudyOptions
from headlab.analyses.study.xor import samples as s
from headlab.analyses.study.xor import verdicts
from headlab.analyses.study.xor.measure import measure
from headlab.analyses.study.xor.networks import smallest_attention
from headlab.analyses.study.xor.one_step import one_step
from headlab.analyses.study.xor.plan import FULL, QUICK
from headlab.analyses.study.xor.study import STAGES, publish, run

TINY = replace(
    QUICK,
    bars=((32, 20), (1024, 20)),
    widths=(2.0, 6.0),
    width_bits=(32, 256),
    width_seeds=10,
    kappas=(1 / 16, 1024.0),
    starts=(64, 128),
    start_seeds=30,
    maps_bits=32,
    maps_width=21,
    maps_seeds=4,
    maps_few=2,
    maps_sizes=(1e-1, 1e3, 1e6),
    maps_coarse=(1e-2, 1e3),
    maps_steps=8,
    one_step_samples=tuple((bits, 12, (1 / 32, 1 / 4, 1.0, 8.0)) for bits in (12, 16, 24)),
    many_step_samples=tuple((bits, 8, (0.25, 1.0, 8.0, 16.0)) for bits in (12, 16, 24)),
    wide_samples=tuple((bits, 8, (0.25, 1.0, 8.0, 16.0)) for bits in (12, 16, 24)),
    sample_widths=(10, 14, 20),
    sample_widths_bits=24,
    sample_widths_seeds=12,
    parity_heads=(3,),
    parity_bits=(32,),
    parity_seeds=4,
    networks=((12, (4,)), (16, (4,)), (24, (4,))),
    network_seeds=2,
    attention=(32, 64, 128),
    attention_seeds=12,
    equality=((6, 2),),
    shown=32,
    shown_seeds=2,
)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """What the tiny plan measures, and the stages that it named."""
    stages = []
    out = tmp_path_factory.mktemp("checkpoints")
    return measure(TINY, out, stage=stages.append), stages


@pytest.fixture(scope="module")
def published(measured, tmp_path_factory):
    """The folder of the report, and what `publish` returned."""
    out = tmp_path_factory.mktemp("study")
    return out, publish(measured[0], StudyOptions(out=out, quick=True))


def test_every_claim_of_the_system_gets_a_verdict(measured, published):
    out, result = published
    known = {name for name, claim in load_claims().items() if claim.system == "xor"}
    assert {row["id"] for row in result["claims"]} == known
    kept = json.loads((out / "results.json").read_text())["claims"]
    assert [(row["id"], row["verdict"], row["summary"]) for row in kept] == [
        (row["id"], row["verdict"], row["summary"]) for row in result["claims"]
    ]
    for row in result["claims"]:
        assert row["summary"].endswith(".")
        assert row["command"] == "headlab study xor --quick"
        assert row["interval"] is None or row["interval"][0] <= row["interval"][1]
    assert len(measured[1]) == STAGES - 1  # and the report


def test_the_report_is_one_page_with_its_figures_and_tables(published):
    out, result = published
    page = (out / "index.html").read_text(encoding="utf-8")
    assert result["report"] == str(out / "index.html")
    assert len(page) < 400_000
    assert "http" not in page.replace("http://www.w3.org", "")
    assert page.count("<h2") >= 8
    drawn = {path.stem for path in (out / "figures").iterdir()}
    assert {"one_step", "samples_needed", "parameters", "more_bits", "which_bit"} <= drawn
    assert {path.stem for path in (out / "tables").iterdir()} >= {"one_step", "samples", "claims"}


def test_a_quick_plan_says_what_it_leaves_out():
    assert QUICK.left_out == ("X6", "B7")
    assert FULL.left_out == ()


def test_one_step_counts_what_it_says():
    cell = one_step(64, 25, range(40))
    assert cell.one_to_one.successes + cell.together.successes <= cell.seeds == 40
    assert cell.one_to_one.low <= cell.one_to_one.value <= cell.one_to_one.high
    assert len(cell.loss) == cell.one_to_one.successes
    assert cell.loss.max() < 1e-3
    assert cell.attention.min() > 0.99
    same = one_step(64, 25, range(40), start="equal")
    assert same.one_to_one.successes == 0


def test_batches_of_seeds_change_nothing(monkeypatch):
    from headlab.analyses.study.xor import one_step as room

    whole = room.one_step(32, 10, range(12))
    monkeypatch.setattr(room, "MOST_NUMBERS", 32 * 10 * 5)
    parts = room.one_step(32, 10, range(12))
    assert whole.one_to_one == parts.one_to_one
    assert np.allclose(whole.loss, parts.loss, rtol=0, atol=1e-12)


@pytest.mark.parametrize("power", [1, 2])
def test_the_exponent_of_a_known_law_is_found(power):
    rng = np.random.default_rng(power)
    curves = []
    for bits in (16, 32, 64, 128):
        counts = tuple(round(bits**power * factor) for factor in (1, 2, 4, 8, 16))
        threshold = 3 * bits**power * np.exp(0.5 * rng.standard_normal(400))
        table = np.asarray(counts) >= threshold[:, None]
        curves.append(s.SampleCurve(bits, 8, counts, table, table))
    found = s.exponent(curves)
    assert found.value == pytest.approx(power, abs=0.1)
    assert found.low <= power <= found.high
    assert found.high - found.low < 0.3
    assert found.needed[64] == pytest.approx(3 * 64**power, rel=0.15)


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


def test_verdicts_turn_with_the_numbers(measured):
    def verdict(name, **changed):
        return {row.id: row.verdict for row in verdicts.claims(replace(results, **changed), "x")}.get(name)

    results = measured[0]
    assert verdict("X7") == "holds"
    assert verdict("X6", samples=None) is None
    assert verdict("X7", equality=[replace(each, loss=1e-6) for each in results.equality]) == "fails"
    assert verdict("X5", starts={**results.starts, "independent": results.starts["equal"]}) == "holds"
    assert verdict("X4", bars=[replace(cell, attention=cell.attention * 0.5) for cell in results.bars]) == "fails"
    assert verdict("X3", maps=[replace(each, many_loss=each.many_loss * 0) for each in results.maps]) == "fails"
    assert results.samples is not None
    for value, expected in ((1.0, "holds"), (2.0, "fails")):
        law = replace(results.samples.once_exponent, value=value, low=value - 0.1, high=value + 0.1)
        assert verdict("X6", samples=replace(results.samples, once_exponent=law)) == expected


def test_the_smallest_width_grows_slowly():
    found = smallest_attention([32, 1024], range(20))
    assert 2 <= found[32].width <= found[1024].width <= 4 * found[32].width
    assert all(cell.one_to_one.value >= 0.75 for cell in found.values())


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="cannot be written"):
        run(StudyOptions(out=tmp_path / "file"))
