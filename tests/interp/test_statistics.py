"""Intervals, tests and chance levels against figures worked out by hand, and where nothing is to be found."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from headlab.interp import statistics
from headlab.interp.interval import Interval, show_levels

numbers = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12)


def test_median_lies_between_order_statistics_whose_level_is_that_of_coins():
    values = [0.91, 0.97, 0.99, 1.0, 1.0, 0.98, 0.2, 0.995]
    eight = statistics.median(values)
    assert eight.value == pytest.approx(0.985)
    # all 8 values on one side of the median: 2 / 2^8; the next pair would leave 2 (1 + 8) / 2^8 = .07 out
    assert eight.interval == Interval(0.2, 1.0, 1 - 2 / 2**8)
    assert eight.count == 8
    ten = statistics.median(range(10))
    assert ten.interval == Interval(1.0, 8.0, 1 - 2 * (1 + 10) / 2**10)
    assert statistics.median([1.0, 2.0, 4.0]).interval == Interval(1.0, 4.0, 0.75)
    assert statistics.median(range(100)).interval.level >= 0.95


@pytest.mark.parametrize("confidence", [0.6, 0.9, 0.95, 0.99])
def test_median_has_the_interval_that_scipy_inverts_from_its_quantile_test(confidence):
    for n in range(2, 40):
        values = np.random.default_rng(n).normal(size=n)
        interval = statistics.median(values, confidence=confidence).interval
        theirs = stats.quantile_test(values, q=0, p=0.5).confidence_interval(confidence)
        reached = bool(np.isfinite([theirs.low, theirs.high]).all())
        assert tuple(interval) == ((theirs.low, theirs.high) if reached else (values.min(), values.max()))
        assert (interval.level >= confidence) == reached


def _median(rng, n):
    values = rng.lognormal(size=n)  # skewed: the level needs no shape
    return statistics.median(values).interval, 1.0


def _tied_median(rng, n):
    return statistics.median(rng.integers(0, 3, size=n)).interval, 1.0


def _mean(rng, n):
    return statistics.mean(rng.normal(3.0, 2.0, size=n)).interval, 3.0


def _share(rng, n):
    return statistics.share(int(rng.binomial(n, 0.85)), n).interval, 0.85


def _slope(rng, n):
    x = np.arange(n) ** 1.5
    return statistics.slope(x, 2.0 * x + rng.normal(size=n)).interval, 2.0


@pytest.mark.parametrize("kind", [_median, _tied_median, _mean, _share, _slope])
@pytest.mark.parametrize("n", [*range(2, 21)])
def test_intervals_hold_the_truth_as_often_as_their_level_says(kind, n):
    if kind is _slope and n < 3:
        pytest.skip("a slope takes three points")
    rng = np.random.default_rng(n)
    drawn = [kind(rng, n) for _ in range(1000)]
    inside = sum(interval.low <= truth <= interval.high for interval, truth in drawn)
    level = drawn[0][0].level
    # 1 000 data sets count a true level to within chance: fewer than this come up once in 10 000 times
    assert inside >= stats.binom.ppf(1e-4, 1000, level)
    if kind in (_median, _mean, _slope):  # these are exact, so that more than this would be a fault too
        assert inside <= stats.binom.ppf(1 - 1e-4, 1000, level)


def test_interval_of_a_mean_matches_the_normal_theory():
    values = np.random.default_rng(0).normal(5.0, 2.0, size=400)
    low, high = statistics.mean(values).interval
    half = 1.966 * values.std(ddof=1) / 20  # t(.975, 399) = 1.966
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=1e-3)


@given(numbers)
@settings(max_examples=25, deadline=None)
def test_any_sample_has_a_finite_interval_around_its_median(values):
    estimate = statistics.median(values)
    if len(values) > 1:
        assert np.isfinite([estimate.low, estimate.value, estimate.high]).all()
        assert estimate.low <= estimate.value <= estimate.high


@pytest.mark.parametrize("of", [statistics.median, statistics.mean])
def test_one_value_has_no_interval_and_no_comparison_with_it_is_true(of):
    estimate = of([0.5])
    assert (estimate.value, estimate.interval, estimate.count) == (0.5, None, 1)
    assert not estimate.low > 0.1
    assert not estimate.high < 0.9


def test_equal_values_show_no_spread_for_a_mean():
    assert statistics.mean([1.0] * 7).interval is None
    assert tuple(statistics.median([1.0] * 7).interval) == (1.0, 1.0)


def test_levels_are_written_rounded_down():
    assert str(Interval(0.25, 0.5, 0.9375)) == "0.25 to 0.5 (93.7 % interval)"
    assert Interval(0.0, 1.0, 0.95).percent == "95 %"
    assert show_levels([Interval(0.0, 1.0, 0.75), None, Interval(0.0, 1.0, 0.96875)]) == "75 % to 96.8 % intervals"
    assert show_levels([Interval(0.0, 1.0, 0.95)] * 2) == "95 % intervals"
    assert show_levels([None]) == "no intervals"


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


def test_share_interval_is_the_one_that_scipy_inverts():
    for successes in range(8):
        theirs = stats.binomtest(successes, 7).proportion_ci(0.9, method="exact")
        assert tuple(statistics.share(successes, 7, confidence=0.9).interval) == pytest.approx(tuple(theirs))


@pytest.mark.parametrize(("successes", "trials"), [(1, 0), (-1, 4), (5, 4)])
def test_impossible_shares_are_refused(successes, trials):
    with pytest.raises(ValueError, match="not a share"):
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
    values = [statistics.paired_test(rng.normal(size=8), rng.normal(size=8), resamples=200).p_value for _ in range(200)]
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
    with pytest.raises(ValueError, match="first must hold at least 2 numbers; it holds 1"):
        statistics.two_sample_test([1.0], [2.0, 3.0])


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
@pytest.mark.parametrize("n", [2, 5, 9, 13])
def test_few_pairs_have_the_p_value_that_scipy_lists(n, alternative):
    differences = np.random.default_rng(n).integers(-3, 6, size=n).astype(float)
    differences = np.where(differences == 0, 1, differences)
    ours = statistics.paired_test(differences, np.zeros(n), alternative=alternative)
    theirs = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative=alternative
    )
    assert ours.exact
    assert ours.p_value == pytest.approx(min(1.0, theirs.pvalue))


@pytest.mark.parametrize("n", [100, 1024, 5003])
def test_many_pairs_agree_with_the_t_test(n):
    rng = np.random.default_rng(n)
    differences = rng.normal(1.5 / np.sqrt(n), 1.0, size=n)
    ours = statistics.paired_test(differences, np.zeros(n), alternative="greater")
    assert not ours.exact
    assert ours.relabellings == 9999
    theirs = stats.ttest_1samp(differences, 0, alternative="greater").pvalue
    assert ours.p_value == pytest.approx(theirs, abs=4 * np.sqrt(theirs / 9999) + 0.005)
    assert ours == statistics.paired_test(differences, np.zeros(n), alternative="greater")


def test_random_signs_are_those_of_fair_coins():
    # 16 equal differences: the sum under random signs is 16 - 2 binomial(16, 1/2)
    sums = statistics._random_sign_sums(np.ones(16), 20_000, np.random.default_rng(0))
    counts = np.bincount(((16 - sums) / 2).astype(int), minlength=17)[4:13]
    expected = stats.binom.pmf(np.arange(4, 13), 16, 0.5)
    assert counts / 20_000 == pytest.approx(expected, abs=0.012)


def test_large_samples_are_compared_too():
    rng = np.random.default_rng(1)
    result = statistics.two_sample_test(rng.normal(size=800), rng.normal(size=1200), resamples=199)
    assert 0.005 <= result.p_value <= 1


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
    x, y = np.random.default_rng(0).normal(size=(2, 30))
    assert statistics.slope(x, y).value == pytest.approx(stats.linregress(x, y).slope)
    assert statistics.slope([0.0, 1.0, 2.0], [1.0, 1.0, 1.0]).interval == Interval(0.0, 0.0, 0.95)


@pytest.mark.parametrize(("x", "y"), [([1.0, 2.0], [1.0, 2.0]), ([1.0] * 3, [1.0, 2.0, 3.0]), ([1.0, 2, 3], [1.0] * 4)])
def test_slopes_that_no_data_hold_are_refused(x, y):
    with pytest.raises(ValueError):  # noqa: PT011
        statistics.slope(x, y)
