"""What heads carry to the queries of roles: their z, split by the keys that it comes from, without constants."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from einops import repeat
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.interp.model import Hook, HookedModel, head_weights, model_device, run, untouched, visible_keys
from headlab.interp.movement import batches

Mask = tuple[Bool[Tensor, "example query"], Bool[Tensor, "example query key"]]


@dataclass(frozen=True)
class Carried:
    """What all heads carry to the queries of one role, one entry of each tuple a layer.

    Args:
        target: From the role's targets.
        rest: From all other keys.
        stray: From the keys that are no role's target at that query.
        chance: The mean over queries of targets / visible keys.
    """

    target: tuple[Float[Tensor, "query head d_head"], ...]
    rest: tuple[Float[Tensor, "query head d_head"], ...]
    stray: tuple[Float[Tensor, "query head d_head"], ...]
    chance: float


def carried(
    model: HookedModel, inputs: Shaped[Tensor, "example ..."], masks: list[Mask], *, batch: int | None = None
) -> list[Carried]:
    """What heads carry to the queries of each (queries, targets) of `masks`, in one pass over `inputs`.

    z = sum_keys A (v - b), where b = b_V + ln1.b W_V is what every value has in common. Where a row of attention sums
    to 1, b adds b W_O to the residual stream whatever is attended to: it belongs to b_O, and counts for no key (the
    gauge in which nothing of it is left in the values). In other rows it stays.

    Raises:
        RequestError: Where the masks do not count the model's own positions.
    """
    layers, device = range(model.cfg.n_layers), model_device(model)
    masks = [(queries.to(device), targets.to(device)) for queries, targets in masks]
    union = torch.stack([targets & queries[..., None] for queries, targets in masks]).any(0)
    everything: list[Mask] = [*masks, (union.any(-1), union), (union.any(-1), torch.ones_like(union))]
    found: list[list[list[Tensor]]] = [[[] for _ in layers] for _ in masks]
    shares: list[list[Tensor]] = [[] for _ in masks]
    with untouched(model):
        for part in batches(model, len(inputs), union.shape[-1], batch):
            if union[part].any():
                local = [(queries[part], targets[part]) for queries, targets in everything]
                hooks = [hook for layer in layers for hook in _recorders(model, layer, local, found, shares)]
                run(model, inputs[part].to(device), hooks)
    result = []
    for rows, share in zip(found, shares, strict=True):
        target, read, whole = zip(*(torch.cat(each, dim=1).unbind(0) for each in rows), strict=True)
        rest = tuple(one - other for one, other in zip(whole, target, strict=True))
        stray = tuple(one - other for one, other in zip(whole, read, strict=True))
        result.append(Carried(target, rest, stray, float(torch.cat(share).mean())))
    return result


def _recorders(
    model: HookedModel, layer: int, masks: list[Mask], found: list[list[list[Tensor]]], shares: list[list[Tensor]]
) -> list[tuple[str, Hook]]:
    held: dict[str, Tensor] = {}
    weights = head_weights(model, layer)
    dtype = torch.promote_types(weights.W_V.dtype, torch.float32)
    shift = getattr(getattr(model.blocks[layer], "ln1", None), "b", None)  # type: ignore[attr-defined]
    bias = weights.b_V.to(dtype)
    if shift is not None:
        bias = bias + torch.einsum("m,hmd->hd", shift.detach().to(dtype), weights.W_V.to(dtype))

    def keep(activation: Tensor, hook: Any, *, name: str) -> None:
        held[name] = activation
        if len(held) == len(names):  # a bridge fires hook_attn_scores after hook_pattern
            measure(held["pattern"])
            held.clear()

    def measure(activation: Tensor) -> None:
        for queries, targets in masks:
            if queries.shape[1:] != activation.shape[2:3] or targets.shape[1:] != activation.shape[2:]:
                raise RequestError(
                    f"queries and targets count {tuple(targets.shape[1:])} positions, "
                    f"the model's attention has {tuple(activation.shape[2:])} (query, key)"
                )
        used = masks[-1][0].any(0).nonzero()[:, 0]  # the queries at which some example plays a role
        attention = activation[:, :, used].to(dtype)
        group = len(bias) // held["v"].shape[2]
        values = repeat(held["v"].to(dtype), "e k kv d -> e (kv group) k d", group=group) - bias[:, None]
        loose = (attention.sum(-1) - 1).abs() > max(1e-3, 4 * torch.finfo(activation.dtype).eps)

        def z(targets: Tensor) -> Float[Tensor, "example query head d_head"]:
            some = attention * targets[:, used].unsqueeze(1)
            moved = some @ values
            if loose.any():
                moved = moved + (some.sum(-1) * loose).unsqueeze(-1) * bias[:, None]
            return moved.transpose(1, 2).double().cpu()

        read, whole = z(masks[-2][1]), z(masks[-1][1])
        for role, (queries, targets) in enumerate(masks[:-2]):
            example, query = queries[:, used].cpu().nonzero(as_tuple=True)
            found[role][layer].append(torch.stack([each[example, query] for each in (z(targets), read, whole)]))
        if layer == 0:
            visible = visible_keys(model, held["attn_scores"], activation).expand_as(activation)
            for role, (queries, targets) in enumerate(masks[:-2]):
                example, query = queries.nonzero(as_tuple=True)
                seen = visible[example, 0, query]
                share = (seen & targets[example, query]).sum(-1).double() / seen.sum(-1).clamp(min=1)
                shares[role].append(share.cpu())

    names = ("v", "attn_scores", "pattern") if layer == 0 else ("v", "pattern")
    return [(f"blocks.{layer}.attn.hook_{name}", partial(keep, name=name)) for name in names]
