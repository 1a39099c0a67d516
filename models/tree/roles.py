"""Where a head that plays a role attends, told by the tokens alone."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.tree.tokens import BACK, EDGE

ROLES = ("backward", "reverse")


def role_targets(
    role: str,
    tokens: Int[Tensor, "example position 3"],
    read: Int[Tensor, "example read"],
    where: Bool[Tensor, "example read"],
) -> tuple[Bool[Tensor, "example query"], Bool[Tensor, "example query key"]]:
    """The queries of a role, those reads that `where` marks, and what a head that plays it reads there.

    `backward`: the edge whose child is the query's node. `reverse`: the BACK token of the query's node.
    """
    count, size = tokens.shape[:2]
    queries = torch.zeros(count, size + 1, dtype=torch.bool)
    queries.scatter_(1, torch.where(where, read, size), True)
    queries = queries[:, :size]
    kind, a, b = tokens.unbind(-1)
    here = a[:, :, None]
    if role == "backward":
        match = (kind == EDGE)[:, None] & (b[:, None] == here)
    else:
        match = (kind == BACK)[:, None] & (a[:, None] == here)
    return queries, match & queries[:, :, None]
