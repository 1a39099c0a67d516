"""The outer function F0 of a retrieval target: a polynomial of the D minima."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import RequestError


@dataclass(frozen=True)
class Outer:
    """F0(z) = sum over terms k of coefficients[k] * prod_i z_i^exponents[k][i].

    Raises ValueError for no term, rows of unequal length, negative exponents, coefficients that are not finite, or a
    coordinate that no term with a coefficient other than 0 depends on: F0 must be sensitive to every coordinate.
    """

    coefficients: tuple[float, ...]
    exponents: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.coefficients or len(self.coefficients) != len(self.exponents):
            raise RequestError(
                f"F0 has {len(self.coefficients)} coefficients and {len(self.exponents)} rows of exponents: "
                "give as many of one as of the other, at least 1"
            )
        if not all(math.isfinite(value) for value in self.coefficients):
            raise RequestError("a coefficient of F0 is not finite")
        if len({len(row) for row in self.exponents}) > 1:
            raise RequestError("the rows of exponents of F0 differ in length: each has one exponent per coordinate")
        if any(power < 0 for row in self.exponents for power in row):
            raise RequestError("F0 has a negative exponent: a polynomial has none")
        for coordinate in range(self.coordinates):
            if not any(row[coordinate] and value for row, value in zip(self.exponents, self.coefficients, strict=True)):
                raise RequestError(f"F0 does not depend on coordinate {coordinate}: it must be sensitive to every one")

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Outer:
        """The function that `options()` describes."""
        rows = tuple(tuple(int(power) for power in row) for row in options["exponents"])
        return cls(tuple(float(value) for value in options["coefficients"]), rows)

    def options(self) -> dict[str, Any]:
        """JSON-ready: `coefficients`, `exponents`."""
        return {"coefficients": list(self.coefficients), "exponents": [list(row) for row in self.exponents]}

    @property
    def coordinates(self) -> int:
        """D, the number of coordinates."""
        return len(self.exponents[0])

    @property
    def is_linear(self) -> bool:
        """Whether no term is of a degree above 1."""
        return all(sum(row) <= 1 for row in self.exponents)

    def __call__(self, z: Float[Tensor, "*batch coordinate"]) -> Float[Tensor, "*batch"]:
        return polynomial(z, z.new_tensor(self.coefficients), torch.tensor(self.exponents, device=z.device))

    def lipschitz(self, radius: float) -> float:
        """A bound on sum_i |dF0 / dz_i| where every |z_i| <= radius: |F0(z) - F0(z')| <= it * max_i |z_i - z'_i|."""
        total = 0.0
        for value, row in zip(self.coefficients, self.exponents, strict=True):
            degree = sum(row)
            if degree:
                total += abs(value) * degree * radius ** (degree - 1)
        return total


def polynomial(
    z: Float[Tensor, "*batch coordinate"], coefficients: Float[Tensor, " term"], exponents: Tensor
) -> Float[Tensor, "*batch"]:
    """sum_k coefficients[k] prod_i z_i^exponents[k, i]; 0^0 is 1. Differentiable in z."""
    powers = [torch.ones_like(z)]
    for _ in range(int(exponents.max())):
        powers.append(powers[-1] * z)
    stacked = torch.stack(powers, dim=-1)  # [*batch, coordinate, power]
    coordinate = torch.arange(z.shape[-1], device=z.device)
    return stacked[..., coordinate, exponents.long()].prod(dim=-1) @ coefficients


def linear(weights: Sequence[float]) -> Outer:
    """sum_i weights[i] * z_i."""
    size = len(weights)
    return Outer(tuple(map(float, weights)), tuple(tuple(int(i == k) for i in range(size)) for k in range(size)))


def product(coordinates: int) -> Outer:
    """prod_i z_i."""
    return Outer((1.0,), ((1,) * coordinates,))
