"""Where does a curve change? Piecewise linear models weighed by their exact evidence.

A `Hypothesis` is a linear model with Gaussian coefficients, so that its evidence is an integral in closed form; the
noise is averaged over a grid. `weigh` takes any list of them (one per possible change point, or per possible number of
heads); `phase` takes a training curve and says when it leaves its level and when it has arrived at the next, in noise
that may depend on the noise before it: noise[t] = rho noise[t - 1] + innovation[t], with rho unknown.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.special import logsumexp

from headlab.interp.errors import RequestError
from headlab.interp.interval import Interval
from headlab.interp.statistics import Estimate, Values

RHO = (0.0, 0.3, 0.6, 0.8, 0.9, 0.97)  # correlations of the noise from one point to the next
SIMULATED = 499  # curves without a change, for each of them
DISMISSED = 0.01  # how often the true correlation is wrongly ruled out
MOST_PLACES = 48  # points that a passage can begin or end at in the test


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """values = design @ coefficients + noise, where coefficient k is drawn from N(mean[k], sd[k]^2)."""

    name: Hashable
    design: Float[np.ndarray, "point coefficient"]
    mean: Float[np.ndarray, " coefficient"]
    sd: Float[np.ndarray, " coefficient"]


@dataclass(frozen=True, eq=False)
class Posterior:
    """How probable each hypothesis is after the data.

    credible: the fewest hypotheses whose probabilities sum to `mass`, the most probable first.
    """

    names: tuple[Hashable, ...]
    probability: Float[np.ndarray, " hypothesis"]
    log_evidence: Float[np.ndarray, " hypothesis"]
    credible: tuple[Hashable, ...]
    mass: float

    @property
    def best(self) -> Hashable:
        """The most probable hypothesis; of equals, the first."""
        return self.names[int(self.probability.argmax())]

    def to_frame(self) -> pd.DataFrame:
        """One row per hypothesis: hypothesis, probability, log_evidence, credible."""
        return pd.DataFrame(
            {
                "hypothesis": list(self.names),
                "probability": self.probability,
                "log_evidence": self.log_evidence,
                "credible": [name in self.credible for name in self.names],
            }
        )


@dataclass(frozen=True, eq=False)
class Phase:
    """A curve's passage from one level to another, in the curve's own units.

    Args:
        change: in [0, 1], how probable it is that there is one; what follows is given that there is.
        p_value: in (0, 1], how often a curve that stays at one level, with noise as correlated as is worst for this
            curve, looks as much like a passage.
        start: the last point at the old level, with its credible interval.
        end: the first point at the new level, with its credible interval.
        rise: new level minus old.
        starts: the start of every passage considered.
        ends: its end.
        probability: how probable each of them is.
    """

    change: float
    p_value: float
    start: Estimate
    end: Estimate
    rise: float
    starts: Float[np.ndarray, " passage"]
    ends: Float[np.ndarray, " passage"]
    probability: Float[np.ndarray, " passage"]


def log_evidence(
    values: Float[np.ndarray, " point"],
    designs: Float[np.ndarray, "hypothesis point coefficient"],
    mean: Float[np.ndarray, " coefficient"],
    sd: Float[np.ndarray, " coefficient"],
    noise: Values,
) -> Float[np.ndarray, "hypothesis noise"]:
    """ln N(values; design mean, design diag(sd^2) design^T + noise^2), for each design and each noise level."""
    noise = np.asarray(noise, dtype=np.float64)[:, None, None]
    residual = values - designs @ mean
    onto = np.einsum("hpc,hp->hc", designs, residual)
    gram = np.einsum("hpc,hpd->hcd", designs, designs)
    inner = np.diag(1 / sd**2) + gram / noise[..., None] ** 2
    fitted = np.linalg.solve(inner, np.broadcast_to(onto[..., None], (*inner.shape[:2], len(sd), 1)))[..., 0]
    scale = noise[..., 0]
    misfit = (residual**2).sum(1) / scale**2 - (fitted * onto).sum(-1) / scale**4
    spread = 2 * len(values) * np.log(scale) + 2 * np.log(sd).sum() + np.linalg.slogdet(inner)[1]
    return (-0.5 * (misfit + spread + len(values) * np.log(2 * np.pi))).T


def weigh(
    values: Values,
    hypotheses: Sequence[Hypothesis],
    *,
    noise: Values,
    prior: Values | None = None,
    mass: float = 0.9,
) -> Posterior:
    """The probability of each hypothesis: prior (even by default) times evidence averaged over the `noise` levels.

    Raises ValueError for no hypotheses, designs that do not fit the values, a noise or sd that is not positive.
    """
    points = _points(values, "values")
    if not hypotheses:
        raise RequestError("there are no hypotheses to weigh")
    if np.min(noise) <= 0:
        raise RequestError("every noise level must be positive")
    weights = np.ones(len(hypotheses)) if prior is None else np.asarray(prior, dtype=np.float64)
    if weights.shape != (len(hypotheses),) or (weights < 0).any() or not weights.any():
        raise RequestError(f"the prior must give each of the {len(hypotheses)} hypotheses a weight of 0 or more")
    found = []
    for each in hypotheses:
        if each.design.shape != (len(points), len(each.mean)) or (each.sd <= 0).any():
            raise RequestError(
                f"hypothesis '{each.name}' has a design of shape {each.design.shape} for {len(points)} values and "
                f"{len(each.mean)} coefficients, whose sd must be positive"
            )
        levels = log_evidence(points, each.design[None], each.mean, each.sd, noise)[0]
        found.append(logsumexp(levels) - np.log(len(levels)))
    evidence = np.array(found)
    probability = _normalised(evidence, weights / weights.sum())
    order = np.argsort(-probability, kind="stable")
    enough = int(np.searchsorted(np.cumsum(probability[order]), mass - 1e-12)) + 1
    names = tuple(each.name for each in hypotheses)
    return Posterior(names, probability, evidence, tuple(names[k] for k in order[:enough]), mass)


def phase(x: Values, values: Values, *, confidence: float = 0.9) -> Phase:
    """When a curve leaves its level, and when it has arrived at another: level, straight passage, level; or one level.

    Every pair start < end of the points x is considered. On the curve scaled to range 1: levels N(0, .5^2) about the
    middle, rise N(0, 1), innovations averaged over .01 to .5 on a log scale and their correlation from point to point
    over RHO; start uniform, end uniform behind it; a change is as probable as none before the data. The p value is that
    of the likelihood ratio among seeded curves without a change, the largest over RHO.

    Args:
        x: 3 or more ascending numbers: steps, or their logarithm where points are spaced so.
        values: the curve, one number for each x.
        confidence: the mass of the credible intervals, in (0, 1).

    Raises:
        RequestError: for fewer than 3 points, values that are not finite, or an x that does not ascend.
    """
    across, up = _curve(x, values)
    first, last = np.triu_indices(len(across), k=1)
    prior = 1 / ((len(across) - 1) * (len(across) - 1 - first))
    size = float(np.ptp(up))
    if size == 0:
        return _phase(0.0, 1.0, 0.0, across[first], across[last], prior, confidence)
    scaled = (up - (up.max() + up.min()) / 2) / size
    noise = np.geomspace(0.01, 0.5, 12)
    even = np.ones((1, len(across), 1))
    still = _over_noise(scaled, even, np.array([0.5]), noise)[0]
    moved = np.empty(len(first))
    for start in range(len(across) - 1):
        rows = np.flatnonzero(first == start)
        moved[rows] = _over_noise(scaled, _passages(across, start, last[rows]), np.array([0.5, 1.0]), noise)
    probability = _normalised(moved, prior)
    total = logsumexp(moved, b=prior)
    change = float(1 / (1 + np.exp(np.clip(still - total, -700, 700))))
    best = int(probability.argmax())
    before, after = up[: first[best] + 1].mean(), up[last[best] :].mean()
    p_value = change_p_value(across, up)
    return _phase(change, p_value, float(after - before), across[first], across[last], probability, confidence)


def _over_noise(
    values: Float[np.ndarray, " point"],
    designs: Float[np.ndarray, "hypothesis point coefficient"],
    sd: Float[np.ndarray, " coefficient"],
    noise: Float[np.ndarray, " level"],
) -> Float[np.ndarray, " hypothesis"]:
    """The log evidence averaged over the sizes of the innovations and over their correlation RHO."""
    levels = [
        log_evidence(_whitened(values, rho), _whitened(designs.swapaxes(1, 2), rho).swapaxes(1, 2), 0 * sd, sd, noise)
        + 0.5 * np.log(1 - rho**2)  # the determinant of the whitening
        for rho in RHO
    ]
    return logsumexp(np.concatenate(levels, axis=1), axis=1) - np.log(len(RHO) * len(noise))


def _whitened(curves: Float[np.ndarray, "*curves point"], rho: float) -> Float[np.ndarray, "*curves point"]:
    """Curves whose noise is correlated by `rho` from point to point, turned into curves of independent noise."""
    first = np.sqrt(1 - rho**2) * curves[..., :1]
    return np.concatenate([first, curves[..., 1:] - rho * curves[..., :-1]], axis=-1)


def change_p_value(x: Values, values: Values) -> float:
    """How often a curve without a change has as large a likelihood ratio, for the rho for which that is most often.

    Only rho that the curve does not rule out count: those whose likelihood with the best passage falls short of the
    best rho's by no more than all but a share DISMISSED of curves of that rho do. That share is added, so that the test
    keeps its level for every rho (Berger and Boos 1994).

    Args:
        x: 3 or more ascending numbers.
        values: the curve, one number for each x.

    Returns:
        The p value, in (0, 1].

    Raises:
        RequestError: as `phase`.
    """
    across, curve = _curve(x, values)
    if np.ptp(curve) == 0:
        return 1.0
    spacing = tuple(((across - across[0]) / (across[-1] - across[0])).tolist())
    ratios, shortfall = _no_change(spacing)
    still, moved = (each[:, 0] for each in _log_likelihoods(spacing, (curve - curve.mean())[None] / np.ptp(curve)))
    reached = (1 + (ratios >= moved.max() - still.max()).sum(axis=1)) / (1 + SIMULATED)
    possible = moved.max() - moved <= shortfall
    return min(1.0, float(reached[possible].max(initial=0.0)) + DISMISSED)


@lru_cache(maxsize=8)  # many curves are recorded at the same steps
def _no_change(spacing: tuple[float, ...]) -> tuple[Float[np.ndarray, "rho curve"], Float[np.ndarray, " rho"]]:
    """Of seeded curves that stay at one level, for each rho: their likelihood ratios, and how far the likelihood of the
    true rho falls short of the best one's in all but a share DISMISSED of them."""
    innovations = np.random.default_rng(0).normal(size=(SIMULATED, len(spacing)))
    ratios, shortfall = [], []
    for number, rho in enumerate(RHO):
        noise = innovations.copy()
        noise[:, 0] /= np.sqrt(1 - rho**2)
        for point in range(1, len(spacing)):
            noise[:, point] += rho * noise[:, point - 1]
        still, moved = _log_likelihoods(spacing, noise)
        ratios.append(moved.max(axis=0) - still.max(axis=0))
        shortfall.append(np.quantile(moved.max(axis=0) - moved[number], 1 - DISMISSED))
    return np.stack(ratios), np.array(shortfall)


def _log_likelihoods(
    spacing: tuple[float, ...], curves: Float[np.ndarray, "curve point"]
) -> tuple[Float[np.ndarray, "rho curve"], Float[np.ndarray, "rho curve"]]:
    """ln of the largest likelihood without a passage and with the best one, for each rho, up to one constant."""
    across, count = np.array(spacing), len(spacing)
    places = np.unique(np.linspace(0, count - 1, min(count, MOST_PLACES)).round().astype(int))
    passages = np.concatenate(
        [_passages(across, start, places[k + 1 :])[..., 1] for k, start in enumerate(places[:-1].tolist())]
    )
    still, moved = [], []
    for rho in RHO:
        level = _whitened(np.ones(count), rho)
        level /= np.linalg.norm(level)
        directions, values = (
            each - (each @ level)[:, None] * level for each in (_whitened(passages, rho), _whitened(curves, rho))
        )
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        squares = (values**2).sum(axis=1)
        gained = np.square(directions @ values.T).max(axis=0)
        rest = np.maximum(squares - gained, 1e-12 * squares)
        determinant = 0.5 * np.log(1 - rho**2)
        still.append(determinant - 0.5 * count * np.log(squares))
        moved.append(determinant - 0.5 * count * np.log(rest))
    return np.stack(still), np.stack(moved)


def earlier(one: Phase, other: Phase) -> float:
    """The probability that the middle of the first passage lies before the middle of the second, a tie counted half.

    Both are taken as independent, given that each curve changes at all.
    """
    halves = [(each.starts + each.ends) / 2 for each in (one, other)]
    order = np.argsort(halves[1])
    reached = np.concatenate([[0.0], np.cumsum(other.probability[order])])
    below, upto = (reached[np.searchsorted(halves[1][order], halves[0], side=side)] for side in ("left", "right"))
    return float(np.clip(1 - (one.probability * (below + upto) / 2).sum(), 0, 1))


def _passages(
    across: Float[np.ndarray, " point"], start: int, ends: Int[np.ndarray, " passage"]
) -> Float[np.ndarray, "passage point 2"]:
    way = (across - across[start]) / (across[ends] - across[start])[:, None]
    return np.stack([np.ones_like(way), np.clip(way, 0, 1)], axis=-1)


def _phase(
    change: float,
    p_value: float,
    rise: float,
    starts: Float[np.ndarray, " passage"],
    ends: Float[np.ndarray, " passage"],
    probability: Float[np.ndarray, " passage"],
    confidence: float,
) -> Phase:
    probability = probability / probability.sum()

    def estimate(points: np.ndarray) -> Estimate:
        order = np.argsort(points, kind="stable")
        reached = np.cumsum(probability[order])
        tails = ((1 - confidence) / 2, 0.5, (1 + confidence) / 2)
        low, middle, high = (
            float(points[order][min(int(np.searchsorted(reached, q - 1e-12)), len(order) - 1)]) for q in tails
        )
        return Estimate(middle, Interval(low, high, confidence), len(np.unique(points)) + 1)

    return Phase(change, p_value, estimate(starts), estimate(ends), rise, starts, ends, probability)


def _normalised(evidence: np.ndarray, prior: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        weighed = evidence + np.log(prior)
    return np.exp(weighed - logsumexp(weighed))


def _curve(x: Values, values: Values) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    across, up = _points(x, "x"), _points(values, "values")
    if len(across) != len(up) or len(across) < 3:
        raise RequestError(
            f"a phase needs at least 3 points, as many x as values: there are {len(across)} and {len(up)}"
        )
    if (np.diff(across) <= 0).any():
        raise RequestError("x must ascend strictly")
    return across, up


def _points(values: Values, name: str) -> Float[np.ndarray, " point"]:
    points = np.asarray(values, dtype=np.float64)
    if points.ndim != 1 or not len(points):
        raise RequestError(f"{name} must be a list of numbers, not an array of shape {points.shape}")
    if not np.isfinite(points).all():
        raise RequestError(f"{name} holds {int((~np.isfinite(points)).sum())} numbers that are not finite")
    return points
