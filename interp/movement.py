"""What heads move: attention weighted by the size of what it carries, so that resting on no value moves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from einops import repeat
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.interp.model import Hook, HookedModel, head_weights, run, untouched, visible_keys


@dataclass(frozen=True)
class Movement:
    """What each head moves to each query: from the target positions, and in all. Heads of all layers, in model order.

    heads: (layer, head). visible, targets: how many keys the head can see there, and how many of them are targets.
    Units of `from_targets` and `total`: those of the residual stream.
    """

    heads: tuple[tuple[int, int], ...]
    from_targets: Float[np.ndarray, "query head"]
    total: Float[np.ndarray, "query head"]
    visible: Float[np.ndarray, "query head"]
    targets: Float[np.ndarray, "query head"]

    @property
    def chance(self) -> Float[np.ndarray, "query head"]:
        """The share that comes from the targets when a head moves evenly from all it sees: targets / visible."""
        return self.targets / np.maximum(self.visible, 1)


MOST_WEIGHTS = 2**20  # attention weights of one layer at once: 4 MiB in float32, which caches hold


def batches(model: HookedModel, examples: int, positions: int, batch: int | None = None) -> list[slice]:
    """Slices of the examples, `batch` each, by default so few that a layer's attention stays within 4 MiB."""
    batch = batch or max(1, MOST_WEIGHTS // (int(model.cfg.n_heads) * positions**2))
    return [slice(start, start + batch) for start in range(0, examples, batch)]


def movement(
    model: HookedModel,
    inputs: Shaped[Tensor, "example ..."],
    readings: Sequence[tuple[Bool[Tensor, "example query"], Bool[Tensor, "example query key"]]],
    *,
    batch: int | None = None,
) -> tuple[Movement, ...]:
    """For each (queries, targets) of `readings`, what every head moves to those queries from those targets.

    Head h moves w_h(q <- t) = |A_h[q, t]| * ||v_h,t W_O^h||_2 (Kobayashi et al. 2020, norm-weighted attention); the
    absolute value lets in attention whose weights can be negative. One forward pass per `batch` examples (see
    `batches`) for all readings together; one layer's activations are held at a time. In float32 or better.
    Raises ValueError where the masks do not count the model's own positions.
    """
    device = next(model.parameters()).device  # type: ignore[attr-defined]
    layers = range(model.cfg.n_layers)
    writers = [_writer(model, layer) for layer in layers]
    heads = tuple((layer, head) for layer in layers for head in range(writers[layer].shape[0]))
    rows: list[list[list[Tensor]]] = [[[] for _ in layers] for _ in readings]
    with untouched(model):
        for part in batches(model, len(inputs), max((t.shape[-1] for _, t in readings), default=1), batch):
            if not any(bool(queries[part].any()) for queries, _ in readings):
                continue
            masks = [(queries[part].to(device), targets[part].to(device)) for queries, targets in readings]
            hooks: list[tuple[str, Hook]] = []
            for layer in layers:
                hooks += _recorders(model, layer, writers[layer], masks, [reading[layer] for reading in rows])
            run(model, inputs[part].to(device), hooks)
    return tuple(_movement(heads, reading) for reading in rows)


def _writer(model: HookedModel, layer: int) -> Float[Tensor, "head rank d_head"]:
    """R with ||v W_O|| = ||R v||: the norm of what is written, without forming it in the residual stream."""
    W_O = head_weights(model, layer).W_O
    return torch.linalg.qr(W_O.to(torch.promote_types(W_O.dtype, torch.float32)).mT, mode="r").R


def _recorders(
    model: HookedModel, layer: int, writer: Tensor, masks: list[tuple[Tensor, Tensor]], rows: list[list[Tensor]]
) -> list[tuple[str, Hook]]:
    held: dict[str, Tensor] = {}

    def keep(activation: Tensor, hook: Any, *, name: str) -> None:
        held[name] = activation
        if len(held) == len(names):  # a bridge fires hook_attn_scores after hook_pattern
            measure(**held)
            held.clear()

    def measure(v: Tensor, attn_scores: Tensor, pattern: Tensor) -> None:
        values = repeat(v, "e key kv rank -> e key (kv group) rank", group=writer.shape[0] // v.shape[2])
        size = torch.einsum("hrd,ekhd->ekhr", writer, values.to(writer.dtype)).norm(dim=-1)
        visible = visible_keys(model, attn_scores, pattern)
        for (queries, targets), out in zip(masks, rows, strict=True):
            _check(queries, targets, pattern)
            example, query = queries.nonzero(as_tuple=True)
            wanted = targets[example, query].unsqueeze(1)
            seen = visible.expand_as(pattern)[example, :, query]
            moved = pattern[example, :, query].abs().to(writer.dtype) * size[example].mT
            sums = ((moved * wanted).sum(-1), moved.sum(-1), seen.sum(-1), (seen & wanted).sum(-1))
            out.append(torch.stack([each.double() for each in sums]).cpu())

    names = ("v", "attn_scores", "pattern")
    return [(f"blocks.{layer}.attn.hook_{name}", partial(keep, name=name)) for name in names]


def _check(queries: Tensor, targets: Tensor, pattern: Tensor) -> None:
    if queries.shape[1:] != pattern.shape[2:3] or targets.shape[1:] != pattern.shape[2:]:
        raise RequestError(
            f"queries and targets count {tuple(targets.shape[1:])} positions, "
            f"the model's attention has {tuple(pattern.shape[2:])} (query, key)"
        )


def _movement(heads: tuple[tuple[int, int], ...], layers: list[list[Tensor]]) -> Movement:
    sums = torch.cat([torch.cat(batches, dim=1) for batches in layers], dim=2).numpy()
    return Movement(heads, *sums)
