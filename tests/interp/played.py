"""Roles for the hand-built models."""

import numpy as np
import torch

from headlab.interp.roles import Role, Specialisation
from tests.interp.hand_built import arcs


def endpoint_roles(n: int = 5) -> tuple[Role, Role]:
    """Under selector s the last position reads endpoint s."""
    inputs, _, _, selector = arcs(n)
    return tuple(role_at(f"endpoint {side + 1}", inputs[selector == side], 3, side) for side in range(2))  # type: ignore[return-value]


def role_at(name: str, inputs: torch.Tensor, query: int, target: int | torch.Tensor, positions: int = 4) -> Role:
    """At one query of every example, read one target, the same or one per example."""
    queries = torch.zeros(len(inputs), positions, dtype=torch.bool)
    queries[:, query] = True
    targets = torch.zeros(len(inputs), positions, positions, dtype=torch.bool)
    targets[torch.arange(len(inputs)), query, target] = True
    return Role(name, inputs, queries, targets)


def specialised(roles: tuple[str, ...], heads: tuple[tuple[int, int], ...], usage: np.ndarray, value: float):
    """A result with this usage and specialisation, as if it had been measured."""
    ones, none = np.ones(len(roles)), np.zeros(len(roles), dtype=bool)
    return Specialisation(
        roles=roles,
        heads=heads,
        moved=usage,
        stray=np.zeros_like(usage),
        p=usage / len(roles),
        usage=usage,
        quiet=np.ones_like(usage),
        unread=none,
        still=none,
        purity=ones,
        copies=ones,
        separation=1.0,
        coverage=value,
        specialisation=value,
        counted=(8,) * len(roles),
    )
