"""Attention patterns of a last, attention-only block: the logits are linear in an entry but for the final norm."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.engines.cone import Cone, Logits

Entry = Callable[[Tensor, Tensor, Tensor, Tensor], Logits]


def closed_form(
    cone: Cone,
    layer: int,
    mid: Float[Tensor, "example position model"],
    written: Float[Tensor, "example head source model"],
) -> Entry | None:
    """The logits when the residual x at one read position becomes x + size * w, w = `written[head, source]`.

    With x_c, w_c centred (left as they are under RMS), bias in const and g the norm's weight, they are
    (x_c g W_U + size * w_c g W_U) / s + const, s^2 = (|x_c|^2 + 2 size x_c.w_c + size^2 |w_c|^2) / width + eps: one
    product with W_U per (head, source) instead of one per cell. None where the block is not the last, has an MLP, or
    the unembedding is not linear.
    """
    if layer != cone.layers - 1 or not cone.cfg.attn_only:
        return None
    if written[..., 0].numel() * cone.vocabulary * written.element_size() > 4 * cone.budget or not _linear(cone):
        return None
    W_U, b_U = cone.model.unembed.W_U.detach(), cone.model.unembed.b_U.detach()
    norm = cone.final_norm
    x, w = mid[:, cone.read], written
    if norm is not None:
        if norm.centres:
            x, w = x - x.mean(-1, keepdim=True), w - w.mean(-1, keepdim=True)
        b_U = b_U if norm.bias is None else b_U + norm.bias @ W_U
        W_U = W_U if norm.weight is None else norm.weight[:, None] * W_U
    x_U, w_U = x @ W_U, w @ W_U
    cone.done += w_U.numel() * w.shape[-1]
    width = x.shape[-1]
    x2 = x.double().pow(2).sum(-1) / width
    w2 = w.double().pow(2).sum(-1) / width

    def entry(size: Tensor, head: Tensor, position: Tensor, source: Tensor) -> Logits:
        row = cone.read_row(position)
        new = x_U[:, row].transpose(0, 1) + size[..., None] * w_U[:, head, source].transpose(0, 1)
        if norm is not None:
            cross = (x[:, row].double() * w[:, head, source].double()).sum(-1).T / width
            double = size.double()
            square = x2[:, row].T + double * (2 * cross + double * w2[:, head, source].T)
            new = new * torch.rsqrt(square + norm.eps).to(new.dtype)[..., None]
        return cone.placed(new + b_U, position)

    return entry


def _linear(cone: Cone) -> bool:
    unembed = cone.model.unembed
    if type(unembed).__module__.startswith("transformer_lens."):
        return True
    W_U, b_U = getattr(unembed, "W_U", None), getattr(unembed, "b_U", None)
    if not isinstance(W_U, Tensor) or not isinstance(b_U, Tensor) or W_U.ndim != 2:
        return False
    x = cone.final[:, cone.read]
    x = torch.cat([x, 2 * x.flip(-1) + 1])
    expected, tolerance = x @ W_U + b_U, 1e-10 if x.dtype == torch.float64 else 1e-4
    found = unembed(x)
    return found.shape == expected.shape and torch.allclose(
        found, expected, rtol=tolerance, atol=tolerance * float(expected.abs().max() + 1e-30)
    )
