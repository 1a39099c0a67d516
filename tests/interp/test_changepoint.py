"""Change points found where they were put, and none where there is none."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, multivariate_normal

from headlab.interp.changepoint import Hypothesis, change_p_value, earlier, log_evidence, phase, weigh


def passage(x: np.ndarray, start: float, end: float, noise: float = 0.02, seed: int = 0) -> np.ndarray:
    """From 0 to 1 between start and end."""
    return np.clip((x - start) / (end - start), 0, 1) + np.random.default_rng(seed).normal(0, noise, len(x))


def test_evidence_is_the_gaussian_integral():
    rng = np.random.default_rng(0)
    design, mean, sd = rng.normal(size=(6, 3)), rng.normal(size=3), np.array([0.5, 1.0, 2.0])
    values = rng.normal(size=6)
    found = log_evidence(values, design[None], mean, sd, [0.3, 2.0])[0]
    for level, evidence in zip([0.3, 2.0], found, strict=True):
        covariance = design @ np.diag(sd**2) @ design.T + level**2 * np.eye(6)
        assert evidence == pytest.approx(multivariate_normal(design @ mean, covariance).logpdf(values))


@given(st.integers(0, 1000), st.integers(4, 10), st.integers(4, 10))
@settings(max_examples=15, deadline=None)
def test_a_passage_is_found_where_it_was_put(seed, start, length):
    x = np.arange(30.0) * 10
    found = phase(x, passage(x, x[start], x[start + length], seed=seed))
    assert found.change > 0.999
    assert found.start.value == pytest.approx(x[start], abs=20)
    assert found.end.value == pytest.approx(x[start + length], abs=20)
    assert found.start.low <= found.start.value <= found.start.high
    assert found.rise == pytest.approx(1.0, abs=0.05)
    assert found.probability.sum() == pytest.approx(1.0)


def test_intervals_hold_the_truth_as_often_as_they_say():
    x = np.arange(25.0)
    inside = 0
    for seed in range(60):
        found = phase(x, passage(x, 8.0, 15.0, noise=0.1, seed=seed))
        inside += found.start.low <= 8.0 <= found.start.high
    assert inside / 60 >= 0.8


def test_a_level_is_no_phase():
    x = np.arange(30.0)
    noise = [phase(x, np.random.default_rng(seed).normal(size=30)).change for seed in range(40)]
    assert np.median(noise) < 0.3
    assert np.mean(np.array(noise) > 0.95) <= 0.1
    still = phase(x, np.full(30, 0.25))
    assert (still.change, still.p_value, still.rise) == (0.0, 1.0, 0.0)
    assert np.isfinite([still.start.value, still.end.high]).all()


def correlated(seed: int, count: int, rho: float) -> np.ndarray:
    """Noise of standard deviation 1 whose neighbours correlate by `rho`."""
    covariance = rho ** np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    return np.linalg.cholesky(covariance) @ np.random.default_rng(seed).normal(size=count)


@pytest.mark.parametrize("count", [10, 30])
@pytest.mark.parametrize("rho", [0.0, 0.5, 0.85, 0.95])
def test_correlated_noise_passes_for_a_change_no_more_often_than_the_level_says(count, rho):
    x = np.arange(float(count))
    p = np.array([change_p_value(x, correlated(seed, count, rho)) for seed in range(150)])
    for level in (0.05, 0.2):  # 150 curves count a level to within chance: more than this come up once in 1 000 times
        assert (p <= level).sum() <= binom.ppf(0.999, 150, level)


@pytest.mark.parametrize(("rho", "rise"), [(0.0, 6.0), (0.5, 8.0), (0.85, 10.0)])
def test_a_change_that_towers_over_its_noise_is_seen(rho, rise):
    x = np.arange(40.0)
    curves = [rise * np.clip((x - 12) / 4, 0, 1) + correlated(seed, 40, rho) for seed in range(40)]
    assert np.mean([change_p_value(x, curve) <= 0.05 for curve in curves]) >= 0.8


def test_correlated_noise_seldom_makes_a_change_probable():
    x = np.arange(25.0)
    found = [phase(x, correlated(seed, 25, 0.8)) for seed in range(25)]
    assert np.mean([each.change > 0.95 for each in found]) <= 0.12
    assert found[0].p_value == change_p_value(x, correlated(0, 25, 0.8))


def test_a_sudden_fall_between_two_points():
    values = [2.0, 2.1, 1.9, 2.0, 0.1, 0.0, 0.1]
    found = phase(np.log([1, 2, 4, 8, 16, 32, 64]), values)
    assert found.start.value == pytest.approx(np.log(8))
    assert found.end.value == pytest.approx(np.log(16))
    assert found.rise == pytest.approx(-2.0, abs=0.1)
    assert found.change > 0.95


def test_scale_and_offset_of_the_curve_do_not_matter():
    x = np.arange(20.0)
    values = passage(x, 5, 9)
    one, other = phase(x, values), phase(x, 1000 * values - 7)
    assert one.change == pytest.approx(other.change)
    np.testing.assert_allclose(one.probability, other.probability, atol=1e-9)


def test_which_of_two_curves_moves_first():
    x = np.arange(30.0)
    early, late = phase(x, passage(x, 5, 10)), phase(x, passage(x, 15, 20, seed=1))
    assert earlier(early, late) > 0.999
    assert earlier(late, early) < 0.001
    assert earlier(early, early) == pytest.approx(0.5)


def head_counts(heads: np.ndarray, width: np.ndarray, most: int) -> list[Hypothesis]:
    """An error that falls by a jump once there are D heads, for D = 1 to most + 1 (beyond what was tried)."""
    lengths = np.log2(width) - np.log2(width).mean()
    mean, sd = np.array([-0.5, -0.4, 0.05, -2.0, -0.1, 0.0]), np.array([1.0, 0.3, 0.2, 1.5, 0.15, 0.2])
    hypotheses = []
    for d in range(1, most + 2):
        enough = (heads >= d).astype(float)
        columns = [
            np.ones_like(lengths),
            np.where(enough, d - 1, heads - 1).astype(float),
            (1 - enough) * lengths,
            enough,
            enough * (heads - d),
            enough * lengths,
        ]
        hypotheses.append(Hypothesis(d, np.stack(columns, axis=1), mean, sd))
    return hypotheses


@pytest.mark.parametrize("truth", [2, 3, 4, 6])
def test_a_count_is_read_off_a_table_of_errors(truth):
    heads, width = (axis.ravel() for axis in np.meshgrid(np.arange(1, 6), [8, 32, 128]))
    rng = np.random.default_rng(truth)
    logs = np.where(heads < truth, -0.8 - 0.3 * (heads - 1), -4.0) + rng.normal(0, 0.1, len(heads))
    hypotheses = head_counts(heads, width, 5)
    found = weigh(logs, hypotheses, noise=np.geomspace(0.05, 0.8, 9))
    assert found.best == truth
    assert found.credible[0] == truth
    assert found.probability.max() > (0.9 if truth <= 5 else 0.6)  # no plateau was seen: less can be known
    frame = found.to_frame()
    assert list(frame.columns) == ["hypothesis", "probability", "log_evidence", "credible"]
    assert frame.credible.sum() == len(found.credible)


def test_prior_and_credible_set():
    same = [Hypothesis(name, np.ones((4, 1)), np.zeros(1), np.ones(1)) for name in "abcd"]
    even = weigh([0.1, -0.1, 0.2, 0.0], same, noise=[0.2])
    np.testing.assert_allclose(even.probability, 0.25)
    assert even.credible == ("a", "b", "c", "d")
    told = weigh([0.1, -0.1, 0.2, 0.0], same, noise=[0.2], prior=[0, 6, 3, 1])
    np.testing.assert_allclose(told.probability, [0.0, 0.6, 0.3, 0.1])
    assert (told.best, told.credible) == ("b", ("b", "c"))


@pytest.mark.parametrize(
    ("x", "values", "message"),
    [
        ([0.0, 1.0], [0.0, 1.0], "at least 3 points"),
        ([0.0, 1.0, 1.0], [0.0, 1.0, 2.0], "ascend"),
        ([0.0, 1.0, 2.0], [0.0, float("nan"), 2.0], "not finite"),
    ],
)
def test_curves_without_a_phase_are_refused(x, values, message):
    with pytest.raises(ValueError, match=message):
        phase(x, values)


def test_hypotheses_that_cannot_be_weighed_are_refused():
    good = Hypothesis("a", np.ones((3, 1)), np.zeros(1), np.ones(1))
    with pytest.raises(ValueError, match="no hypotheses"):
        weigh([1.0], [], noise=[1.0])
    with pytest.raises(ValueError, match="hypothesis 'a' has a design"):
        weigh([1.0, 2.0], [good], noise=[1.0])
    with pytest.raises(ValueError, match="noise level"):
        weigh([1.0, 2.0, 3.0], [good], noise=[0.0])
    with pytest.raises(ValueError, match="prior"):
        weigh([1.0, 2.0, 3.0], [good], noise=[1.0], prior=[-1.0])
