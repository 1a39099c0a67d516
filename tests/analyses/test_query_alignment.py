"""Alignment over training: by hand, on sparse parity's own closed form, and on another task's model."""

from pathlib import Path

import numpy as np
import pytest
import torch

from headlab.analyses.query_alignment import align_ensemble, curve, over_training
from headlab.interp.alignment import align, align_roles
from headlab.models.checkpoints import load
from headlab.models.esp.constructed import construct
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask
from headlab.models.xor.architecture import to_model
from headlab.models.xor.descent import DescentRule, descend
from headlab.models.xor.ensemble import draw, step_size
from headlab.models.xor.runs import Method, train
from headlab.models.xor.task import XorTask


def by_hand(rows: list[list[float]]):
    targets = torch.eye(2, 4, dtype=torch.bool)[None]
    return align(torch.tensor(rows, dtype=torch.float64)[None], targets, names=("i", "j"), shuffles=0)


def test_a_curve_by_hand() -> None:
    even = by_hand([[0.25] * 4, [0.25] * 4])
    half = by_hand([[0.0, 0.625, 0.375, 0.0], [0.25] * 4])
    done = by_hand([[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    traced = curve([0, 1, 5], [even, half, done])
    assert traced.targets == ("j", "i")  # the last step's matching is used throughout
    assert traced.alignment.tolist() == pytest.approx([0.0, 0.25, 1.0])
    assert traced.scores.tolist() == [[0.0, 0.0], [pytest.approx(0.5), 0.0], [1.0, 1.0]]
    frame = traced.to_frame()
    assert len(frame) == 6
    assert frame[frame.step == 5].score.tolist() == [1.0, 1.0]
    assert "0.000 at step 0" in traced.render().description
    with pytest.raises(ValueError, match="one alignment per step"):
        curve([0, 1], [even])


def test_the_closed_form_and_the_transformer_read_the_same() -> None:
    task = XorTask(40, (7, 31))
    start = draw(task, width=23, seeds=range(4))
    after = descend(start, DescentRule("plain", step_size(task, 23, 3.0)), 2).final
    for models in (start, after):
        for row, closed in enumerate(align_ensemble(models)):
            found = align_roles(to_model(models, row), task.roles(count=8), shuffles=0)
            assert np.abs(found.matrix - closed.matrix).max() < 1e-12
            assert np.array_equal(found.ranks, closed.ranks)
            assert found.matched == closed.matched


def test_alignment_starts_at_nothing_and_one_step_takes_it_to_one() -> None:
    task = XorTask(64)
    start = draw(task, width=32, seeds=range(40))
    after = descend(start, DescentRule("plain", step_size(task, 32)), 1).final
    before, then = ([each.alignment for each in align_ensemble(models)] for models in (start, after))
    assert np.median(before) < 0.005
    assert np.median(then) > 0.999
    together = after.placement().together
    assert bool(together.any())  # both heads on one target: half of the alignment is there
    assert [then[row] for row in together.nonzero()[:, 0].tolist()] == pytest.approx([0.5] * int(together.sum()))


def test_other_maps_stay_unaligned_after_one_step() -> None:
    task = XorTask(64)
    for kind in ("linear", "erf", "normalised-linear", "normalised-erf"):
        start = draw(task, width=32, seeds=range(10), kind=kind)
        best = 0.0
        for exponent in range(-4, 9, 2):
            after = descend(start, DescentRule("plain", 10.0**exponent), 1).final
            best = max(best, float(np.median([each.alignment for each in align_ensemble(after)])))
        assert best < 0.1


def test_over_training_reads_a_checkpoints_history(tmp_path: Path) -> None:
    task = XorTask(24, (2, 9))
    train(task, Method("plain", steps=16), range(2), tmp_path / "runs")
    checkpoint = load(tmp_path / "runs")
    traced = over_training(tmp_path / "runs", task.roles(count=8))
    assert traced.steps == (0, 1, 2, 4, 8, 16)
    assert traced.alignment[-1] == pytest.approx(align_roles(checkpoint.model, task.roles(count=8)).alignment, abs=1e-6)
    assert traced.alignment[0] < 0.05 < 0.95 < traced.alignment[-1]


def test_the_same_instrument_reads_endpoint_selection() -> None:
    # the construction's '#' gives half of its attention to the endpoint asked for and half to itself: 4 keys, no more
    task = EspTask(read_graph("complete:5"))
    found = align_roles(construct(task, "two-head").model, task.roles(), shuffles=8)
    assert found.matched == ("endpoint 1", "endpoint 2")
    assert found.alignment == pytest.approx((1 / 2 - 1 / 4) / (3 / 4), abs=1e-3)
    assert found.rank == pytest.approx(0.5)
    assert np.abs(found.matrix[[0, 1], [1, 0]]).max() == 0.0
