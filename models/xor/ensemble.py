"""Many seeds of the sparse parity model side by side, as the numbers that matter: position vectors and queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, log, sqrt

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headlab.interp.errors import RequestError, UnknownName
from headlab.models.attention_maps import require_attention_map
from headlab.models.xor import population
from headlab.models.xor.task import XorTask

STARTS = ("antisymmetric", "independent", "orthogonal", "equal")


@dataclass(frozen=True)
class Ensemble:
    """One model per seed, one head per target; no seed sees another.

    positions: frozen unit vectors v_i. queries: theta_h, all that trains. kind: the attention map.
    """

    task: XorTask
    seeds: tuple[int, ...]
    positions: Float[Tensor, "seed position width"]
    queries: Float[Tensor, "seed head width"]
    kind: str = "softmax"

    @property
    def width(self) -> int:
        """m, the size of a position vector and of a query."""
        return self.queries.shape[-1]

    def attention(self) -> Float[Tensor, "seed head position"]:
        """What each head gives each position."""
        return population.attention(self.queries, self.positions, self.kind)

    def loss(self) -> Float[Tensor, " seed"]:
        """The population loss E (f - y)^2, exact."""
        return population.loss(self.attention(), self.task.targets)

    def placement(self) -> Placement:
        """Where the heads look."""
        return Placement.of(self.attention(), self.task.targets)

    def with_queries(self, queries: Float[Tensor, "seed head width"]) -> Ensemble:
        """The same models with other queries."""
        return replace(self, queries=queries)

    def to(self, dtype: torch.dtype) -> Ensemble:
        """The same models in another dtype."""
        return replace(self, positions=self.positions.to(dtype), queries=self.queries.to(dtype))

    def select(self, rows: Sequence[int]) -> Ensemble:
        """The models at `rows`."""
        rows = list(rows)
        seeds = tuple(self.seeds[row] for row in rows)
        return replace(self, seeds=seeds, positions=self.positions[rows], queries=self.queries[rows])


@dataclass(frozen=True)
class Placement:
    """Where the heads of each seed look, by the position with the largest |attention|.

    one_to_one: each head on a target of its own. on_support: every head on some target. together: on the support with
    two heads on one target. at_targets: share of the head's |attention| at the target that it looks at, nan where it
    looks at none.
    """

    one_to_one: Bool[Tensor, " seed"]
    on_support: Bool[Tensor, " seed"]
    together: Bool[Tensor, " seed"]
    at_targets: Float[Tensor, "seed head"]

    @classmethod
    def of(cls, weights: Float[Tensor, "seed head position"], targets: tuple[int, ...]) -> Placement:
        """The placement of attention weights of any map."""
        size = weights.abs()
        best, where = size.max(dim=-1)
        hit = where[..., None] == torch.tensor(targets, device=weights.device)
        on_support = hit.any(dim=-1).all(dim=-1)
        one_to_one = on_support & hit.any(dim=-2).all(dim=-1)
        share = best / size.sum(dim=-1)
        return cls(
            one_to_one=one_to_one,
            on_support=on_support,
            together=on_support & ~one_to_one,
            at_targets=torch.where(hit.any(dim=-1), share, torch.full_like(share, float("nan"))),
        )


def default_width(bits: int) -> int:
    """m = 6 ln d, rounded up: enough for one step at every d that was measured."""
    return ceil(6 * log(bits))


def default_kappa(task: XorTask, width: int) -> float:
    """1024 sqrt(m) ln d, far beyond the sqrt(m) ln d that theory asks for.

    There is no upper limit: a larger step only sharpens the attention at the positions that the first gradient chose.
    """
    return 1024 * sqrt(width) * log(task.bits)


def step_size(task: XorTask, width: int, kappa: float | None = None) -> float:
    """eta at which the first step moves a target's score by kappa: kappa d^k / (2 (k-1)!), kappa d^2 / 2 for two heads.

    kappa: `default_kappa` by default.
    """
    heads = len(task.targets)
    kappa = default_kappa(task, width) if kappa is None else kappa
    factorial = 1.0
    for number in range(2, heads):
        factorial *= number
    return kappa * float(task.bits) ** heads / (2 * factorial)


def draw(
    task: XorTask,
    *,
    width: int,
    seeds: Sequence[int],
    start: str = "antisymmetric",
    kind: str = "softmax",
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> Ensemble:
    """One untrained model per seed: positions uniform on the unit sphere, queries by `start`.

    antisymmetric: theta uniform on the sphere and its opposite, in pairs (an even number of heads). independent: each
    query uniform on the sphere. orthogonal: a random orthonormal frame (width >= heads). equal: one query for all
    heads, the control in which nothing tells them apart. A seed's draw depends neither on the seeds beside it nor on
    the device. Raises ValueError for a width below 1, no seeds, or a start that the heads do not allow; KeyError for an
    unknown start or attention map.
    """
    heads = len(task.targets)
    require_attention_map(kind)
    if width < 1:
        raise RequestError(f"width m = {width}: position vectors need at least 1 dimension")
    if not seeds:
        raise RequestError("no seeds: ask for at least one")
    if start not in STARTS:
        raise UnknownName(f"unknown start '{start}': choose one of {', '.join(STARTS)}")
    if start == "antisymmetric" and heads % 2:
        raise RequestError(f"{heads} heads cannot start as pairs of opposites: use start independent or orthogonal")
    if start == "orthogonal" and width < heads:
        raise RequestError(f"{heads} orthogonal queries do not fit in width {width}: use width {heads} or more")
    positions = torch.empty(len(seeds), task.bits, width, dtype=dtype)
    queries = torch.empty(len(seeds), heads, width, dtype=dtype)
    for row, seed in enumerate(seeds):
        generator = torch.Generator().manual_seed(seed)
        torch.randn(task.bits, width, generator=generator, out=positions[row])
        positions[row] /= positions[row].norm(dim=-1, keepdim=True)
        queries[row] = _start(start, heads, width, generator, dtype)
    return Ensemble(task, tuple(seeds), positions.to(device), queries.to(device), kind)


def _start(
    start: str, heads: int, width: int, generator: torch.Generator, dtype: torch.dtype
) -> Float[Tensor, "head width"]:
    if start == "orthogonal":
        frame, _ = torch.linalg.qr(torch.randn(width, heads, generator=generator, dtype=dtype))
        return frame.T
    drawn = torch.randn(heads, width, generator=generator, dtype=dtype)
    drawn = drawn / drawn.norm(dim=-1, keepdim=True)
    if start == "antisymmetric":
        drawn[1::2] = -drawn[0::2]
    if start == "equal":
        drawn[:] = drawn[0].clone()
    return drawn
