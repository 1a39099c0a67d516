"""Intervals, tests and chance levels against figures worked out by hand, and where nothing is to be found."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from headlab.interp import statistics

numbers = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12)


def test_median_of_seeds_lies_in_its_interval_and_repeats():
    values = [0.91, 0.97, 0.99, 1.0, 1.0, 0.98, 0.2, 0.995]
    first, again = statistics.median(values, seed=3), statistics.median(values, seed=3)
    assert first == again
    assert first.value == pytest.approx(0.985)
    assert 0.2 <= first.low < first.value < first.high <= 1.0
    assert first.count == 8


def test_bootstrap_interval_of_a_mean_matches_the_normal_theory():
    values = np.random.default_rng(0).normal(5.0, 2.0, size=400)
    estimate = statistics.mean(values, seed=1)
    half = 1.96 * values.std() / 20
    assert estimate.low == pytest.approx(values.mean() - half, abs=0.04)
    assert estimate.high == pytest.approx(values.mean() + half, abs=0.04)


@given(numbers)
@settings(max_examples=25, deadline=None)
def test_any_sample_has_a_finite_interval_around_its_median(values):
    estimate = statistics.median(values, resamples=50)
    assert np.isfinite([estimate.low, estimate.value, estimate.high]).all()
    assert estimate.low <= estimate.value <= estimate.high


@pytest.mark.parametrize("values", [[0.5], [1.0] * 7])
def test_no_spread_gives_a_point(values):
    estimate = statistics.median(values)
    assert estimate.interval == (values[0], values[0])


@pytest.mark.parametrize("values", [[], [0.5, float("nan")], [float("inf")], [[1.0, 2.0]]])
def test_samples_without_a_median_are_refused(values):
    with pytest.raises(ValueError, match="values"):
        statistics.median(values)


def test_share_of_all_and_of_none():
    # (alpha / 2) ** (1 / n) and its mirror image are the closed forms at the two ends
    assert statistics.share(10, 10).low == pytest.approx(0.025**0.1)
    assert statistics.share(10, 10).high == 1.0
    assert statistics.share(0, 10).high == pytest.approx(1 - 0.025**0.1)
    assert statistics.share(0, 10).low == 0.0


def test_share_interval_covers_the_true_share():
    covered = 0
    draws = np.random.default_rng(0).binomial(16, 0.85, size=300)
    for draw in draws:
        interval = statistics.share(int(draw), 16)
        covered += interval.low <= 0.85 <= interval.high
    assert covered / 300 >= 0.95


@pytest.mark.parametrize(("successes", "trials"), [(1, 0), (-1, 4), (5, 4)])
def test_impossible_shares_are_refused(successes, trials):
    with pytest.raises(ValueError, match="no share"):
        statistics.share(successes, trials)


def test_paired_test_is_exact_on_a_few_pairs():
    first, second = [3.0, 4.0, 5.0, 6.0], [2.0, 2.0, 2.0, 2.0]
    greater = statistics.paired_test(first, second, alternative="greater")
    assert greater.p_value == pytest.approx(1 / 16)
    assert greater.exact
    assert greater.relabellings == 16
    assert greater.difference == 2.5
    assert statistics.paired_test(first, second).p_value == pytest.approx(2 / 16)
    assert statistics.paired_test(first, second, alternative="less").p_value == 1.0


def test_pairs_that_tie_take_no_part():
    with_ties = statistics.paired_test([3.0, 4.0, 1.0, 1.0], [2.0, 2.0, 1.0, 1.0], alternative="greater")
    assert with_ties.p_value == pytest.approx(1 / 4)
    assert with_ties.difference == 0.75
    assert statistics.paired_test([1.0, 1.0], [1.0, 1.0]).p_value == 1.0
    assert statistics.paired_test([2.0], [1.0], alternative="greater").p_value == 0.5


def test_random_pairs_are_significant_as_often_as_the_level_says():
    rng = np.random.default_rng(5)
    values = [statistics.paired_test(rng.normal(size=8), rng.normal(size=8), resamples=300).p_value for _ in range(200)]
    assert np.mean(np.array(values) <= 0.05) == pytest.approx(0.05, abs=0.04)
    assert np.mean(values) == pytest.approx(0.5, abs=0.07)


def test_two_samples_that_do_not_overlap():
    result = statistics.two_sample_test([4.0, 5.0, 6.0], [1.0, 2.0, 3.0], alternative="greater")
    assert result.p_value == pytest.approx(1 / 20)
    assert result.difference == 3.0
    assert result.relabellings == 20
    assert statistics.two_sample_test([4.0, 5.0, 6.0], [1.0, 2.0, 3.0], alternative="less").p_value == 1.0


def test_two_samples_from_one_constant_differ_in_nothing():
    assert statistics.two_sample_test([1.0] * 3, [1.0] * 4).p_value == 1.0
    assert statistics.two_sample_test([2.0], [1.0], alternative="greater").p_value == 0.5


def test_many_values_are_relabelled_at_random_from_the_seed():
    rng = np.random.default_rng(0)
    first, second = rng.normal(0.5, 1, 40), rng.normal(0, 1, 40)
    one = statistics.two_sample_test(first, second, seed=1)
    assert one == statistics.two_sample_test(first, second, seed=1)
    assert not one.exact
    # with 40 a side, the permutation test and the t test all but agree
    assert one.p_value == pytest.approx(stats.ttest_ind(first, second).pvalue, abs=0.02)


def test_unequal_pairs_are_refused():
    with pytest.raises(ValueError, match="as many numbers"):
        statistics.paired_test([1.0], [1.0, 2.0])


def test_chance_level_of_a_score():
    level = statistics.chance(np.linspace(0, 1, 101))
    assert level.median == pytest.approx(0.5)
    assert level.p95 == pytest.approx(0.95)
    assert level.count == 101
    assert level.p_value(2.0) == pytest.approx(1 / 102)
    assert level.p_value(0.0) == 1.0
    assert level.to_dict() == {"median": level.median, "p95": level.p95, "seeds": 101}


def test_slope_of_a_power_law_is_its_exponent():
    d = np.array([8.0, 16.0, 32.0, 64.0, 128.0])
    fit = statistics.slope(np.log(d), np.log(3 * d**2))
    assert fit.value == pytest.approx(2.0)
    assert fit.high - fit.low < 1e-9
    noisy = statistics.slope([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 1.0, 2.0])
    # by hand: slope .6, residual variance .1, sum of squares 5, t(.975, 2) = 4.3027
    assert noisy.value == pytest.approx(0.6)
    assert noisy.high - noisy.value == pytest.approx(4.3027 * np.sqrt(0.1 / 5), abs=1e-3)
    assert statistics.slope([0.0, 1.0, 2.0], [1.0, 1.0, 1.0]).interval == (0.0, 0.0)


@pytest.mark.parametrize(("x", "y"), [([1.0, 2.0], [1.0, 2.0]), ([1.0] * 3, [1.0, 2.0, 3.0]), ([1.0, 2, 3], [1.0] * 4)])
def test_slopes_that_no_data_hold_are_refused(x, y):
    with pytest.raises(ValueError):  # noqa: PT011
        statistics.slope(x, y)
