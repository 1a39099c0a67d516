"""The causal check of a division of roles: what the logits lose when the heads of a role are held at their mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headlab.interp.ablation import Head
from headlab.interp.model import Hook, HookedModel, model_device, run, untouched
from headlab.interp.movement import batches
from headlab.interp.roles.role import Role, by_inputs


@dataclass(frozen=True)
class CausalCheck:
    """What hangs on the heads of each role, in the centred logits at the role's queries.

    Where the heads divide the roles, carried_on and foreign are 0 and crossing is the identity.

    Args:
        roles: Their names.
        groups: The heads of each role, which were held together.
        carried_on: Slope of what the heads still add to the role's logits without its group, on what all heads add:
            0 gone, 1 carried on by others (a backup). 1 where the role has no heads.
        foreign: Energy of what they add beside that line, by the energy of what all heads add: 0 silent, large where
            other heads now say something else (a default that the role's heads override).
        crossing: Energy that holding the row's group takes from the column's role, by what all heads add there.
    """

    roles: tuple[str, ...]
    groups: tuple[tuple[Head, ...], ...]
    carried_on: Float[np.ndarray, " role"]
    foreign: Float[np.ndarray, " role"]
    crossing: Float[np.ndarray, "held role"]

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; carried_on is null where a role has no heads to be held."""
        return {
            "roles": list(self.roles),
            "groups": [[list(head) for head in group] for group in self.groups],
            "carried_on": [
                float(each) if group else None for each, group in zip(self.carried_on, self.groups, strict=True)
            ],
            "foreign": self.foreign.tolist(),
            "crossing": self.crossing.tolist(),
        }


def hold_heads(
    model: HookedModel, roles: Sequence[Role], groups: Sequence[Sequence[Head]], *, batch: int | None = None
) -> CausalCheck:
    """Hold the heads of one role after the other at their mean, and see what the logits of every role lose.

    The mean of z is taken over the queries of all roles, each role weighing the same, and put at every position. It
    moves with a bias of the values as z does, so that no such bias changes a figure. What heads add is read without
    its mean over queries, beside a run in which ALL heads are held. P + 2 passes over each role's inputs.

    Args:
        model: The model.
        roles: One or more.
        groups: (layer, head) of the heads of each role.
        batch: Examples per pass; by default as many as keep a layer's attention within 4 MiB.
    """
    roles = tuple(roles)
    layers, heads = range(model.cfg.n_layers), int(model.cfg.n_heads)
    every = [(layer, head) for layer in layers for head in range(heads)]
    counted = {
        role.name: (group[0], queries)
        for group, its in by_inputs(roles)
        for role, queries in zip(group, its, strict=True)
    }
    with untouched(model):
        mean = _mean(model, list(counted.values()), batch)
        carried_on, foreign = np.ones(len(roles)), np.zeros(len(roles))
        crossing = np.zeros((len(roles), len(roles)))
        for column, role in enumerate(roles):
            bare = _logits(model, *counted[role.name], every, mean, batch)
            intact = _about_mean(_logits(model, *counted[role.name], [], mean, batch) - bare)
            energy = float(intact.square().sum())
            for row, group in enumerate(groups):
                if not group or not energy:
                    continue
                left = _about_mean(_logits(model, *counted[role.name], group, mean, batch) - bare)
                crossing[row, column] = float((intact - left).square().sum()) / energy
                if row == column:
                    carried_on[column] = float((left * intact).sum()) / energy
                    foreign[column] = float((left - carried_on[column] * intact).square().sum()) / energy
    names = tuple(role.name for role in roles)
    return CausalCheck(names, tuple(tuple(group) for group in groups), carried_on, foreign, crossing)


def _parts(
    model: HookedModel, role: Role, queries: Bool[Tensor, "example query"], batch: int | None
) -> list[tuple[Tensor, tuple[Tensor, Tensor]]]:
    slices = batches(model, len(role.inputs), queries.shape[1], batch)
    pairs = [(role.inputs[part].to(model_device(model)), queries[part].nonzero(as_tuple=True)) for part in slices]
    return [(inputs, (at[0], at[1])) for inputs, at in pairs if len(at[0])]


def _mean(
    model: HookedModel, counted: Sequence[tuple[Role, Tensor]], batch: int | None
) -> list[Float[Tensor, "head d_head"]]:
    layers = range(model.cfg.n_layers)
    total: list[Any] = [0.0 for _ in layers]
    for role, queries in counted:
        weight = 1 / int(queries.sum()) / len(counted)
        for inputs, at in _parts(model, role, queries, batch):

            def add(z: Tensor, hook: Any, layer: int, at: Any = at, weight: float = weight) -> None:
                total[layer] = total[layer] + weight * z[at].double().sum(0)

            run(model, inputs, _at_z(layers, add))
    return total


def _logits(
    model: HookedModel,
    role: Role,
    queries: Tensor,
    held: Sequence[Head],
    mean: Sequence[Float[Tensor, "head d_head"]],
    batch: int | None,
) -> Float[Tensor, "query vocabulary"]:
    def hold(z: Tensor, hook: Any, layer: int) -> Tensor:
        z = z.clone()
        for _, head in (each for each in held if each[0] == layer):
            z[:, :, head] = mean[layer][head].to(z.dtype)
        return z

    hooks = _at_z(sorted({layer for layer, _ in held}), hold)
    found = torch.cat([run(model, inputs, hooks)[at].double() for inputs, at in _parts(model, role, queries, batch)])
    return found - found.mean(-1, keepdim=True) if found.shape[-1] > 1 else found


def _at_z(layers: Sequence[int], edit: Any) -> list[tuple[str, Hook]]:
    return [
        (f"blocks.{layer}.attn.hook_z", lambda z, hook, layer=layer: edit(z, hook, layer=layer)) for layer in layers
    ]


def _about_mean(values: Float[Tensor, "query vocabulary"]) -> Float[Tensor, "query vocabulary"]:
    return values - values.mean(0)
