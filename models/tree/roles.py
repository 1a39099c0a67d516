"""Where a head that plays a role attends, told by the tokens alone."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headlab.interp.roles import Role
from headlab.models.tree.tokens import BACK, EDGE, FWD, Labels

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
    role: Role, vocabulary: Labels, *, ends: bool
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
    last = vocabulary.end if ends else vocabulary.turn
    answers = torch.where(answers == vocabulary.nul, last, answers)
    return torch.where(used, read, -1), torch.where(used, answers, 0)


def doubling_targets(
    tokens: Int[Tensor, "example position 3"], read: Int[Tensor, "example read"], turn: int, jumps: int
) -> dict[str, tuple[Bool[Tensor, "example query"], Bool[Tensor, "example query key"]]]:
    """role -> its queries and what a head that plays it reads there, told by the tokens alone.

    `jump l`: edges whose 2^(l-1)-th ancestor has an edge in view read that edge. `answer`: the goal reads the root's
    edge, a FWD token the edge of the next node on the path, and at the end the goal.
    """
    kind, a, b = tokens.unbind(-1)
    count, size = a.shape
    places = torch.arange(size).expand(count, size)
    goal = (kind == BACK).long().argmax(1)
    edge = kind == EDGE
    match = edge[:, None] & (b[:, None] == a[:, :, None]) & (a != turn)[:, :, None]
    # position 0, BOS, stands above the root; past a tree's edges nothing points there
    up = torch.where(match.any(2), match.long().argmax(2), 0)
    up[:, 0] = 0
    fwd = kind == FWD
    roles, jump = {}, up
    for number in range(1, jumps + 1):
        queries = edge & (jump > 0) & (jump < places)
        roles[f"jump {number}"] = queries, _one_hot(jump, size) & queries[:, :, None]
        jump = jump.gather(1, jump)
    below = torch.zeros_like(a)
    chain = up.gather(1, goal[:, None])[:, 0]
    for _ in range(size):  # from the goal up: the edge that is next below each node of the path
        shown = fwd & (a == a.gather(1, chain[:, None])) & (chain > 0)[:, None]
        below = torch.where(shown, chain[:, None], below)
        chain = up.gather(1, chain[:, None])[:, 0]
        if not bool(chain.any()):
            break
    below = torch.where(fwd & (below == 0), goal[:, None], below)
    root = (edge & (a == turn)).long().argmax(1)
    below = torch.where(kind == BACK, root[:, None], below)
    queries = torch.zeros(count, size + 1, dtype=torch.bool).scatter_(1, torch.where(read < 0, size, read), True)
    queries = queries[:, :size]
    roles["answer"] = queries, _one_hot(below, size) & queries[:, :, None]
    return roles


def doubling_roles_of(
    tokens: Int[Tensor, "example position 3"], read: Int[Tensor, "example read"], turn: int, jumps: int
) -> tuple[Role, ...]:
    """The roles `jump 1`, ..., `answer` on these sequences; see `doubling_targets`."""
    return tuple(Role(name, tokens, *found) for name, found in doubling_targets(tokens, read, turn, jumps).items())


def _one_hot(index: Int[Tensor, "example query"], size: int) -> Bool[Tensor, "example query key"]:
    return torch.nn.functional.one_hot(index, size).bool()
