"""Intervals over seeds and prompts, tests by permutation, chance levels. Small samples and ties never give NaN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import stats
from scipy.special import comb

from headlab.interp.errors import RequestError

Alternative = Literal["two-sided", "less", "greater"]
Values = Sequence[Any] | np.ndarray


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval, in the unit of the values it was made from.

    count: how many values stand behind it. With one value the interval is that value: one run shows no spread.
    """

    value: float
    low: float
    high: float
    confidence: float
    count: int

    @property
    def interval(self) -> tuple[float, float]:
        """(low, high), both finite, low <= value <= high."""
        return self.low, self.high


@dataclass(frozen=True)
class Share:
    """A share of successes in [0, 1] with its exact interval."""

    value: float
    low: float
    high: float
    confidence: float
    successes: int
    trials: int

    @property
    def interval(self) -> tuple[float, float]:
        """(low, high), both within [0, 1]."""
        return self.low, self.high


@dataclass(frozen=True)
class PermutationTest:
    """A difference of means and how often relabelled data give one as large.

    p_value: in (0, 1], exact where every relabelling was listed, else from `relabellings` random ones.
    """

    difference: float
    p_value: float
    alternative: str
    exact: bool
    relabellings: int


@dataclass(frozen=True)
class Chance:
    """What a score reads where there is nothing to find: `count` values of it, their median and 95th percentile."""

    median: float
    p95: float
    count: int
    values: tuple[float, ...]

    def p_value(self, observed: float) -> float:
        """The share of chance values at or above `observed`, the observation counted among them: never 0."""
        return (1 + sum(value >= observed for value in self.values)) / (1 + self.count)

    def to_dict(self) -> dict[str, float | int]:
        """`median`, `p95` and `seeds`, as results store them."""
        return {"median": self.median, "p95": self.p95, "seeds": self.count}


def _checked(values: Any, name: str, least: int = 1) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise RequestError(f"{name} must be one number per seed or example, not an array of shape {array.shape}")
    if array.size < least:
        raise RequestError(f"{name} must hold at least {least} number{'s' if least > 1 else ''}; it holds {array.size}")
    bad = int(np.count_nonzero(~np.isfinite(array)))
    if bad:
        raise RequestError(f"{bad} of the {array.size} numbers in {name} are not finite: leave them out, and say so")
    return array


def _confidence(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise RequestError(f"confidence must lie between 0 and 1, not {confidence}")
    return confidence


def median(values: Values, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0) -> Estimate:
    """The median and its percentile bootstrap interval (Efron 1979), the same for the same `seed`.

    Raises ValueError for no values or for values that are not finite.
    """
    return _bootstrap(values, np.median, _confidence(confidence), resamples, seed)


def mean(values: Values, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0) -> Estimate:
    """The mean and its percentile bootstrap interval; otherwise as `median`."""
    return _bootstrap(values, np.mean, _confidence(confidence), resamples, seed)


def _bootstrap(values: Values, statistic: Any, confidence: float, resamples: int, seed: int) -> Estimate:
    array = _checked(values, "values")
    value = float(statistic(array))
    if np.ptp(array) == 0:
        return Estimate(value, value, value, confidence, array.size)
    result = stats.bootstrap(
        (array,),
        statistic,
        n_resamples=resamples,
        confidence_level=confidence,
        method="percentile",  # BCa is undefined for tied values, which accuracies of seeds mostly are
        rng=np.random.default_rng(seed),
    )
    low, high = (float(end) for end in result.confidence_interval)
    return Estimate(value, min(low, value), max(high, value), confidence, array.size)


def share(successes: int, trials: int, *, confidence: float = 0.95) -> Share:
    """A share and its exact interval (Clopper and Pearson 1934), whose coverage is at least `confidence`.

    Raises ValueError for no trials, or successes outside 0 to `trials`.
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise RequestError(
            f"{successes} successes of {trials} trials is no share: it takes 0 <= successes <= trials >= 1"
        )
    result = stats.binomtest(int(successes), int(trials)).proportion_ci(_confidence(confidence), method="exact")
    return Share(successes / trials, float(result.low), float(result.high), confidence, int(successes), int(trials))


def paired_test(
    first: Values,
    second: Values,
    *,
    alternative: Alternative = "two-sided",
    resamples: int = 9999,
    seed: int = 0,
) -> PermutationTest:
    """Does `first` exceed `second`, pair by pair? Mean of the differences under random flips of their signs.

    All sign patterns are listed where they are at most `resamples`. Raises ValueError for different lengths.
    """
    one, two = _checked(first, "first"), _checked(second, "second")
    if one.size != two.size:
        raise RequestError(f"pairs need as many numbers on both sides: there are {one.size} and {two.size}")
    differences = one - two
    moving = differences[
        differences != 0
    ]  # flipping a 0 changes nothing; fewer patterns keep the test exact for longer
    if moving.size == 0:
        return PermutationTest(0.0, 1.0, alternative, True, 1)
    if moving.size == 1:
        sides = {"two-sided": 1.0, "greater": 0.5, "less": 0.5}
        agrees = alternative == "two-sided" or (moving[0] > 0) == (alternative == "greater")
        return PermutationTest(float(differences.mean()), sides[alternative] if agrees else 1.0, alternative, True, 2)
    patterns = 2.0**moving.size
    result = stats.permutation_test(
        (moving,),
        np.mean,
        permutation_type="samples",
        n_resamples=resamples,
        alternative=alternative,
        rng=np.random.default_rng(seed),
    )
    exact = patterns <= resamples
    return PermutationTest(
        float(differences.mean()),
        min(1.0, float(result.pvalue)),
        alternative,
        exact,
        int(patterns) if exact else resamples,
    )


def two_sample_test(
    first: Values,
    second: Values,
    *,
    alternative: Alternative = "two-sided",
    resamples: int = 9999,
    seed: int = 0,
) -> PermutationTest:
    """Is the mean of `first` above that of `second`? Difference of means under random exchange of the labels.

    All exchanges are listed where they are at most `resamples`.
    """
    one, two = _checked(first, "first"), _checked(second, "second")
    exchanges = float(comb(one.size + two.size, one.size))
    difference = float(one.mean() - two.mean())
    if np.ptp(np.concatenate([one, two])) == 0:
        return PermutationTest(difference, 1.0, alternative, True, 1)
    if one.size + two.size == 2:
        agrees = alternative == "two-sided" or (difference > 0) == (alternative == "greater")
        p = 1.0 if alternative == "two-sided" or not agrees else 0.5
        return PermutationTest(difference, p, alternative, True, 2)
    result = stats.permutation_test(
        (one, two),
        lambda a, b, axis: np.mean(a, axis=axis) - np.mean(b, axis=axis),
        permutation_type="independent",
        n_resamples=resamples,
        alternative=alternative,
        vectorized=True,
        rng=np.random.default_rng(seed),
    )
    exact = exchanges <= resamples
    return PermutationTest(
        difference,
        min(1.0, float(result.pvalue)),
        alternative,
        exact,
        int(exchanges) if exact else resamples,
    )


def chance(values: Values) -> Chance:
    """The chance level of a score from its values on data or models where there is nothing to find."""
    array = _checked(values, "values")
    p95 = float(np.quantile(array, 0.95))
    return Chance(float(np.median(array)), p95, array.size, tuple(array.tolist()))


def slope(x: Values, y: Values, *, confidence: float = 0.95) -> Estimate:
    """The least-squares slope of y against x and its t interval; of logarithms, it is an exponent.

    Raises ValueError for fewer than 3 points, different lengths, or one single x.
    """
    across, up = _checked(x, "x", least=3), _checked(y, "y", least=3)
    if across.size != up.size:
        raise RequestError(f"a slope needs as many x as y: there are {across.size} and {up.size}")
    if np.ptp(across) == 0:
        raise RequestError("a slope needs at least two different x")
    if np.ptp(up) == 0:
        return Estimate(0.0, 0.0, 0.0, _confidence(confidence), across.size)
    fit: Any = stats.linregress(across, up)
    half = float(stats.t.ppf((1 + _confidence(confidence)) / 2, across.size - 2)) * float(fit.stderr)
    value = float(fit.slope)
    return Estimate(value, value - half, value + half, confidence, across.size)
