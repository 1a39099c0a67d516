"""A ReLU network that finds minima exactly, by a tournament of logarithmic depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class ReluNetwork:
    """Layers x -> relu(x W) but for the last, which is linear. No biases.

    weights: [in, out] each, float64. `parameters` counts those that are not 0.
    """

    weights: tuple[Float[Tensor, "_ _"], ...]

    @property
    def hidden(self) -> list[int]:
        """The sizes of the hidden layers."""
        return [weight.shape[1] for weight in self.weights[:-1]]

    @property
    def parameters(self) -> int:
        """How many weights are not 0."""
        return sum(int((weight != 0).sum()) for weight in self.weights)

    def __call__(self, x: Float[Tensor, "*batch inner"]) -> Float[Tensor, "*batch outer"]:
        for weight in self.weights[:-1]:
            x = (x @ weight.to(x)).relu()
        return x @ self.weights[-1].to(x)


def tournament(groups: Sequence[Float[Tensor, "_ inner"]], combine: Sequence[float]) -> ReluNetwork:
    """The network x -> sum_i combine[i] * min over rows r of groups[i] of r.x.

    In each round pairs are compared, min(a, b) = relu(a) - relu(-a) - relu(a - b), and a value without a partner is
    carried as relu(a) - relu(-a); ceil(log2(largest group)) hidden layers, exact in exact arithmetic. What is added
    up to make a minimum is folded into the weights of the next layer.
    """
    rows = [[row.double() for row in group] for group in groups]  # of each value, its weights on the layer below
    weights = []
    inner = rows[0][0].shape[0]
    while True:
        units: list[Tensor] = []
        following: list[list[list[tuple[int, float]]]] = []
        for group in rows:
            values = []
            for index in range(0, len(group), 2):
                a = group[index]
                first = len(units)
                made = [(first, 1.0), (first + 1, -1.0)]
                units += [a, -a]
                if index + 1 < len(group):
                    made.append((first + 2, -1.0))
                    units.append(a - group[index + 1])
                values.append(made)
            following.append(values)
        weights.append(torch.stack(units, dim=1))
        inner = len(units)
        rows = [[_row(made, inner) for made in values] for values in following]
        if all(len(group) == 1 for group in rows):
            break
    total = torch.zeros(inner, dtype=torch.float64)
    for value, (row,) in zip(combine, rows, strict=True):
        total += value * row
    return ReluNetwork((*weights, total[:, None]))


def _row(made: Sequence[tuple[int, float]], size: int) -> Float[Tensor, " inner"]:
    row = torch.zeros(size, dtype=torch.float64)
    for unit, sign in made:
        row[unit] = sign
    return row
