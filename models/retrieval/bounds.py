"""What the theory says of retrieval: the error of softmax attention, the leak of a gate, the lower bound's exponent."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import lambertw

from headlab.interp.errors import RequestError


def retrieval_error(count: int, beta: float) -> float:
    """The largest z~ - z of attention with scores -beta f over `count` values: W0((count - 1) / e) / beta.

    z~ = sum_t softmax(-beta f)_t f_t is never below z = min_t f_t. With gaps u_t = beta (f_t - z) the error is
    sum u e^-u / (1 + sum e^-u) / beta, largest where all gaps are equal and u - 1 = W0((count - 1) / e), and then
    that is its value: the bound is attained. Units of f. Raises ValueError for an empty set or a beta that is not
    positive and finite.
    """
    require_beta(beta)
    if count < 1:
        raise RequestError(f"{count} values: attention needs at least one to choose from")
    return float(lambertw((count - 1) / math.e).real) / beta


def worst_gap(count: int, beta: float) -> float:
    """The gap between the minimum and all other values at which `retrieval_error` is attained, in units of f."""
    return retrieval_error(count, beta) + 1 / beta


def gate_leak(outside: int, gate: float, beta: float, spread: float = 1.0) -> float:
    """At most how much attention falls outside S: outside * exp(-(gate - beta * spread)), and never more than 1.

    outside: how many positions S leaves out. gate: what the score gains inside S. spread: the range of f, 1 where f
    is in [0, 1].
    """
    return 0.0 if outside == 0 else math.exp(min(0.0, math.log(outside) - (gate - beta * spread)))


def require_beta(beta: float) -> None:
    """Raise ValueError where a softmax scale is not positive and finite."""
    if not 0 < beta < math.inf:
        raise RequestError(f"beta = {beta}: the softmax scale must be positive and finite")


@dataclass(frozen=True)
class ErrorExponent:
    """The lower bound's exponent: with s < D heads, parameters grow as (1/eps)^k at least.

    k: (T/4 - s - D + 1) / ((n + 1) s + 1) - 1. vacuous: whether k <= 0, so that nothing is said. above: the length
    that T must exceed for k to be positive, 4 ((n + 1) s + s + D).
    """

    k: float
    vacuous: bool
    above: int

    def __str__(self) -> str:
        if self.vacuous:
            return f"vacuous: k = {self.k:.3g}; the bound speaks only of lengths above {self.above}"
        return f"at least (1/eps)^{self.k:.3g} parameters"


def exponent(length: int, heads: int, coordinates: int, width: int) -> ErrorExponent:
    """The exponent for sequences of `length` T, s = `heads`, D = `coordinates`, n = `width` numbers a head.

    The bound is stated for s < D. Raises ValueError elsewhere, and where a count is below 1.
    """
    for name, value in (("length", length), ("heads", heads), ("coordinates", coordinates), ("width", width)):
        if value < 1:
            raise RequestError(f"{name} = {value}: it must be at least 1")
    if heads >= coordinates:
        raise RequestError(
            f"{heads} heads for {coordinates} coordinates: the lower bound is stated for fewer heads only"
        )
    k = (length / 4 - heads - coordinates + 1) / ((width + 1) * heads + 1) - 1
    return ErrorExponent(k, k <= 0, 4 * ((width + 1) * heads + heads + coordinates))


def determines_dimension(length: int, first: int, second: int) -> bool:
    """Whether T is long enough that a target cannot be written with both D1 and D2 minima: D1^2 + D2^2 <= T / 50."""
    return 50 * (first**2 + second**2) <= length


def shortest_length(first: int, second: int) -> int:
    """The smallest T at which `determines_dimension` holds: 1600 for D1 = D2 = 4."""
    return 50 * (first**2 + second**2)
