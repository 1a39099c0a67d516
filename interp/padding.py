"""Padding: which positions are no tokens, whether the model must be told so, and whether it sees them all the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.interp.model import HookedModel, Mask, activations
from headlab.interp.sites import hook_name


def token_mask(mask: Mask | None, inputs: Shaped[Tensor, "example ..."]) -> Bool[Tensor, "example position"] | None:
    """The mask as booleans, True at tokens; None where nothing is padded.

    Raises:
        RequestError: Where the mask has another shape than the inputs, or an example has no token.
    """
    if mask is None:
        return None
    if mask.shape != inputs.shape[:2]:
        raise RequestError(f"the attention_mask has shape {list(mask.shape)}, the inputs {list(inputs.shape)}")
    tokens = mask.to(inputs.device).bool()
    if not tokens.any(1).all():
        raise RequestError(f"example {int((~tokens.any(1)).nonzero()[0])} of the attention_mask has no token")
    return None if bool(tokens.all()) else tokens


def mask_for_run(model: HookedModel, tokens: Bool[Tensor, "example position"] | None) -> Mask | None:
    """The mask that the model must be called with: None where padding stands after every token and cannot be seen.

    A causal model never looks ahead, so that without a mask its tokens are the same and a faster engine may run.
    """
    if tokens is None:
        return None
    after = not bool((~tokens[:, :-1] & tokens[:, 1:]).any())
    return None if after and getattr(model.cfg, "attention_dir", None) == "causal" else tokens.long()


def require_padding_unseen(
    model: HookedModel, inputs: Shaped[Tensor, "example ..."], tokens: Bool[Tensor, "example position"] | None
) -> None:
    """Raise RequestError where some token attends to padding in block 0 although the model is told of the mask.

    A bidirectional HookedTransformer of transformer-lens 3.9, for one, ignores its attention mask.
    """
    mask = mask_for_run(model, tokens)
    if tokens is None or mask is None:
        return
    name = hook_name("pattern", 0)
    pattern = activations(model, inputs, [name], attention_mask=mask)[1][name]
    if bool((pattern * (tokens[:, None, :, None] & ~tokens[:, None, None, :])).any()):
        raise RequestError("the model attends to padding although the attention_mask marks it: give examples of one "
                           "length")  # fmt: skip


def seen_padding(model: HookedModel, inputs: Shaped[Tensor, "example ..."], read: Sequence[int]) -> str | None:
    """What to say where no attention_mask was given and the inputs look padded; None where they do not.

    Args:
        model: Its tokenizer's pad token tells what padding looks like; without a tokenizer nothing is said.
        inputs: Token ids.
        read: The positions that the metric sees, counted from 0.
    """
    tokenizer: Any = getattr(model, "tokenizer", None)
    pad = getattr(tokenizer, "pad_token_id", None)
    if pad is None or inputs.ndim != 2 or inputs.is_floating_point():
        return None
    padded = (inputs == pad).long()
    before, behind = padded.cumprod(1).sum(1), padded.flip(1).cumprod(1).sum(1)
    if pad == getattr(tokenizer, "bos_token_id", None):
        before = before - 1  # the first token of every example may be the same token
    bidirectional = getattr(model.cfg, "attention_dir", "causal") != "causal"
    read_from = int(max(read)) + 1
    if bool((before > 0).any()) and getattr(tokenizer, "padding_side", "right") != "left":
        return f"example {int((before > 0).nonzero()[0])} begins with padding that the model sees: give attention_mask"
    if bidirectional and bool((behind > 0).any()):
        return f"example {int((behind > 0).nonzero()[0])} ends in padding that the model sees: give attention_mask"
    ends = inputs.shape[1] - behind
    if bool((ends < read_from).any()):
        return f"a read position is padding in example {int((ends < read_from).nonzero()[0])}: read where tokens are"
    return None


def same_padding(
    tokens: Bool[Tensor, "example position"], donors: Bool[Tensor, "donor position"]
) -> tuple[Shaped[Tensor, " example"], Shaped[Tensor, " donor"]]:
    """A level per example and donor, equal where they are padded at the same positions."""
    _, level = torch.cat([tokens.cpu(), donors.cpu()]).unique(dim=0, return_inverse=True)
    return level[: len(tokens)], level[len(tokens) :]
