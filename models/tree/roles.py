"""Where a head that plays a role attends, told by the tokens alone."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headlab.interp.roles import Role
from headlab.models.tree.tokens import BACK, EDGE, Labels

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


def queries_and_answers(
    role: Role, vocabulary: Labels, *, staged: bool
) -> tuple[Int[Tensor, "example read"], Int[Tensor, "example read"]]:
    """The positions of a role's queries, -1 past the last, and the right answers there.

    An answer is the label that the next token shows; the last query of all has no next token, and answers END, or TURN
    where no second stage follows.
    """
    tokens, queries = role.inputs, role.queries
    most = int(queries.sum(1).max())
    read = torch.where(queries, torch.arange(queries.shape[1]), queries.shape[1]).sort(1).values[:, :most]
    used = read < queries.shape[1]
    shown = torch.cat([tokens[..., 1], torch.full_like(tokens[:, :1, 1], vocabulary.nul)], dim=1)
    answers = shown.gather(1, torch.where(used, read + 1, 0))
    last = vocabulary.end if staged else vocabulary.turn
    answers = torch.where(answers == vocabulary.nul, last, answers)
    return torch.where(used, read, -1), torch.where(used, answers, 0)
