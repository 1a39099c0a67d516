"""Intervals over seeds and prompts, tests by permutation, chance levels. Small samples and ties never give NaN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from scipy import special

from headlab.interp.errors import RequestError
from headlab.interp.interval import Interval

Alternative = Literal["two-sided", "less", "greater"]
Values = Sequence[Any] | np.ndarray


@dataclass(frozen=True)
class Estimate:
    """A figure over seeds or examples.

    Args:
        value: the figure, in the unit of the values.
        interval: its interval, None where the values allow none: one value shows no spread.
        count: how many values it was made from.
    """

    value: float
    interval: Interval | None
    count: int

    @property
    def low(self) -> float:
        """The lower end; NaN where there is no interval, so that no comparison with it is true."""
        return math.nan if self.interval is None else self.interval.low

    @property
    def high(self) -> float:
        """The upper end; NaN where there is no interval."""
        return math.nan if self.interval is None else self.interval.high


@dataclass(frozen=True)
class Share:
    """A share of successes.

    Args:
        value: the share, in [0, 1].
        interval: its exact interval, within [0, 1].
        successes: how many succeeded.
        trials: of how many.
    """

    value: float
    interval: Interval
    successes: int
    trials: int

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.interval.low

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.interval.high


@dataclass(frozen=True)
class PermutationTest:
    """A difference of means and how often relabelled data give one as large.

    Args:
        difference: mean of the first sample minus mean of the second.
        p_value: in (0, 1].
        alternative: two-sided, greater or less.
        exact: whether every relabelling was listed; else `relabellings` random ones were drawn.
        relabellings: how many were compared.
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


def median(values: Values, *, confidence: float = 0.95) -> Estimate:
    """The median and its interval between two order statistics.

    The k-th smallest and the k-th largest of n values enclose the median of their distribution with probability
    1 - 2 P(X < k), X binomial(n, 1/2), whatever the distribution (Thompson 1936). Of these levels the smallest that
    reaches `confidence` is taken; where none does (n < 6 at .95) the widest interval, with its own smaller level.

    Args:
        values: one number per seed or example, finite.
        confidence: the level wished for, in (0, 1).

    Returns:
        The median; its interval at the level that it has, None for one value.

    Raises:
        RequestError: for no values, or values that are not finite.
    """
    array = np.sort(_checked(values, "values"))
    value, n = float(np.median(array)), array.size
    if n == 1:
        return Estimate(value, None, 1)
    tails = special.bdtr(np.arange(n // 2), n, 0.5)  # P(X <= k)
    rank = max(1, int(np.searchsorted(tails, (1 - _confidence(confidence)) / 2 + 1e-12, side="right")))
    interval = Interval(float(array[rank - 1]), float(array[n - rank]), 1 - 2 * float(tails[rank - 1]))
    return Estimate(value, interval, n)


def mean(values: Values, *, confidence: float = 0.95) -> Estimate:
    """The mean and its t interval (Student 1908), exact for normally distributed values.

    No interval for a mean holds its level for every distribution (Bahadur and Savage 1956); of skewed values, take the
    median.

    Args:
        values: one number per seed or example, finite.
        confidence: the level, in (0, 1).

    Returns:
        The mean; its interval is None for one value and for equal values, which show no spread.

    Raises:
        RequestError: for no values, or values that are not finite.
    """
    array = _checked(values, "values")
    value, level = float(array.mean()), _confidence(confidence)
    if np.ptp(array) == 0:
        return Estimate(value, None, array.size)
    half = float(special.stdtrit(array.size - 1, (1 + level) / 2) * array.std(ddof=1) / np.sqrt(array.size))
    return Estimate(value, Interval(value - half, value + half, level), array.size)


def share(successes: int, trials: int, *, confidence: float = 0.95) -> Share:
    """A share and its exact interval (Clopper and Pearson 1934), whose coverage is at least `confidence`.

    Args:
        successes: how many succeeded, 0 to `trials`.
        trials: of how many, 1 or more.
        confidence: the level, in (0, 1).

    Raises:
        RequestError: for no trials, or successes outside 0 to `trials`.
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise RequestError(
            f"{successes} successes of {trials} trials is not a share: it takes 0 <= successes <= trials >= 1"
        )
    tail = (1 - _confidence(confidence)) / 2
    low = special.betaincinv(successes, trials - successes + 1, tail) if successes else 0.0
    high = special.betaincinv(successes + 1, trials - successes, 1 - tail) if successes < trials else 1.0
    interval = Interval(float(low), float(high), confidence)
    return Share(successes / trials, interval, int(successes), int(trials))


def paired_test(
    first: Values,
    second: Values,
    *,
    alternative: Alternative = "two-sided",
    resamples: int = 9999,
    seed: int = 0,
) -> PermutationTest:
    """Does `first` exceed `second`, pair by pair? The mean difference under random flips of the signs.

    Args:
        first: one number per pair, finite.
        second: the other number of each pair.
        alternative: what counts against equality: a mean difference that is large either way, above 0, or below 0.
        resamples: random sign patterns; where there are no more patterns than that, all are listed instead.
        seed: of the random patterns.

    Raises:
        RequestError: for different lengths, no pairs, or values that are not finite.
    """
    one, two = _checked(first, "first"), _checked(second, "second")
    if one.size != two.size:
        raise RequestError(f"pairs need as many numbers on both sides: there are {one.size} and {two.size}")
    differences = one - two
    # Flipping a 0 changes nothing; without it fewer patterns are left and the test stays exact for longer.
    moving = differences[differences != 0]
    exact = moving.size < resamples.bit_length()  # 2^size <= resamples
    rng = np.random.default_rng(seed)
    if exact:
        patterns = (np.arange(1 << moving.size)[:, None] >> np.arange(moving.size)) & 1
        sums = (1 - 2.0 * patterns) @ moving
    else:
        sums = _random_sign_sums(moving, resamples, rng)
    p_value = _p_value(float(moving.sum()), sums, alternative, exact, scale=float(np.abs(moving).sum()))
    return PermutationTest(float(differences.mean()), p_value, alternative, exact, len(sums))


def _random_sign_sums(
    values: Float[np.ndarray, " pair"], resamples: int, rng: np.random.Generator
) -> Float[np.ndarray, " resample"]:
    """Sums of `values` under random signs. One random byte gives eight values their signs: the 256 sums of each eight
    are tabled first, so that a resample of n values costs n / 8 look-ups and no n random numbers."""
    eights = np.pad(values, (0, -values.size % 8)).reshape(-1, 8)
    signs = 1 - 2.0 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    table = eights @ signs.T
    rows, batch = np.arange(len(table)), max(1, (1 << 21) // len(table))
    sums = [
        table[rows, rng.integers(0, 256, size=(min(batch, resamples - at), len(table)), dtype=np.uint8)].sum(axis=1)
        for at in range(0, resamples, batch)
    ]
    return np.concatenate(sums)


def _p_value(
    observed: float, values: Float[np.ndarray, " resample"], alternative: Alternative, exact: bool, *, scale: float
) -> float:
    """The share of relabellings as extreme as the observation; of random ones the observation is one more.

    Two-sided, it is twice the smaller tail. Sums that differ by rounding alone count as equal.
    """
    slack, extra = 1e-12 * scale, 0 if exact else 1
    above = (np.count_nonzero(values >= observed - slack) + extra) / (len(values) + extra)
    below = (np.count_nonzero(values <= observed + slack) + extra) / (len(values) + extra)
    return float({"greater": above, "less": below, "two-sided": min(1.0, 2 * min(above, below))}[alternative])


def two_sample_test(
    first: Values,
    second: Values,
    *,
    alternative: Alternative = "two-sided",
    resamples: int = 9999,
    seed: int = 0,
) -> PermutationTest:
    """Is the mean of `first` above that of `second`? Difference of means under random exchange of the labels.

    Args:
        first: one number per seed or example, two or more, finite.
        second: the other sample, two or more.
        alternative: what counts against equality, as in `paired_test`.
        resamples: random exchanges; where there are no more exchanges than that, all are listed instead.
        seed: of the random exchanges.

    Raises:
        RequestError: for a sample of fewer than two values, or values that are not finite.
    """
    from scipy import stats  # slow to import, and nothing else here needs it

    one, two = _checked(first, "first", least=2), _checked(second, "second", least=2)
    exchanges = math.comb(one.size + two.size, one.size)
    difference = float(one.mean() - two.mean())
    if np.ptp(np.concatenate([one, two])) == 0:
        return PermutationTest(difference, 1.0, alternative, True, 1)
    result = stats.permutation_test(
        (one, two),
        lambda a, b, axis: np.mean(a, axis=axis) - np.mean(b, axis=axis),
        permutation_type="independent",
        n_resamples=resamples,
        alternative=alternative,
        vectorized=True,
        batch=max(1, (1 << 21) // (one.size + two.size)),  # bounds the memory
        rng=np.random.default_rng(seed),
    )
    exact = exchanges <= resamples
    p_value = min(1.0, float(result.pvalue))
    return PermutationTest(difference, p_value, alternative, exact, exchanges if exact else resamples)


def chance(values: Values) -> Chance:
    """The chance level of a score.

    Args:
        values: the score on data or models where there is nothing to find, one number each.

    Raises:
        RequestError: for no values, or values that are not finite.
    """
    array = _checked(values, "values")
    p95 = float(np.quantile(array, 0.95))
    return Chance(float(np.median(array)), p95, array.size, tuple(array.tolist()))


def slope(x: Values, y: Values, *, confidence: float = 0.95) -> Estimate:
    """The least-squares slope of y against x and its t interval; of logarithms, it is an exponent.

    The level is exact where y is a line plus independent normal noise of one size.

    Args:
        x: 3 or more numbers, two of them different.
        y: one number for each x.
        confidence: the level, in (0, 1).

    Raises:
        RequestError: for fewer than 3 points, different lengths, or one single x.
    """
    across, up = _checked(x, "x", least=3), _checked(y, "y", least=3)
    if across.size != up.size:
        raise RequestError(f"a slope needs as many x as y: there are {across.size} and {up.size}")
    if np.ptp(across) == 0:
        raise RequestError("a slope needs at least two different x")
    if np.ptp(up) == 0:
        return Estimate(0.0, Interval(0.0, 0.0, _confidence(confidence)), across.size)
    centred = across - across.mean()
    value = float(centred @ up / (centred @ centred))
    residual = up - up.mean() - value * centred
    error = np.sqrt(residual @ residual / (across.size - 2) / (centred @ centred))
    half = float(special.stdtrit(across.size - 2, (1 + _confidence(confidence)) / 2) * error)
    return Estimate(value, Interval(value - half, value + half, confidence), across.size)
