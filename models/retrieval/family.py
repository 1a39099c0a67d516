"""The targets of retrieval: H(x) = F0(z_1, ..., z_D) with z_i the smallest f_i(x_t) over the positions t in S_i."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headlab.interp.errors import RequestError, UnknownName
from headlab.models.outer import Outer, linear

Kind = Literal["projection", "distance"]
KINDS: tuple[str, ...] = ("projection", "distance")
Vectors = Literal["orthonormal", "unit", "gaussian"]


@dataclass(frozen=True)
class Family:
    """One target over sequences of `length` tokens of dimension d. Coordinates and positions count from 0.

    kind `projection`: f_i(x) = -a_i.x on x ~ N(0, I_d), so that z_i = -max_t a_i.x_t: the synthetic target of the
        paper. Its minimum over R^d is not attained; what is unique is the token that has it.
    kind `distance`: f_i(x) = |x - c_i|^2 / d on x uniform in [0, 1]^d: smooth, in [0, 1], with one non-degenerate
        minimum, at c_i.
    vectors: the a_i or c_i, one row per coordinate. outer: F0. sets: S_i per coordinate; None where every S_i is the
    whole sequence.

    Raises ValueError for no coordinate, vectors of unequal size or not finite, equal rows (two coordinates with one
    minimum), centres outside [0, 1]^d, an F0 of another number of coordinates, and an empty S_i or one that does not
    fit the length.
    """

    length: int
    kind: Kind | str
    vectors: tuple[tuple[float, ...], ...]
    outer: Outer
    sets: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        require_coordinates(len(self.vectors))
        if self.length < 1:
            raise RequestError(f"length T = {self.length}: a sequence has at least 1 token")
        if self.kind not in KINDS:
            raise RequestError(f"unknown kind of function '{self.kind}': choose {' or '.join(KINDS)}")
        if len({len(row) for row in self.vectors}) > 1 or not self.vectors[0]:
            raise RequestError("the vectors differ in size, or are empty: each needs one entry per token dimension")
        if not all(math.isfinite(value) for row in self.vectors for value in row):
            raise RequestError("a vector has an entry that is NaN or infinite")
        for row in self.vectors:
            if self.vectors.count(row) > 1:
                first, second = [i for i, other in enumerate(self.vectors) if other == row][:2]
                raise RequestError(f"coordinates {first} and {second} have the same vector: minima must be distinct")
        if self.kind == "distance" and not all(0 <= value <= 1 for row in self.vectors for value in row):
            raise RequestError("a centre lies outside [0, 1]^d, where the tokens are")
        if self.outer.coordinates != self.coordinates:
            raise RequestError(
                f"F0 takes {self.outer.coordinates} coordinates, but there are {self.coordinates} vectors"
            )
        self._check_sets()

    def _check_sets(self) -> None:
        if self.sets is None:
            return
        if len(self.sets) != self.coordinates:
            raise RequestError(f"there are {len(self.sets)} position sets for {self.coordinates} coordinates")
        for index, own in enumerate(self.sets):
            if not own:
                raise RequestError(
                    f"the position set S_{index} is empty: coordinate {index} has nothing to choose from"
                )
            if len(set(own)) > self.length:
                raise RequestError(
                    f"the position set S_{index} has {len(set(own))} positions, more than the length T = {self.length}"
                )
            if len(set(own)) < len(own):
                raise RequestError(f"the position set S_{index} names a position twice")
            for position in own:
                if not 0 <= position < self.length:
                    raise RequestError(
                        f"the position set S_{index} names position {position}: "
                        f"a sequence of length {self.length} has positions 0 to {self.length - 1}"
                    )

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Family:
        """The family that `options()` describes. Raises KeyError naming an entry that is missing."""
        for name in ("length", "kind", "vectors", "outer"):
            if name not in options:
                raise UnknownName(f"the description of the target lacks '{name}'")
        sets = options.get("sets")
        return cls(
            length=int(options["length"]),
            kind=str(options["kind"]),
            vectors=tuple(tuple(float(value) for value in row) for row in options["vectors"]),
            outer=Outer.from_options(options["outer"]),
            sets=None if sets is None else tuple(tuple(int(position) for position in own) for own in sets),
        )

    def options(self) -> dict[str, Any]:
        """JSON-ready; what `from_options` takes."""
        return {
            "length": self.length,
            "kind": self.kind,
            "vectors": [list(row) for row in self.vectors],
            "outer": self.outer.options(),
            "sets": None if self.sets is None else [list(own) for own in self.sets],
        }

    @property
    def coordinates(self) -> int:
        """D, the number of minima."""
        return len(self.vectors)

    @property
    def size(self) -> int:
        """d, the dimension of a token."""
        return len(self.vectors[0])

    @property
    def position_sets(self) -> tuple[tuple[int, ...], ...]:
        """S_i per coordinate, ascending, also where each is the whole sequence."""
        whole = tuple(range(self.length))
        return (whole,) * self.coordinates if self.sets is None else tuple(tuple(sorted(own)) for own in self.sets)

    @property
    def is_whole(self) -> bool:
        """Whether every S_i is the whole sequence, so that the order of the tokens does not matter."""
        return all(len(own) == self.length for own in self.position_sets)

    def draw(self, count: int, generator: torch.Generator) -> Float[Tensor, "example position feature"]:
        """Tokens of the family's distribution, float32. Raises ValueError for a count below 1."""
        if count < 1:
            raise RequestError(f"count = {count}: ask for at least one example")
        make = torch.randn if self.kind == "projection" else torch.rand
        return make((count, self.length, self.size), generator=generator)

    def values(
        self, tokens: Float[Tensor, "*example position feature"]
    ) -> Float[Tensor, "*example position coordinate"]:
        """f_i at every token, inside its S_i or not. Raises ValueError for another length or dimension, and for NaN."""
        if tokens.shape[-2:] != (self.length, self.size):
            raise RequestError(
                f"the tokens have shape {tuple(tokens.shape)}: the last two axes must be "
                f"{self.length} positions and {self.size} features"
            )
        bad = ~torch.isfinite(tokens)
        if bad.any():
            raise RequestError(f"the data hold {int(bad.sum())} numbers that are NaN or infinite")
        vectors = tokens.new_tensor(self.vectors)
        if self.kind == "projection":
            return -tokens @ vectors.T
        return (tokens[..., None, :] - vectors).square().mean(dim=-1)

    def within(
        self, values: Float[Tensor, "*example position coordinate"]
    ) -> Float[Tensor, "*example position coordinate"]:
        """`values` with infinity where the position is not in the coordinate's set."""
        if self.is_whole:
            return values
        inside = torch.zeros(self.length, self.coordinates, dtype=torch.bool, device=values.device)
        for coordinate, own in enumerate(self.position_sets):
            inside[list(own), coordinate] = True
        return values.masked_fill(~inside, torch.inf)

    def minima(self, tokens: Float[Tensor, "*example position feature"]) -> Float[Tensor, "*example coordinate"]:
        """z_i, the smallest f_i over S_i. Differentiable. Errors as for `values`."""
        return self.within(self.values(tokens)).amin(dim=-2)

    def retrieved(self, tokens: Float[Tensor, "*example position feature"]) -> Int[Tensor, "*example coordinate"]:
        """The position of each minimum, the first of equals. Errors as for `values`."""
        return self.within(self.values(tokens)).argmin(dim=-2)

    def target(self, tokens: Float[Tensor, "*example position feature"]) -> Float[Tensor, "*example"]:
        """H(x) = F0(z_1, ..., z_D), in the dtype of the tokens. Errors as for `values`."""
        return self.outer(self.minima(tokens))


def require_coordinates(coordinates: int) -> None:
    """Raise ValueError where there is no coordinate to retrieve."""
    if coordinates < 1:
        raise RequestError(f"D = {coordinates} coordinates: retrieval needs at least 1")


def draw_vectors(
    coordinates: int, size: int, *, seed: int, how: Vectors | str = "orthonormal"
) -> tuple[tuple[float, ...], ...]:
    """Random directions a_i. `orthonormal`: the rows of random rotations, as many as are needed (orthonormal within
    each); `unit`: independent and of length 1; `gaussian`: independent N(0, I).

    Raises ValueError for D = 0, no dimension, another name, or rotations of one dimension, which are not distinct.
    """
    require_coordinates(coordinates)
    if size < 1:
        raise RequestError(f"tokens of {size} dimensions: there must be at least 1")
    generator = torch.Generator().manual_seed(seed)
    if how == "orthonormal":
        blocks = []
        for _ in range(math.ceil(coordinates / size)):
            rotation, upper = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
            blocks.append((rotation * upper.diagonal().sign()).T)
        drawn = torch.cat(blocks)[:coordinates]
    elif how in ("unit", "gaussian"):
        drawn = torch.randn(coordinates, size, generator=generator, dtype=torch.float64)
        drawn = drawn if how == "gaussian" else drawn / drawn.norm(dim=1, keepdim=True)
    else:
        raise RequestError(f"unknown vectors '{how}': choose orthonormal, unit or gaussian")
    return tuple(tuple(row) for row in drawn.tolist())


def sum_of_maxima(
    coordinates: int = 4,
    length: int = 8,
    *,
    size: int = 4,
    seed: int = 0,
    vectors: Sequence[Sequence[float]] | Vectors | str = "orthonormal",
) -> Family:
    """The synthetic target sum_i max_t a_i.x_t with given a_i, or a_i drawn with `seed` (see `draw_vectors`)."""
    if isinstance(vectors, str):
        rows = draw_vectors(coordinates, size, seed=seed, how=vectors)
    else:
        require_coordinates(len(vectors))
        rows = tuple(tuple(float(value) for value in row) for row in vectors)
    return Family(length, "projection", rows, linear([-1.0] * len(rows)))


def nearest_points(
    coordinates: int,
    length: int,
    outer: Outer | None = None,
    *,
    size: int = 4,
    seed: int = 0,
    sets: Sequence[Sequence[int]] | None = None,
) -> Family:
    """A family of squared distances to centres drawn uniformly in [.1, .9]^d with `seed`; F0 the sum by default."""
    require_coordinates(coordinates)
    generator = torch.Generator().manual_seed(seed)
    centres = 0.1 + 0.8 * torch.rand(coordinates, size, generator=generator, dtype=torch.float64)
    return Family(
        length,
        "distance",
        tuple(tuple(row) for row in centres.tolist()),
        linear([1.0] * coordinates) if outer is None else outer,
        None if sets is None else tuple(tuple(own) for own in sets),
    )
