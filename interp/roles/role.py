"""A role of heads, as data: at which positions it is played, and which positions a head that plays it reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

from headlab.interp.errors import RequestError


@dataclass(frozen=True)
class Role:
    """A role that heads can play.

    Args:
        name: What it is called, unique among the roles of one score.
        inputs: What the model is called with.
        queries: Where the role is played. Positions are the model's own, which can be more than the input's (a task
            that appends a CLS).
        targets: What a head that plays the role reads at each of those queries.
    """

    name: str
    inputs: Shaped[Tensor, "example ..."]
    queries: Bool[Tensor, "example query"]
    targets: Bool[Tensor, "example query key"]


def require_roles(roles: tuple[Role, ...]) -> None:
    """Raise RequestError for no roles, two roles of one name, or a query without a target."""
    if not roles:
        raise RequestError("a score needs at least one role")
    names = [role.name for role in roles]
    if len(set(names)) < len(names):
        raise RequestError(f"two roles have one name: {', '.join(names)}")
    for role in roles:
        played = role.queries.nonzero()
        lost = ~role.targets[role.queries].any(-1)
        if lost.any():
            example, query = played[int(lost.int().argmax())].tolist()
            raise RequestError(f"role '{role.name}' has no target at query {query} of example {example}")


def _same(one: Tensor, other: Tensor) -> bool:
    return one is other or (one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other))


def by_inputs(roles: tuple[Role, ...]) -> Iterator[tuple[list[Role], list[Bool[Tensor, "example query"]]]]:
    """The roles in groups that share their inputs, each role with the queries that count.

    Where several roles are played at one query, only examples count in which no position is the target of two: the
    others cannot tell the roles apart.

    Raises:
        RequestError: Where a role is played nowhere, or only where another role has the same target.
    """
    groups: list[list[Role]] = []
    for role in roles:
        for group in groups:
            if _same(group[0].inputs, role.inputs):
                group.append(role)
                break
        else:
            groups.append([role])
    for group in groups:
        played = torch.stack([role.queries for role in group])
        example, query = (played.sum(0) > 1).nonzero(as_tuple=True)
        wanted = torch.stack([role.targets[example, query] for role in group]) & played[:, example, query, None]
        ambiguous = torch.zeros(len(played[0]), dtype=torch.bool, device=played.device)
        ambiguous[example[(wanted.sum(0) > 1).any(-1)]] = True
        queries = [role.queries & ~ambiguous.unsqueeze(-1) for role in group]
        for role, counted in zip(group, queries, strict=True):
            if not counted.any():
                why = "shares its targets in every example" if role.queries.any() else "is played nowhere"
                raise RequestError(f"role '{role.name}' {why}: there is nothing to score")
        yield group, queries
