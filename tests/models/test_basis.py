"""Named directions: vectors add within one basis only, and matrices are oriented as transformer-lens multiplies."""

import pytest
import torch

from headlab.models.basis import Basis

RESIDUAL = Basis("residual", (0, 1, "y", "q"))
HEAD = Basis("head", ("match", "value"))


def test_directions_add_and_scale():
    vector = 2 * RESIDUAL["y"] - RESIDUAL[0] / 4
    assert vector.tensor().tolist() == [-0.25, 0.0, 2.0, 0.0]
    assert vector @ RESIDUAL["y"] == 2.0
    assert (vector + RESIDUAL.zero).tensor().tolist() == vector.tensor().tolist()
    assert repr(vector) == "<residual: -0.25 0 +2 y>"


def test_adding_across_bases_is_an_error():
    with pytest.raises(ValueError, match="basis 'head' was used where basis 'residual' is meant"):
        _ = RESIDUAL["y"] + HEAD["match"]
    same_axes = Basis("another", RESIDUAL.axes)
    with pytest.raises(ValueError, match="'another'"):
        _ = RESIDUAL["y"] - same_axes["y"]
    with pytest.raises(ValueError, match="'head'"):
        RESIDUAL.rows([RESIDUAL["y"], HEAD["match"]])
    with pytest.raises(ValueError, match="'residual'"):
        RESIDUAL.linear({"q": RESIDUAL["q"]}, into=HEAD)


def test_unknown_and_repeated_axes():
    with pytest.raises(KeyError, match="no axis 'w'; it has 0, 1, 'y', 'q'"):
        RESIDUAL["w"]
    with pytest.raises(KeyError, match="no axis 'w'"):
        RESIDUAL.combination({"w": 1.0})
    with pytest.raises(ValueError, match="'a' twice"):
        Basis("twice", ("a", "b", "a"))


def test_linear_map_is_applied_from_the_right():
    query = RESIDUAL.linear({"q": 3 * HEAD["match"], 0: HEAD["value"]}, into=HEAD)
    assert query.shape == (4, 2)
    image = (2 * RESIDUAL["q"] + RESIDUAL[0]).tensor() @ query
    assert torch.equal(image, (6 * HEAD["match"] + HEAD["value"]).tensor())


def test_combination_and_rows():
    table = RESIDUAL.rows([RESIDUAL.combination({0: 1.0, 1: -1.0}), RESIDUAL["q"]])
    assert table.tolist() == [[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    assert RESIDUAL.rows([]).shape == (0, 4)


def test_tensor_is_a_copy():
    direction = RESIDUAL["y"]
    direction.tensor().zero_()
    assert direction.tensor()[2] == 1.0
