"""The bounds: the Lambert-W value against the worst case found by brute force, and where the exponent says nothing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headlab.models.retrieval.bounds import (
    determines_dimension,
    exponent,
    gate_leak,
    retrieval_error,
    shortest_length,
    worst_gap,
)


@pytest.mark.parametrize(
    ("count", "times_beta"), [(1, 0.0), (2, 0.2785), (8, 0.973), (32, 1.830), (128, 2.811), (512, 3.880)]
)
def test_known_values(count: int, times_beta: float) -> None:
    assert retrieval_error(count, 1.0) == pytest.approx(times_beta, abs=6e-4)
    assert retrieval_error(count, 100.0) == pytest.approx(retrieval_error(count, 1.0) / 100)


@given(count=st.integers(2, 512), seed=st.integers(0, 10**6), beta=st.floats(0.1, 1000))
def test_no_gaps_exceed_the_bound_and_equal_ones_attain_it(count: int, seed: int, beta: float) -> None:
    random = np.random.default_rng(seed)
    bound = retrieval_error(count, beta)
    for gaps in (random.exponential(2 / beta, count - 1), np.full(count - 1, random.exponential(4 / beta))):
        weights = np.exp(-beta * gaps)
        assert (gaps * weights).sum() / (1 + weights.sum()) <= bound * (1 + 1e-12)
    gap = worst_gap(count, beta)
    weight = (count - 1) * math.exp(-beta * gap)
    assert gap * weight / (1 + weight) == pytest.approx(bound, rel=1e-12)


@given(inside=st.integers(1, 20), outside=st.integers(0, 20), margin=st.floats(0, 30), seed=st.integers(0, 10**6))
def test_the_leak_past_a_gate_keeps_its_bound(inside: int, outside: int, margin: float, seed: int) -> None:
    beta = 50.0
    values = np.random.default_rng(seed).uniform(0, 1, inside + outside)
    scores = -beta * values + (beta + margin) * (np.arange(inside + outside) < inside)
    weights = np.exp(scores - scores.max())
    assert weights[inside:].sum() / weights.sum() <= gate_leak(outside, beta + margin, beta) + 1e-15


def test_a_gate_that_is_too_low_bounds_nothing() -> None:
    assert gate_leak(3, 1.0, 50.0) == 1.0
    assert gate_leak(0, 1.0, 50.0) == 0.0


@pytest.mark.parametrize(("heads", "above"), [(1, 56), (2, 96), (3, 136)])
def test_where_the_exponent_is_vacuous(heads: int, above: int) -> None:
    at = exponent(above, heads, 4, 8)
    assert at.above == above
    assert at.vacuous
    assert at.k == pytest.approx(0, abs=1e-12)
    assert not exponent(above + 1, heads, 4, 8).vacuous
    assert "above 136" in str(exponent(128, 3, 4, 8))
    assert "(1/eps)^" in str(exponent(1000, heads, 4, 8))


def test_what_determines_the_dimension() -> None:
    assert shortest_length(4, 4) == 1600
    assert determines_dimension(1600, 4, 4)
    assert not determines_dimension(1599, 4, 4)


def test_bad_requests_are_named() -> None:
    with pytest.raises(ValueError, match="fewer heads only"):
        exponent(128, 4, 4, 8)
    with pytest.raises(ValueError, match="width = 0"):
        exponent(128, 3, 4, 0)
    with pytest.raises(ValueError, match="at least one to choose from"):
        retrieval_error(0, 1.0)
    for beta in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="positive and finite"):
            retrieval_error(2, beta)
