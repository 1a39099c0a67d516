"""Pairs of sequences that differ in one token, chosen so that one minimum changes and no other does."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.models.retrieval.family import Family

TRIES = 60
CLEARLY = 0.25  # of a coordinate's standard deviation: a smaller change of its minimum is not a contrast

Sequences = Float[Tensor, "example position feature"]


def single_changes(
    family: Family, coordinate: int | None, count: int, generator: torch.Generator
) -> tuple[Sequences, Sequences] | None:
    """`count` pairs (source, destination) that differ in one token; only the minimum of `coordinate` changes.

    coordinate: None for pairs in which no minimum changes. The token that held the minimum is redrawn (for None, a
    token that held none), and the pair kept where the others' minima are exactly as before. Where a redrawn token
    holds the new minimum, source and destination change places for half of the pairs, so that the answer moves both
    ways. None where 60 rounds of draws do not give enough pairs.
    """
    kept: list[tuple[Tensor, Tensor]] = []
    have = 0
    for _ in range(TRIES):
        drawn = family.draw(4 * count, generator)
        other = drawn.clone()
        rows = torch.arange(len(drawn))
        place = _place(family, drawn, coordinate, generator)
        other[rows, place] = family.draw(len(drawn), generator)[:, 0]
        before, after = family.minima(drawn), family.minima(other)
        same = before == after
        if coordinate is None:
            good = same.all(dim=1)
        else:
            clear = (before - after)[:, coordinate].abs() >= CLEARLY * before[:, coordinate].std()
            same[:, coordinate] = True
            good = same.all(dim=1) & clear
        swap = torch.rand(len(drawn), generator=generator) < 0.5
        first = torch.where(swap[:, None, None], other, drawn)[good]
        second = torch.where(swap[:, None, None], drawn, other)[good]
        kept.append((first, second))
        have += len(first)
        if have >= count:
            source, destination = (torch.cat(side)[:count] for side in zip(*kept, strict=True))
            return source, destination
    return None


def _place(family: Family, tokens: Tensor, coordinate: int | None, generator: torch.Generator) -> Tensor:
    retrieved = family.retrieved(tokens)
    if coordinate is not None:
        return retrieved[:, coordinate]
    lottery = torch.rand(len(tokens), family.length, generator=generator)
    return lottery.scatter(1, retrieved, -1.0).argmax(dim=1)
