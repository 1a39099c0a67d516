"""Exact expectations of products of linear forms in independent random signs.

For x uniform on {-1, 1}^d the joint cumulant of linear forms l_1.x, ..., l_2r.x is kappa_2r * sum_i l_1[i]...l_2r[i],
where kappa_2r is the cumulant of one random sign (1, -2, 16, -272, ...) and odd orders vanish. The expectation of a
product is therefore a sum over the partitions of its factors into even blocks, each block giving kappa times a power
sum: exact, and d enters through the power sums only.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import permutations, product
from math import comb

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import RequestError

MOST_HEADS = 6
SIGN_CUMULANTS = {2: 1, 4: -2, 6: 16, 8: -272, 10: 7936, 12: -353792}


@dataclass(frozen=True)
class Expansion:
    """E[prod_h (a_h.x)^2] as a polynomial in the power sums S(e) = sum_i prod_h a_h[i]^e_h, e in {0, 1, 2}^heads.

    coefficients: one integer per monomial. blocks: per monomial the power sums that it multiplies, each a number in
    base 3 whose digits are e, head 0 first; 0 fills up and stands for the factor 1.
    """

    coefficients: tuple[int, ...]
    blocks: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=MOST_HEADS)
def squared_product_expansion(heads: int) -> Expansion:
    """The expansion for `heads` linear forms, each taken twice: 3 monomials for 2 heads, 12, 77, 684, 8126 for 3 to 6.

    Raises ValueError outside 1 to 6 heads.
    """
    if not 1 <= heads <= MOST_HEADS:
        raise RequestError(f"{heads} heads: the exact loss is laid out for 1 to {MOST_HEADS} heads")
    monomials = _partitions((2,) * heads)
    ordered = sorted(monomials.items())
    return Expansion(
        coefficients=tuple(weight for _, weight in ordered),
        blocks=tuple(blocks + (0,) * (heads - len(blocks)) for blocks, _ in ordered),
    )


@cache
def _partitions(copies: tuple[int, ...]) -> dict[tuple[int, ...], int]:
    """Monomial -> weight for the partitions of `copies[h]` copies of form h into even blocks."""
    first = next((head for head, count in enumerate(copies) if count), None)
    if first is None:
        return {(): 1}
    found: Counter[tuple[int, ...]] = Counter()
    for block in product(*(range(count + 1) for count in copies)):
        size = sum(block)
        if block[first] == 0 or size % 2:
            continue
        weight = SIGN_CUMULANTS[size] * comb(copies[first] - 1, block[first] - 1)
        number = 0
        for head, (taken, count) in enumerate(zip(block, copies, strict=True)):
            number = 3 * number + taken
            if head != first:
                weight *= comb(count, taken)
        rest = tuple(count - taken for count, taken in zip(copies, block, strict=True))
        for blocks, below in _partitions(rest).items():
            found[tuple(sorted((*blocks, number)))] += weight * below
    return dict(found)


def power_sums(forms: Float[Tensor, "*batch head position"]) -> Float[Tensor, "*batch exponents"]:
    """S(e) for every e in {0, 1, 2}^heads, in base-3 order, as ONE matrix product over the positions."""
    heads = forms.shape[-2]
    powers = torch.stack([torch.ones_like(forms), forms, forms * forms], dim=-2)
    left, right = (_outer(powers[..., half, :, :]) for half in (slice(0, heads // 2), slice(heads // 2, heads)))
    return rearrange(left @ right.mT, "... left right -> ... (left right)")


def _outer(powers: Float[Tensor, "*batch head power position"]) -> Float[Tensor, "*batch monomial position"]:
    out = torch.ones_like(powers[..., :1, 0, :].sum(dim=-2, keepdim=True))
    for head in range(powers.shape[-3]):
        out = rearrange(
            out.unsqueeze(-2) * powers[..., head, :, :].unsqueeze(-3), "... a b position -> ... (a b) position"
        )
    return out


def expected_square(forms: Float[Tensor, "*batch head position"]) -> Float[Tensor, "*batch"]:
    """E over x in {-1, 1}^position of prod_h (forms[h].x)^2. Differentiable; O(3^(heads / 2)) work per position."""
    expansion = squared_product_expansion(forms.shape[-2])
    sums = power_sums(forms)
    sums = torch.cat([torch.ones_like(sums[..., :1]), sums[..., 1:]], dim=-1)
    blocks = torch.tensor(expansion.blocks, device=forms.device)
    coefficients = torch.tensor(expansion.coefficients, dtype=forms.dtype, device=forms.device)
    return sums[..., blocks].prod(dim=-1) @ coefficients


def expected_parity(forms: Float[Tensor, "*batch head position"], targets: tuple[int, ...]) -> Float[Tensor, "*batch"]:
    """E over x of prod_h (forms[h].x) * prod_t x_t for as many distinct targets as forms: a permanent."""
    at_targets = forms[..., list(targets)]
    heads = len(targets)
    orders = torch.tensor(list(permutations(range(heads))), device=forms.device)
    chosen = at_targets[..., torch.arange(heads, device=forms.device), orders]
    return chosen.prod(dim=-1).sum(dim=-1)
