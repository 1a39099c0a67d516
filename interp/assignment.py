"""Which head plays which role, and whether the role is lost with all heads that play it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from headlab.interp.ablation import AblationKind, Head, ablate_heads
from headlab.interp.errors import RequestError, UnknownName
from headlab.interp.metrics import Metric
from headlab.interp.model import HookedModel
from headlab.interp.roles import Role, Specialisation, by_inputs, score


@dataclass(frozen=True)
class Assignment:
    """Which head plays which role, and what the roles lose when all heads of one role are ablated together.

    Args:
        score: The specialisation; with metrics, its `causal` holds the check that needs no metric.
        role: Per head of `score.heads`, the name of its role or None.
        baseline: Role -> mean performance over the role's examples; empty where no metrics were given.
        loss: Role of the ablated group (None: all heads without a role) -> role -> performance lost, in the metric's
            units. A role that no head plays has no group; empty where no metrics were given.
        kind, reference: With what the heads were replaced.
    """

    score: Specialisation
    role: tuple[str | None, ...]
    baseline: Mapping[str, float] = field(default_factory=dict)
    loss: Mapping[str | None, Mapping[str, float]] = field(default_factory=dict)
    kind: str = ""
    reference: str = ""

    def group(self, role: str | None) -> tuple[Head, ...]:
        """The heads that play `role`; for None, those that play none."""
        return tuple(head for head, name in zip(self.score.heads, self.role, strict=True) if name == role)

    def to_frame(self) -> pd.DataFrame:
        """One row per head: layer, head, role, usage, causal.

        usage: in its role, or the largest where it has none. causal: what its role loses with the role's whole group;
        None where the head has no role or nothing was ablated.
        """
        rows = []
        for index, ((layer, head), role) in enumerate(zip(self.score.heads, self.role, strict=True)):
            usage = self.score.usage[index]
            rows.append(
                {
                    "layer": layer,
                    "head": head,
                    "role": role,
                    "usage": float(usage.max() if role is None else usage[self.score.roles.index(role)]),
                    "causal": None if role is None else self.loss.get(role, {}).get(role),
                }
            )
        return pd.DataFrame(rows)


def assign(
    model: HookedModel,
    roles: Sequence[Role],
    metrics: Mapping[str, Metric] | None = None,
    *,
    usage: float = 0.5,
    margin: float = 0.25,
    kind: AblationKind = "mean",
    reference: Tensor | None = None,
    seed: int = 0,
) -> Assignment:
    """Name each head's role, and check the name by ablating all heads of a role together.

    The whole group is ablated since redundant heads hide one another's loss.

    Args:
        model: Any hooked model.
        roles: As for `score`.
        metrics: Role -> logits [example, position, vocabulary] of that role's inputs -> performance per example. None
            names heads without a check.
        usage: A head plays a role where its usage is at least this
        margin: and its share p(h|role) of the role's energy exceeds its share of every other role's by this.
        kind: With what the heads are replaced.
        reference: The data that the replacement is taken over, by default the inputs of all roles.
        seed: Of a replacement that is drawn.

    Raises:
        RequestError: As `score` does.
        UnknownName: Where a role has no metric.
    """
    roles = tuple(roles)
    result = score(model, roles, causal=metrics is not None)
    names = _role_names(result, usage, margin)
    if metrics is None:
        return Assignment(result, names)
    missing = [role.name for role in roles if role.name not in metrics]
    if missing:
        raise UnknownName(f"no metric for role '{missing[0]}': there are metrics for {', '.join(metrics) or 'none'}")
    groups: list[str | None] = [role.name for role in roles if role.name in names]
    groups += [None] if None in names else []
    origin = "the inputs of all roles" if reference is None else "the reference given"
    reference = _all_inputs(roles) if reference is None else reference
    bare = Assignment(result, names)
    baseline: dict[str, float] = {}
    loss: dict[str | None, dict[str, float]] = {group: {} for group in groups}
    for role in roles:
        ablated = ablate_heads(
            model,
            role.inputs,
            metrics[role.name],
            kind=kind,
            reference=None if kind == "zero" else reference,
            seed=seed,
            groups=[bare.group(group) for group in groups],
            name=f"performance of {role.name}",
        )
        played = role.queries.any(-1).to(ablated.baseline.device)
        baseline[role.name] = float(ablated.baseline[played].mean())
        for group, effect in zip(groups, ablated.effect, strict=True):
            loss[group][role.name] = float(effect[played].mean())
    return Assignment(result, names, baseline, loss, kind, "none" if kind == "zero" else origin)


def _role_names(result: Specialisation, usage: float, margin: float) -> tuple[str | None, ...]:
    of_role = result.p * len(result.roles)
    names: list[str | None] = []
    for shares, used in zip(of_role, result.usage, strict=True):
        best = int(shares.argmax())
        others = np.delete(shares, best)
        clear = not others.size or shares[best] - others.max() >= margin
        names.append(result.roles[best] if clear and used[best] >= usage else None)
    return tuple(names)


def _all_inputs(roles: tuple[Role, ...]) -> Tensor:
    distinct = [group[0].inputs for group, _ in by_inputs(roles)]
    if len({inputs.shape[1:] for inputs in distinct}) > 1:
        raise RequestError("the roles' inputs differ in length: give the reference data of the ablation")
    return torch.cat(distinct)
