"""Pictures: draws that are balanced and repeatable, patches, and borders."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headlab.models.images.patches import cut, extend, length, sequences
from headlab.models.images.pictures import Pictures, Shelf, digits


def shelf(train=12, test=6, classes=3) -> Shelf:
    labels = {"train": np.arange(train) % classes, "test": np.arange(test) % classes}

    def read(split, rows):
        return np.broadcast_to(rows[:, None, None, None], (len(rows), 1, 4, 4)).astype(np.uint8)

    return Shelf("made", tuple("abc"), labels, read)


def test_a_draw_has_as_many_of_each_class_and_a_smaller_one_is_part_of_it():
    large, small = shelf().draw(9, 3, seed=2), shelf().draw(6, 3, seed=2)
    assert torch.bincount(large.targets).tolist() == [3, 3, 3]
    assert set(small.train[:, 0, 0, 0].tolist()) < set(large.train[:, 0, 0, 0].tolist())
    assert torch.equal(large.targets, (large.train[:, 0, 0, 0] * 255).round().long() % 3)


def test_draws_differ_by_seed_and_repeat():
    draws = [shelf(60).draw(9, 3, seed=seed).train[:, 0, 0, 0].tolist() for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


def test_more_pictures_than_there_are_cannot_be_drawn():
    with pytest.raises(ValueError, match="12 pictures to train: 13 cannot"):
        shelf().draw(13, 3)


def test_digits_are_bundled_and_the_last_are_held_out():
    found = digits(held=97)
    assert found.train.shape == (1700, 1, 8, 8)
    assert found.held.shape == (97, 1, 8, 8)
    assert 0 <= float(found.train.min()) <= float(found.train.max()) == 1
    with pytest.raises(ValueError, match="between 1 and 1796"):
        digits(held=1797)


@given(st.integers(1, 3), st.integers(0, 3), st.integers(1, 2))
def test_a_border_keeps_the_picture_in_the_middle_and_adds_zeros(size, border, channels):
    picture = torch.arange(1.0, 1 + channels * size**2).view(1, channels, size, size)
    wide = extend(picture, size + 2 * border)
    inner = slice(border, border + size)
    assert torch.equal(wide[:, :, inner, inner], picture)
    assert float(wide.sum()) == float(picture.sum())


@pytest.mark.parametrize("side", [7, 9])
def test_a_border_that_is_no_border_is_refused(side):
    with pytest.raises(ValueError, match=f"8 x 8 cannot stand in the middle of a square of {side}"):
        extend(torch.zeros(1, 1, 8, 8), side)


def test_patches_are_squares_row_by_row():
    picture = torch.arange(32.0).view(1, 2, 4, 4)
    patches = cut(picture, 2)
    assert patches.shape == (1, 4, 8)
    assert patches[0, 1].tolist() == [2, 3, 6, 7, 18, 19, 22, 23]
    assert patches[0, 2].tolist() == [8, 9, 12, 13, 24, 25, 28, 29]
    with pytest.raises(ValueError, match="patches of 3 do not tile"):
        cut(picture, 3)


def test_tokens_are_standardised_by_the_training_pictures_and_the_border_is_their_mean():
    generator = torch.Generator().manual_seed(0)
    train, held = torch.rand(20, 3, 4, 4, generator=generator), torch.rand(5, 3, 4, 4, generator=generator)
    found = sequences(
        Pictures("made", ("a", "b"), train, torch.zeros(20).long(), held, torch.ones(5).long()), patch=2, side=8
    )
    assert found.train.shape == (20, length(8, 2), 12) == (20, 16, 12)
    inner = found.train[:, [5, 6, 9, 10]]
    assert abs(float(inner.mean())) < 1e-6
    assert float(inner.square().mean()) == pytest.approx(1, abs=0.01)
    outer = [row for row in range(16) if row not in (5, 6, 9, 10)]
    assert float(found.held[:, outer].abs().max()) == 0
    assert found.held_targets.tolist() == [1] * 5
