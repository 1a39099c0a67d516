"""Autoregressive generation that keeps keys and values: each emitted token costs one position, not the whole
sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from headlab.interp.errors import RequestError
from headlab.interp.model import HeadWeights, head_weights, untouched
from headlab.models.hooked import HookedTransformer
from headlab.models.task import Examples
from headlab.models.tree.evaluation import answer
from headlab.models.tree.layout import Layout
from headlab.models.tree.parallel import is_plain_attention
from headlab.models.tree.task import TreeTask
from headlab.models.tree.tokens import BACK, FWD

CHECK = 8  # steps between two looks at whether every example has ended


@dataclass(frozen=True)
class Generation:
    """What a model writes after the goal, greedily.

    labels: emitted label ids, the last being END (or TURN in the backward task); -1 after it. finished: whether it
    came within the steps that were allowed.
    """

    labels: Int[Tensor, "example step"]
    finished: Bool[Tensor, " example"]


@dataclass(frozen=True)
class Agreement:
    """Generation against teacher forcing on the same trees: paths right in each, and trees where they disagree."""

    paths: int
    generated: int
    teacher_forced: int
    disagreements: int


def generate(
    model: HookedTransformer, task: TreeTask, prompts: Int[Tensor, "example position *pair"], *, most: int | None = None
) -> Generation:
    """Greedy continuation of prompts that end with the goal, all of one length; `most` tokens at most.

    most: by default what the deepest tree that the prompt's edges can hold would take. The prompt is computed once;
    then each step computes one position, on keys and values kept from before. The emitted label becomes the next
    token: (BACK, label, previous label) until TURN was emitted, then (FWD, label, NUL). No hook fires. Raises
    ValueError for models other than attention-only ones without norm, and where prompt and steps do not fit the
    context.
    """
    if not is_plain_attention(model):
        raise RequestError("this generation is for attention-only models without norm, in float32 or float64")
    size = prompts.shape[1]
    if most is None:
        nodes = size - 2 if task.form == "pair" else (size - 3) // 2
        most = Layout(nodes, nodes - 1, task.direction, task.chain_of_thought, task.form).predictions
    if size + most - 1 > model.cfg.n_ctx:
        raise RequestError(f"{size} positions and {most} steps do not fit the model's context of {model.cfg.n_ctx}")
    stop = task.tokens.turn if task.direction == "backward" else task.tokens.end
    with untouched(model), torch.inference_mode():
        cache = _Cache(model, len(prompts), size + most - 1)
        written = np.full((len(prompts), most), -1)
        forward = np.full(len(prompts), task.direction == "forward" and not task.chain_of_thought)
        shown = prompts[:, -1].numpy(force=True)
        logits = cache.advance(prompts.to(cache.device))
        for step in range(most):
            label = written[:, step] = logits.argmax(-1).numpy(force=True)
            if step == most - 1 or (step % CHECK == 0 and (written == stop).any(1).all()):
                break
            shown = _next_token(label, shown, forward, task)
            forward = forward | (label == task.tokens.turn)
            logits = cache.advance(torch.from_numpy(shown)[:, None].to(cache.device))
    ends = written == stop
    written[np.cumsum(ends, 1) - ends > 0] = -1
    return Generation(torch.from_numpy(written), torch.from_numpy(ends.any(1)))


def generate_paths(
    model: HookedTransformer, task: TreeTask, examples: Examples, *, batch: int = 128
) -> Int[Tensor, "example step"]:
    """What the model writes after each example's goal, one label for each prediction of the right path; -1 past its
    end.

    Examples of any lengths: those whose goals stand at one position run together.
    """
    start, number = examples.read[:, 0], (examples.read >= 0).sum(1)
    written = torch.full(examples.read.shape, -1)
    for goal in start.unique().tolist():
        for rows in (start == goal).nonzero()[:, 0].split(batch):
            most = int(number[rows].max())
            written[rows, :most] = generate(model, task, examples.inputs[rows, : goal + 1], most=most).labels
    return written.masked_fill(examples.read < 0, -1)


def agreement(model: HookedTransformer, task: TreeTask, examples: Examples) -> Agreement:
    """Whether generating a path is right exactly where every teacher-forced prediction is."""
    written = generate_paths(model, task, examples)
    right = ((written == examples.targets) | (examples.read < 0)).all(1)
    forced = answer(model, task, examples).right.all(1)
    return Agreement(len(examples), int(right.sum()), int(forced.sum()), int((right != forced).sum()))


def _next_token(
    label: Int[np.ndarray, " example"],
    shown: Int[np.ndarray, " example *pair"],
    forward: Bool[np.ndarray, " example"],
    task: TreeTask,
) -> Int[np.ndarray, " example *pair"]:
    """What an emitted label becomes: (BACK, label, previous label) in the first stage, then (FWD, label, NUL)."""
    if task.form == "plain":
        return label
    token = np.empty_like(shown)
    token[:, 0] = np.where(forward, FWD, BACK)
    token[:, 1] = label
    token[:, 2] = np.where(forward, task.tokens.nul, shown[:, 1])
    return token


class _Cache:
    """Keys and values of every layer so far; a layer's weights stand side by side, for one product in and one out."""

    def __init__(self, model: HookedTransformer, examples: int, size: int) -> None:
        self.model, self.used, self.device = model, 0, model.unembed.W_U.device
        scale = float(model.cfg.attn_scale) if model.cfg.use_attn_scale else 1.0
        self.layers = [_side_by_side(head_weights(model, layer), scale) for layer in range(model.cfg.n_layers)]
        self.heads, self.width = model.cfg.n_heads, model.cfg.d_head
        shape = (len(self.layers), 2, examples, self.heads, size, self.width)
        self.kept = torch.zeros(shape, dtype=model.cfg.dtype, device=self.device).unbind()
        self.W_U, self.b_U = model.unembed.W_U.detach(), model.unembed.b_U.detach()
        tables = cast("list[Any]", [getattr(model.embed, f"W_{slot}", None) for slot in "TAB"])
        self.table = None if tables[0] is None else torch.cat(tables)
        if self.table is not None:
            first, second, _ = (len(each) for each in tables)
            self.offsets = torch.tensor([0, first, first + second], device=self.device)

    def embed(self, tokens: Int[Tensor, "example new *pair"]) -> Float[Tensor, "example*new model"]:
        """The residual stream before the first layer."""
        if self.table is None:
            return (self.model.embed(tokens) + self.model.pos_embed(tokens, self.used)).flatten(0, 1)
        return functional.embedding_bag((tokens + self.offsets).view(-1, 3), self.table, mode="sum")

    def advance(self, tokens: Int[Tensor, "example new *pair"]) -> Float[Tensor, "example vocabulary"]:
        """Take up new positions; the logits at the last of them."""
        (examples, new), start = tokens.shape[:2], self.used
        residual = self.embed(tokens)
        self.used += new
        for layer, (into, into_bias, out, out_bias) in enumerate(self.layers):
            both = torch.addmm(into_bias, residual, into).view(examples, new, 3, self.heads, self.width)
            seen = self.kept[layer].narrow(3, 0, self.used)
            seen.narrow(3, start, new).copy_(both[:, :, 1:].permute(2, 0, 3, 1, 4))
            keys, values = seen.unbind()
            queries = both[:, :, 0].transpose(1, 2)
            if layer == len(self.layers) - 1 and new > 1:
                queries, residual = queries[:, :, -1:], residual.view(examples, new, -1)[:, -1]
            # one query sees every key; as many queries as keys see what came before them
            z = functional.scaled_dot_product_attention(
                queries, keys, values, is_causal=queries.shape[2] > 1, scale=1.0
            )
            z = z.transpose(1, 2).reshape(-1, self.heads * self.width)
            residual = residual + torch.addmm(out_bias, z, out)
        return torch.addmm(self.b_U, residual, self.W_U)


def _side_by_side(weights: HeadWeights, scale: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Matrix and bias into scaled queries, keys and values of all heads, and out of their values."""
    into = torch.stack([weights.W_Q / scale, weights.W_K, weights.W_V])  # [3, head, model, d]
    bias = torch.stack([weights.b_Q / scale, weights.b_K, weights.b_V])
    into = into.permute(2, 0, 1, 3).flatten(1).contiguous()
    return into, bias.flatten(), weights.W_O.flatten(0, 1).contiguous(), weights.b_O
