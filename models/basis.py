"""Named directions of a vector space, so that constructed weights read like the theorem they come from.

A residual stream or a head's own space gets a `Basis`; its directions add, subtract and scale, and only within it. The
idea of weights written over named bases is that of tracr (Lindner et al. 2023).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import RequestError, UnknownName


@dataclass(frozen=True)
class Basis:
    """An orthonormal basis whose axes have names: strings, vertex numbers, whatever hashes.

    Two bases are the same when name and axes are equal. Raises RequestError where an axis is named twice.
    """

    name: str
    axes: tuple[Hashable, ...]

    def __post_init__(self) -> None:
        if len(set(self.axes)) != len(self.axes):
            twice = next(axis for axis in self.axes if self.axes.count(axis) > 1)
            raise RequestError(f"basis '{self.name}' names the axis {twice!r} twice: give every axis a name of its own")

    def __len__(self) -> int:
        return len(self.axes)

    def __getitem__(self, axis: Hashable) -> Direction:
        """The unit vector of `axis`; KeyError lists axes that exist."""
        if axis not in self.axes:
            known = ", ".join(map(repr, self.axes[:8])) + (", ..." if len(self.axes) > 8 else "")
            raise UnknownName(f"basis '{self.name}' has no axis {axis!r}; it has {known}")
        coordinates = torch.zeros(len(self), dtype=torch.float64)
        coordinates[self.axes.index(axis)] = 1.0
        return Direction(self, coordinates)

    @property
    def zero(self) -> Direction:
        """The null vector."""
        return Direction(self, torch.zeros(len(self), dtype=torch.float64))

    def combination(self, coefficients: Mapping[Hashable, float | int]) -> Direction:
        """sum over axes of coefficient * axis."""
        coordinates = torch.zeros(len(self), dtype=torch.float64)
        position = {axis: k for k, axis in enumerate(self.axes)}
        for axis, coefficient in coefficients.items():
            if axis not in position:
                self[axis]  # raises the error that lists the axes
            coordinates[position[axis]] += float(coefficient)
        return Direction(self, coordinates)

    def rows(self, directions: Iterable[Direction]) -> Float[Tensor, "row axis"]:
        """The directions as rows of a float64 matrix, e.g. an embedding table. ValueError for a foreign direction."""
        rows = []
        for direction in directions:
            self.require(direction)
            rows.append(direction.coordinates)
        return torch.stack(rows) if rows else torch.zeros(0, len(self), dtype=torch.float64)

    def linear(self, images: Mapping[Hashable, Direction], into: Basis) -> Float[Tensor, "source target"]:
        """The matrix W with `x @ W` = the linear map that sends each named axis to its image and all others to 0.

        That is the orientation of transformer-lens: `basis.linear({"q": head["match"]}, into=head)` is a W_Q and
        `head.linear({"value": basis["out"]}, into=basis)` a W_O. ValueError where an image does not lie in `into`.
        """
        matrix = torch.zeros(len(self), len(into), dtype=torch.float64)
        position = {axis: k for k, axis in enumerate(self.axes)}
        for axis, image in images.items():
            into.require(image)
            if axis not in position:
                self[axis]  # raises the error that lists the axes
            matrix[position[axis]] = image.coordinates
        return matrix

    def require(self, direction: Direction) -> None:
        """Raise RequestError where `direction` belongs to another basis."""
        if direction.basis != self:
            raise RequestError(
                f"a direction of basis '{direction.basis.name}' was used where basis '{self.name}' is meant"
            )


@dataclass(frozen=True, eq=False)
class Direction:
    """A vector of one basis. Adding vectors of different bases raises ValueError.

    coordinates: float64, one per axis of the basis.
    """

    basis: Basis
    coordinates: Float[Tensor, " axis"]

    def __add__(self, other: Direction) -> Direction:
        self.basis.require(other)
        return Direction(self.basis, self.coordinates + other.coordinates)

    def __sub__(self, other: Direction) -> Direction:
        return self + (-other)

    def __neg__(self) -> Direction:
        return self * -1.0

    def __mul__(self, factor: float | int) -> Direction:
        return Direction(self.basis, self.coordinates * float(factor))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float | int) -> Direction:
        return self * (1.0 / float(divisor))

    def __matmul__(self, other: Direction) -> float:
        """The inner product."""
        self.basis.require(other)
        return float(self.coordinates @ other.coordinates)

    def tensor(self, dtype: torch.dtype = torch.float64) -> Float[Tensor, " axis"]:
        """The coordinates, a copy, in `dtype`."""
        return self.coordinates.to(dtype, copy=True)

    def __repr__(self) -> str:
        terms = [f"{value:+g} {self.basis.axes[k]}" for k, value in enumerate(self.coordinates.tolist()) if value]
        return f"<{self.basis.name}: {' '.join(terms) or '0'}>"
