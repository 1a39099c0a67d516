"""The head-count study on real data: cells that are kept, readings of made-up tables, verdicts either way."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from headlab.analyses.options.common import Common
from headlab.analyses.options.retrieval import StudyOptions
from headlab.analyses.study.retrieval.real import part_of, real_part
from headlab.analyses.study.retrieval.real import sources as sources_of
from headlab.analyses.study.retrieval.real.cells import Measured, keep, kept, train_cell
from headlab.analyses.study.retrieval.real.plans import DIGITS, PASSAGES, PICTURES, Cell, Plan, plans
from headlab.analyses.study.retrieval.real.readings import (
    deficits,
    error_table,
    frame,
    pooled_width,
    reached,
    readings,
)
from headlab.analyses.study.retrieval.real.runs import Found, in_turn, measure
from headlab.analyses.study.retrieval.real.sources import Source, draw, source
from headlab.analyses.study.retrieval.real.verdicts import passages_claim, pictures_claim, width_claim, worse
from headlab.models.classifier.learner import Data
from headlab.models.passages.pairs import Pairs

TINY = replace(DIGITS, sizes=(8, 10), heads=(1, 2, 6), fixed=(1, 6), train=64, held=16, passes=1, layers=1, seeds=2)


def tiny_data(side: int) -> Data:
    generator = torch.Generator().manual_seed(side)
    length = (side // 2) ** 2
    rows, right = torch.randn(80, length, 4, generator=generator), torch.randint(10, (80,), generator=generator)
    return Data(rows[:64], right[:64], rows[64:], right[64:])


def tiny_source(asked: list[int] | None = None) -> Source:
    def sequences(side):
        if asked is not None:
            asked.append(side)
        return tiny_data(side)

    return Source("made", 10, {"data": "made"}, sequences)


def made_up(plan: Plan, accuracy, *, source: str = "made", held: float = 0.4) -> Found:
    """accuracy(family, length, heads) is the mean of the seeds, which lie .01 apart, more for more heads."""
    cells = []
    for cell in plan.cells():
        middle = accuracy(cell.family, cell.length, cell.heads)
        values = tuple(min(1.0, middle + 0.01 * (1 + cell.heads / 50) * (k - 1)) for k in range(plan.seeds))
        cells.append(Measured(cell, tuple(range(plan.seeds)), values, (held,) * plan.seeds, values, values, 100, 60.0))
    baseline = dict.fromkeys(plan.sizes, (0.5, 0.45)) if plan.kind == "passages" else {}
    return Found(plan, source, {}, cells, baseline)


def width_matters(family, length, heads):
    return 0.9 if family == "fixed" else min(0.95, 0.3 + 0.1 * heads)


def heads_matter(family, length, heads):
    return min(0.95, 0.3 + 0.1 * heads)


def uneven(accuracy):
    """The same, with one wide head a little worse the longer the sequences are: equal shares have no interval."""
    return lambda family, length, heads: (
        accuracy(family, length, heads) - 1e-4 * length * (family == "fixed" and heads == 1)
    )


def test_the_plans_cover_what_was_asked():
    for plan in (DIGITS, PICTURES, PASSAGES):
        assert plan.seeds >= 3
        assert len(plan.sizes) >= 3
        assert {1, 2, 4, 6, 8, 10, 12} <= set(plan.heads)
        assert plan.meeting() == 6
        assert min(plan.fixed) == 1
    assert [PICTURES.length(side) for side in PICTURES.sizes] == [16, 25, 36]
    assert PICTURES.width == 16
    assert PICTURES.layers == 4
    assert PICTURES.patch == 8
    assert (min(PASSAGES.sizes), max(PASSAGES.sizes), PASSAGES.layers) == (8, 64, 2)
    assert [plan.kind for plan in plans()] == ["digits", "passages"]
    assert [plan.kind for plan in plans(quick=True, pictures=True)] == ["digits", "pictures", "passages"]


def test_the_families_share_one_model_and_short_sequences_come_first():
    names = [cell.name for cell in TINY.cells() if cell.length == 16]
    assert sorted(set(names)) == ["digits-T16-h1-E24", "digits-T16-h1-E4", "digits-T16-h2-E8", "digits-T16-h6-E24"]
    assert len(names) == 5
    order = [(plan.kind, cell.length) for plan, cell in in_turn([DIGITS, PICTURES, PASSAGES])]
    assert list(dict.fromkeys(order)) == [
        *[("digits", t) for t in (16, 25, 36)],
        *[pair for t, p in zip((16, 25, 36), (8, 24, 64)) for pair in (("pictures", t), ("passages", p))],
    ]


def test_an_interrupted_study_goes_on_to_the_same_results(tmp_path, monkeypatch):
    whole = measure([TINY], {"digits": tiny_source()}, tmp_path / "whole")[0]
    done = []

    def stop(what, number, count):
        done.append(what)
        if number == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure([TINY], {"digits": tiny_source()}, tmp_path / "cut", report=stop)
    assert len(list((tmp_path / "cut").iterdir())) == 4
    asked: list[int] = []
    rest = measure([TINY], {"digits": tiny_source(asked)}, tmp_path / "cut")[0]
    assert asked == [10, 10, 10, 10]
    assert [(m.cell, m.accuracy, m.held_accuracy) for m in rest.cells] == [
        (m.cell, m.accuracy, m.held_accuracy) for m in whole.cells
    ]
    again = measure([TINY], {"digits": Source("made", 10, {"data": "made"}, pytest.fail)}, tmp_path / "cut")[0]
    assert again.cells == rest.cells


def test_a_cell_of_other_data_settings_or_seeds_is_measured_anew(tmp_path):
    cell, about = TINY.cells()[0], {"data": "made"}
    made = train_cell(cell, TINY, tiny_data(8), classes=10, seeds=[0, 1])
    keep(tmp_path, made, TINY, about)
    assert kept(tmp_path, cell, TINY, about, seeds=[0, 1]) == made
    assert kept(tmp_path, cell, TINY, {"data": "other"}, seeds=[0, 1]) is None
    assert kept(tmp_path, cell, replace(TINY, passes=2), about, seeds=[0, 1]) is None
    assert kept(tmp_path, cell, TINY, about, seeds=[0, 2]) is None
    assert kept(tmp_path, replace(cell, heads=3), TINY, about, seeds=[0, 1]) is None
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".json"]


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 1}'])
def test_a_damaged_cell_is_named(tmp_path, content):
    cell = TINY.cells()[0]
    (tmp_path / f"{cell.name}.json").write_text(content)
    with pytest.raises(ValueError, match=rf"{cell.name}\.json' is no cell of a head-count study"):
        kept(tmp_path, cell, TINY, {}, seeds=[0])


def test_a_seed_trains_alike_whoever_trains_with_it():
    cell = TINY.cells()[0]
    both = train_cell(cell, TINY, tiny_data(8), classes=10, seeds=[0, 1])
    second = train_cell(cell, TINY, tiny_data(8), classes=10, seeds=[1])
    assert second.accuracy[0] == pytest.approx(both.accuracy[1], abs=2 / 64)
    assert both.parameters == second.parameters > 0


def test_deficits_tell_heads_from_width():
    plan = replace(PICTURES, sizes=(32,))
    (wide,), (narrow,) = (deficits([made_up(plan, each)]) for each in (width_matters, heads_matter))
    assert (wide.heads, narrow.heads) == (6, 6)
    assert wide.growing.value == pytest.approx(0.5)
    assert wide.fixed.value == pytest.approx(0.0)
    assert wide.width.value == pytest.approx(1.0)
    assert narrow.fixed.value == pytest.approx(0.5)
    assert narrow.width.value == pytest.approx(0.0, abs=1e-9)
    assert wide.width.low <= wide.width.value <= wide.width.high


def test_without_a_deficit_there_is_no_share_and_no_nan_in_a_verdict():
    found = made_up(replace(DIGITS, sizes=(8,)), lambda *cell: 0.5)
    rows = deficits([found])
    assert np.isnan(rows[0].width.value)
    assert pooled_width(rows) is None
    assert width_claim(rows, "", seeds=3) is None


def test_the_width_claim_can_go_either_way():
    verdicts = {}
    for name, accuracy in (
        ("width", width_matters),
        ("heads", heads_matter),
        ("half", lambda f, t, h: 0.55 + 0.2 * (t != 16) if (f, h) == ("fixed", 1) else 0.3 + 0.1 * h),
    ):
        even = uneven(accuracy)
        found = [made_up(plan, lambda f, t, h, a=even: a(f, t, min(h, 7))) for plan in (DIGITS, PICTURES)]
        claim = width_claim(deficits(found), "command", seeds=3)
        assert claim is not None
        verdicts[name] = claim.verdict
        assert claim.interval is not None
        low, high = claim.interval
        assert low <= claim.measured["share"] <= high
    assert verdicts["width"] == "holds"
    assert verdicts["heads"] == "fails"
    assert verdicts["half"] == "not reached"


def test_passages_do_not_count_for_the_claim_on_images():
    rows = deficits([made_up(DIGITS, uneven(width_matters)), made_up(PASSAGES, heads_matter)])
    claim = width_claim(rows, "", seeds=3)
    assert claim is not None
    assert claim.verdict == "holds"
    assert width_claim([row for row in rows if row.data == "passages"], "", seeds=3) is None


def at(eight: float, later: float):
    return lambda f, t, h: 0.5 if h < 8 else eight if h < 10 else later


def test_the_pictures_claim_is_judged_on_the_full_set_only():
    full = replace(PICTURES, train=50_000)
    part, holds, exceeds, short = (
        pictures_claim(made_up(plan, accuracy), "command")
        for plan, accuracy in (
            (PICTURES, at(0.92, 0.97)),
            (full, at(0.92, 0.97)),
            (full, at(0.97, 0.995)),
            (full, at(0.6, 0.97)),
        )
    )
    assert part.verdict == "not reached"
    assert holds.verdict == "holds"
    assert exceeds.verdict == "exceeds"
    assert short.verdict == "not reached"
    assert "One picture in 62" in part.summary
    assert "One picture" not in holds.summary
    assert pictures_claim(made_up(replace(PICTURES, heads=(1, 6)), heads_matter), "") is None


def test_the_passages_claim_is_judged_on_ms_marco_only():
    near, far = (lambda f, t, h: 0.932 if h < 10 else 0.991), (lambda f, t, h: 0.5)
    own, holds, short = (
        passages_claim(made_up(PASSAGES, accuracy, source=name), "command")
        for name, accuracy in (("documentation", near), ("MS MARCO", near), ("MS MARCO", far))
    )
    assert own.verdict == "not reached"
    assert "45.0" in own.summary
    assert holds.verdict == "holds"
    assert short.verdict == "not reached"
    assert worse("exceeds", "holds") == "holds"


def test_where_the_fall_lies_is_read_off_the_errors():
    def fall(family, length, heads):
        return 0.4 + 0.02 * heads if heads < 8 else 0.999

    found = made_up(PICTURES, fall)
    assert reached(found, "growing", 0.96) == 8
    assert reached(found, "growing", 1.5) is None
    answers = readings([found])
    assert answers["pictures", "growing"].needed in (7, 8)
    flat = readings([made_up(PICTURES, lambda *cell: 0.5)])
    assert flat["pictures", "growing"].needed == 1
    assert float(error_table(found, "growing")["error"].min()) == 0.5 / PICTURES.train
    table = frame([found])
    assert len(table) == 3 * len(PICTURES.cells())
    assert set(table["family"]) == {"growing", "fixed"}


def test_a_part_has_claims_figures_tables_and_says_what_it_leaves_out():
    found = [made_up(DIGITS, width_matters), made_up(PICTURES, width_matters), made_up(PASSAGES, heads_matter)]
    part = part_of(found, "headlab study retrieval")
    assert [claim.id for claim in part.claims] == ["R8", "R9", "B10"]
    assert not part.skipped
    assert set(part.figures) == {"width", "heads_digits", "heads_pictures", "heads_passages"}
    assert all(figure.description and "nan" not in figure.svg.lower() for figure in part.figures.values())
    text = str(part.sections[0].text)
    assert "Digits: one head trails 6 heads by 50 points" in text
    assert "0 % of that was width" in text.replace("\u202f", " ").replace("\u00a0", " ")
    assert part.bars[0].met
    json.dumps(part.results)
    assert part_of(found[:1], "", quick=True).skipped == ["R8", "R9"]
    assert part_of([], "").skipped == ["R8", "R9", "B10"]


def test_a_study_of_few_cells_runs_from_options_to_a_part(tmp_path, monkeypatch):
    from headlab.analyses.study.retrieval.real import study

    passages = replace(PASSAGES, sizes=(8,), heads=(1, 6), fixed=(1, 6), train=24, held=8, passes=1, batch=8)
    monkeypatch.setattr(study, "plans", lambda quick, pictures: [TINY, passages])
    texts = [f"Text number {k} on thing {k % 7} and part {k % 5} of the whole" for k in range(80)]
    pairs = Pairs("made", tuple(texts[:40]), tuple(texts[40:]), np.arange(40))
    monkeypatch.setattr(sources_of, "documentation", lambda packages: pairs)
    monkeypatch.setattr(sources_of, "encoder_at_hand", lambda: "tfidf")
    part = real_part(StudyOptions(tmp_path, quick=True, seeds=2))
    assert {"R8", "R9"} <= set(part.skipped)
    assert {claim.id for claim in part.claims} | set(part.skipped) == {"R8", "R9", "B10"}
    assert part.results["settings"]["passages"]["encoder"] == "tfidf"
    assert len(part.tables["real_cells"]) == 2 * (len(TINY.cells()) + 4)


def test_wrong_places_are_refused_before_anything_is_trained(tmp_path):
    for options, said in (
        (StudyOptions(tmp_path, images=str(tmp_path / "nowhere"), common=Common()), "no such file or folder"),
        (StudyOptions(tmp_path, passages=str(tmp_path / "nowhere"), common=Common()), "no such folder"),
    ):
        with pytest.raises(FileNotFoundError, match=said):
            real_part(options)
    assert not (tmp_path / "real").exists()


def test_too_few_pairs_are_refused_and_a_draw_repeats():
    pairs = Pairs("made", tuple("abcdef"), tuple("uvwxyz"), np.arange(6))
    first, again, other = (draw(pairs, 4, seed) for seed in (0, 0, 3))
    assert first.questions == again.questions != other.questions
    assert [pairs.passages[pairs.questions.index(q)] for q in first.questions] == list(first.passages)
    with pytest.raises(ValueError, match="6 pairs, the study takes 7"):
        draw(pairs, 7, 0)


def test_digits_of_a_plan_are_its_first_training_digits():
    data = source(replace(DIGITS, train=30, held=20), images=None, passages="installed").sequences(10)
    assert data.train.shape == (30, 25, 4)
    assert data.held.shape == (20, 25, 4)


def test_a_cell_knows_its_model():
    cell = Cell("digits", "fixed", 8, 16, 5, 24, 5)
    design = cell.architecture(features=4, classes=10, layers=1)
    assert (design.config["d_model"], design.config["d_head"], design.config["n_heads"]) == (24, 5, 5)
    assert cell.name == "digits-T16-h5-E24"


def test_a_study_says_that_a_place_is_wrong_before_it_trains(tmp_path, monkeypatch):
    from headlab.analyses.study.retrieval import study

    monkeypatch.setattr(study, "_find", lambda *rest: pytest.fail("trained"))
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        study.run(StudyOptions(tmp_path, images=str(tmp_path / "nowhere")))
