"""Targets of retrieval: what they are, against loops; random vectors; and the families that are refused."""

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headlab.models.outer import Outer, linear, product
from headlab.models.retrieval.family import Family, draw_vectors, nearest_points, sum_of_maxima


def test_the_synthetic_target_is_a_sum_of_maxima() -> None:
    family = sum_of_maxima(3, 5, seed=1, vectors="gaussian")
    tokens = family.draw(4, torch.Generator().manual_seed(0)).double()
    rows = family.vectors
    for sequence, answer in zip(tokens.tolist(), family.target(tokens).tolist(), strict=True):
        by_hand = sum(max(sum(a * x for a, x in zip(row, token, strict=True)) for token in sequence) for row in rows)
        assert math.isclose(answer, by_hand, rel_tol=1e-12)


def test_a_minimum_is_taken_over_its_own_positions() -> None:
    outer = Outer((2.0, -1.0, 5.0), ((2, 0), (1, 1), (0, 0)))
    family = nearest_points(2, 4, outer, size=2, seed=3, sets=((0, 1), (3, 2)))
    tokens = family.draw(6, torch.Generator().manual_seed(0)).double()
    for sequence, z, places, answer in zip(
        tokens.tolist(), family.minima(tokens), family.retrieved(tokens), family.target(tokens), strict=True
    ):
        found = []
        for i, own in enumerate(((0, 1), (2, 3))):
            distances = {
                t: sum((x - c) ** 2 for x, c in zip(sequence[t], family.vectors[i], strict=True)) / 2 for t in own
            }
            assert int(places[i]) == min(distances, key=lambda t: distances[t])
            found.append(min(distances.values()))
        assert torch.allclose(z, torch.tensor(found, dtype=torch.float64), rtol=1e-12, atol=0)
        assert math.isclose(float(answer), 2 * found[0] ** 2 - found[0] * found[1] + 5, rel_tol=1e-12)


@given(
    z=st.lists(st.floats(-1, 1), min_size=3, max_size=3),
    step=st.lists(st.floats(-0.5, 0.5), min_size=3, max_size=3),
)
def test_the_lipschitz_bound_holds(z: list[float], step: list[float]) -> None:
    outer = Outer((1.0, -2.0, 0.5), ((1, 1, 1), (0, 2, 0), (3, 0, 1)))
    near = [max(-1.0, min(1.0, a + b)) for a, b in zip(z, step, strict=True)]
    first, second = torch.tensor([z, near], dtype=torch.float64)
    assert (outer(first) - outer(second)).abs() <= outer.lipschitz(1.0) * (first - second).abs().max() + 1e-12


def test_lipschitz_bounds_are_attained_by_simple_functions() -> None:
    assert linear([1.0, -3.0]).lipschitz(100.0) == 4.0
    assert product(3).lipschitz(1.0) == 3.0
    assert not product(2).is_linear
    assert product(1).is_linear


@given(coordinates=st.integers(1, 6), size=st.integers(2, 5), seed=st.integers(0, 10**6))
def test_random_vectors(coordinates: int, size: int, seed: int) -> None:
    before = torch.get_rng_state()
    vectors = torch.tensor(draw_vectors(coordinates, size, seed=seed), dtype=torch.float64)
    assert torch.equal(torch.get_rng_state(), before)
    assert vectors.shape == (coordinates, size)
    first = vectors[:size]
    assert torch.allclose(first @ first.T, torch.eye(len(first), dtype=torch.float64), atol=1e-12)
    unit = torch.tensor(draw_vectors(coordinates, size, seed=seed, how="unit"), dtype=torch.float64)
    assert torch.allclose(unit.norm(dim=1), torch.ones(coordinates, dtype=torch.float64))
    assert draw_vectors(coordinates, size, seed=seed) == tuple(map(tuple, vectors.tolist()))
    assert draw_vectors(coordinates, size, seed=seed + 1) != tuple(map(tuple, vectors.tolist()))


@given(coordinates=st.integers(1, 6), length=st.integers(1, 9), seed=st.integers(0, 99))
def test_options_make_an_equal_family(coordinates: int, length: int, seed: int) -> None:
    sets = [[t for t in range(length) if (t + i) % 2 == 0 or length == 1] for i in range(coordinates)]
    for family in (
        sum_of_maxima(coordinates, length, seed=seed),
        nearest_points(coordinates, length, product(coordinates), seed=seed, sets=sets),
    ):
        assert Family.from_options(json.loads(json.dumps(family.options()))) == family


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: sum_of_maxima(0, 8), "D = 0 coordinates: retrieval needs at least 1"),
        (lambda: sum_of_maxima(vectors=[]), "D = 0 coordinates"),
        (lambda: nearest_points(0, 8), "D = 0 coordinates"),
        (lambda: Family(8, "projection", (), linear([1.0])), "D = 0 coordinates"),
        (lambda: sum_of_maxima(2, 0), "length T = 0"),
        (lambda: nearest_points(1, 3, sets=[[0, 1, 2, 3]]), "S_0 has 4 positions, more than the length T = 3"),
        (lambda: nearest_points(2, 3, sets=[[0], []]), "the position set S_1 is empty"),
        (lambda: nearest_points(1, 3, sets=[[3]]), "S_0 names position 3: a sequence of length 3 has positions 0 to 2"),
        (lambda: nearest_points(1, 3, sets=[[1, 1]]), "names a position twice"),
        (lambda: nearest_points(1, 3, sets=[[0], [1]]), "2 position sets for 1 coordinates"),
        (lambda: sum_of_maxima(vectors=[[1.0, math.nan]]), "NaN or infinite"),
        (lambda: sum_of_maxima(vectors=[[1.0], [1.0, 2.0]]), "differ in size"),
        (lambda: sum_of_maxima(vectors=[[1.0, 2.0], [1.0, 2.0]]), "coordinates 0 and 1 have the same vector"),
        (lambda: Family(3, "distance", ((2.0,),), linear([1.0])), r"outside \[0, 1\]"),
        (lambda: Family(3, "cosine", ((2.0,),), linear([1.0])), "unknown kind of function 'cosine'"),
        (lambda: sum_of_maxima(2, 8, vectors="round"), "unknown vectors 'round'"),
        (lambda: sum_of_maxima(2, 8, size=0), "at least 1"),
        (lambda: nearest_points(2, 3, product(3)), "F0 takes 3 coordinates, but there are 2 vectors"),
        (lambda: linear([1.0, 0.0]), "does not depend on coordinate 1"),
        (lambda: Outer((), ()), "0 coefficients"),
        (lambda: Outer((1.0, 1.0), ((1,), (1, 1))), "differ in length"),
        (lambda: Outer((math.inf,), ((1,),)), "not finite"),
        (lambda: Outer((1.0,), ((-1,),)), "negative exponent"),
    ],
)
def test_bad_families_are_refused_in_a_sentence(make, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=says):
        make()


def test_bad_data_are_refused_in_a_sentence() -> None:
    family = sum_of_maxima(2, 3)
    tokens = torch.zeros(2, 3, 4)
    tokens[1, 2, 0] = torch.nan
    with pytest.raises(ValueError, match="1 numbers that are NaN or infinite"):
        family.target(tokens)
    with pytest.raises(ValueError, match="3 positions and 4 features"):
        family.values(torch.zeros(2, 4, 4))
    with pytest.raises(ValueError, match="at least one example"):
        family.draw(0, torch.Generator())
    with pytest.raises(KeyError, match="lacks 'vectors'"):
        Family.from_options({"length": 3, "kind": "projection"})
