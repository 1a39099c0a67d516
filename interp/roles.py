"""Roles of heads: where a head that plays a role attends, and how well a model's heads divide the roles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from scipy.special import rel_entr
from torch import Tensor

from headlab.interp import statistics
from headlab.interp.ablation import Head
from headlab.interp.errors import RequestError
from headlab.interp.model import HookedModel
from headlab.interp.movement import Movement, movement

if TYPE_CHECKING:
    from headlab.interp.render.figure import Figure


@dataclass(frozen=True)
class Role:
    """A role: at which positions of each example it is played, and which positions a head that plays it reads.

    inputs: whatever the model takes, first axis `example`. `queries` and `targets` count the model's own positions,
    which can be more than the input's (a task that appends a CLS).
    """

    name: str
    inputs: Tensor
    queries: Bool[Tensor, "example query"]
    targets: Bool[Tensor, "example query key"]


@dataclass(frozen=True)
class Specialisation:
    """How a model's heads divide the roles among them. Heads are those of all layers, roles in the order given.

    amount: what the head moves from the role's targets, mean over the role's queries; units of the residual stream.
    p: the share of that amount, as a joint distribution of head and role in which every role weighs 1/P; a role from
        whose targets no head moves anything has a column of 0.
    usage: in [0, 1], the share of the head's own movement that comes from the role's targets, chance-corrected.
    separation: in [0, 1], how well the acting head tells the role. information: in [0, 1], mutual information of head
    and role / ln P. coverage: in [0, 1], the usage of the best head of the worst served role.
    specialisation: coverage * separation. With one role, all but coverage are None.
    counted: how many queries stand behind each role.
    """

    roles: tuple[str, ...]
    heads: tuple[Head, ...]
    amount: Float[np.ndarray, "head role"]
    p: Float[np.ndarray, "head role"]
    usage: Float[np.ndarray, "head role"]
    separation: float | None
    information: float | None
    coverage: float
    specialisation: float | None
    counted: tuple[int, ...]

    def to_frame(self) -> pd.DataFrame:
        """One row per head and role: layer, head, role, usage, p, amount."""
        return pd.DataFrame(
            [
                {
                    "layer": layer,
                    "head": head,
                    "role": role,
                    "usage": self.usage[row, column],
                    "p": self.p[row, column],
                    "amount": self.amount[row, column],
                }
                for row, (layer, head) in enumerate(self.heads)
                for column, role in enumerate(self.roles)
            ]
        )

    def render(self, chance: statistics.Chance | None = None) -> Figure:
        """The usage of every role by every head as a picture, beside it the score and its chance level where given."""
        from headlab.interp.render.theme import LETTERS
        from headlab.interp.render.theme import Head as Mark
        from headlab.interp.render.usage import ScoreStrip, usage_chart

        marks = []
        for (layer, head), used in zip(self.heads, self.usage, strict=True):
            best = int(used.argmax())
            known = used[best] >= 0.5 and best < len(LETTERS)
            marks.append(Mark(LETTERS[best] if known else "ink", f"{layer}.{head}"))
        strip = None
        if chance is not None:
            name, value = ("coverage", self.coverage)
            if self.specialisation is not None:
                name, value = ("specialisation", self.specialisation)
            note = f"{chance.count} untrained models: median {chance.median:.3f}, 95 % below {chance.p95:.3f}"
            strip = ScoreStrip([value], chance.values, name, note, heads="ink")
        best = ", ".join(f"{role} {share:.0%}" for role, share in zip(self.roles, self.usage.max(0), strict=True))
        return usage_chart(
            self.usage,
            heads=marks,
            roles=self.roles,
            title="What each head does",
            description=f"Usage of {len(self.roles)} roles by {len(self.heads)} heads; the best head of each: {best}.",
            score=strip,
        )


SILENT = 0.01  # of what the strongest head moves to a query: a head below it does not act there
ROUNDING = 1e-6  # separation below this is rounding of float32 activations


def score(model: HookedModel, roles: Sequence[Role], *, batch: int | None = None) -> Specialisation:
    """The specialisation of a model's heads in `roles`: blind to the order of heads and to each head's own basis.

    Head h moves w_h(q <- t) = |A_h[q, t]| * ||v_h,t W_O^h||. Per role r: `amount` is the mean of what h moves from the
    targets, p = amount / sum_h amount / P. `usage` is the mean of the share of the head's own movement that comes from
    the targets, (share - targets/visible) / (1 - targets/visible) with `visible` the keys that the query can see,
    floored at 0; a head that moves under 1 % of what the strongest moves to a query counts 0 there, and a query that
    sees nothing but targets tells nothing and is left out. separation = (sum_h max_r p - 1/P) / (1 - 1/P), and
    specialisation = separation * min_r max_h usage. Two heads may share a role. Where several roles act at one query
    only examples count in which no position is the target of two. Never NaN.

    Raises ValueError for no roles, two of one name, a query without a target, or a role of which no query is left.
    """
    roles = tuple(roles)
    _check(roles)
    moves: dict[str, Movement] = {}
    for group, queries in by_inputs(roles):
        readings = [(kept, role.targets) for kept, role in zip(queries, group, strict=True)]
        for role, moved in zip(group, movement(model, group[0].inputs, readings, batch=batch), strict=True):
            moves[role.name] = moved
    ordered = [moves[role.name] for role in roles]
    amount = np.stack([moved.from_targets.mean(0) for moved in ordered], axis=1)
    usage = np.stack([_usage(moved) for moved in ordered], axis=1)
    in_all = amount.sum(0)
    p = np.divide(amount, in_all * len(roles), out=np.zeros_like(amount), where=in_all > 0)
    coverage = float(usage.max(0).min())
    separation = information = None
    if len(roles) > 1:
        even = 1 / len(roles)
        separation = min(1.0, (float(p.max(1).sum()) - even) / (1 - even))
        separation = separation if separation > ROUNDING else 0.0
        information = _information(p)
    return Specialisation(
        roles=tuple(role.name for role in roles),
        heads=ordered[0].heads,
        amount=amount,
        p=p,
        usage=usage,
        separation=separation,
        information=information,
        coverage=coverage,
        specialisation=None if separation is None else coverage * separation,
        counted=tuple(moved.total.shape[0] for moved in ordered),
    )


def chance(
    build_untrained: Callable[[int], HookedModel], roles: Sequence[Role], *, seeds: int | Sequence[int] = 64
) -> statistics.Chance:
    """What the score reads on untrained models: the specialisation (with one role, the coverage) per seed.

    build_untrained: seed -> the same architecture with the task's initialiser.
    """
    values = []
    for seed in range(seeds) if isinstance(seeds, int) else seeds:
        result = score(build_untrained(seed), roles)
        values.append(result.coverage if result.specialisation is None else result.specialisation)
    return statistics.chance(values)


def _usage(moved: Movement) -> Float[np.ndarray, " head"]:
    acts = (moved.total > 0) & (moved.total >= SILENT * moved.total.max(1, keepdims=True))
    share = np.divide(moved.from_targets, moved.total, out=np.zeros_like(moved.total), where=acts)
    tells = moved.chance < 1
    corrected = np.divide(share - moved.chance, 1 - moved.chance, out=np.zeros_like(share), where=acts & tells)
    return np.clip(corrected.sum(0) / np.maximum(tells.sum(0), 1), 0, 1)


def _information(p: Float[np.ndarray, "head role"]) -> float:
    if p.sum() == 0:
        return 0.0
    joint = p / p.sum()
    independent = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    return float(np.clip(rel_entr(joint, independent).sum() / np.log(p.shape[1]), 0, 1))


def _check(roles: tuple[Role, ...]) -> None:
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
    """The roles that share their inputs, together, each with the queries that count: see `score`.

    Raises ValueError where a role is played nowhere, or only where another role has the same target.
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
        acting = torch.stack([role.queries for role in group])
        example, query = (acting.sum(0) > 1).nonzero(as_tuple=True)
        wanted = torch.stack([role.targets[example, query] for role in group]) & acting[:, example, query, None]
        shared = torch.zeros(len(acting[0]), dtype=torch.bool, device=acting.device)
        shared[example[(wanted.sum(0) > 1).any(-1)]] = True
        queries = [role.queries & ~shared.unsqueeze(-1) for role in group]
        for role, kept in zip(group, queries, strict=True):
            if not kept.any():
                why = "shares its targets in every example" if role.queries.any() else "is played nowhere"
                raise RequestError(f"role '{role.name}' {why}: there is nothing to score")
        yield group, queries
