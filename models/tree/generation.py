"""Autoregressive generation that keeps keys and values: each emitted token costs one position, not the whole
sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.interp.model import HeadWeights, head_weights, untouched
from headlab.models.hooked import HookedTransformer
from headlab.models.task import Examples
from headlab.models.tree.evaluation import answer
from headlab.models.tree.layout import Layout
from headlab.models.tree.parallel import is_plain_attention
from headlab.models.tree.task import TreeTask
from headlab.models.tree.tokens import BACK, FWD


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
    with untouched(model):
        memory = _Memory(model, len(prompts), size + most - 1)
        prompts = prompts.to(memory.device)
        written = torch.full((len(prompts), most), -1, device=memory.device)
        finished = torch.zeros(len(prompts), dtype=torch.bool, device=memory.device)
        forward = torch.full_like(finished, task.direction == "forward" and not task.chain_of_thought)
        token = prompts[:, -1]
        logits = memory.advance(prompts)
        for step in range(most):
            label = logits.argmax(-1)
            written[:, step] = torch.where(finished, -1, label)
            finished = finished | (label == stop)
            if bool(finished.all()) or step == most - 1:
                break
            token = next_token(label, token, forward, task)
            forward = forward | (label == task.tokens.turn)
            logits = memory.advance(token[:, None])
    return Generation(written.cpu(), finished.cpu())


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


def next_token(
    label: Int[Tensor, " example"],
    token: Int[Tensor, "example ..."],
    forward: Bool[Tensor, " example"],
    task: TreeTask,
) -> Int[Tensor, "example ..."]:
    """What an emitted label becomes: (BACK, label, previous label) in the first stage, then (FWD, label, NUL)."""
    if task.form == "plain":
        return label
    kind = torch.where(forward, FWD, BACK)
    carried = torch.where(forward, task.tokens.nul, token[:, 1])
    return torch.stack([kind, label, carried], dim=-1)


class _Memory:
    """Keys and values of every layer so far."""

    def __init__(self, model: HookedTransformer, examples: int, size: int) -> None:
        self.model, self.used = model, 0
        self.device = model.unembed.W_U.device
        self.layers = [head_weights(model, layer) for layer in range(model.cfg.n_layers)]
        self.scale = float(model.cfg.attn_scale) if model.cfg.use_attn_scale else 1.0
        heads, width = self.layers[0].W_Q.shape[0], self.layers[0].W_Q.shape[-1]
        shape = (len(self.layers), 2, examples, heads, size, width)
        self.kept = torch.zeros(shape, dtype=model.cfg.dtype, device=self.device)

    def advance(self, tokens: Int[Tensor, "example new *pair"]) -> Float[Tensor, "example vocabulary"]:
        """Take up new positions; the logits at the last of them."""
        residual = self.model.embed(tokens) + self.model.pos_embed(tokens, self.used)
        new, start = tokens.shape[1], self.used
        self.used += new
        for layer, weights in enumerate(self.layers):
            keys, values = self.kept[layer]
            keys[:, :, start : self.used] = _heads(residual, weights.W_K, weights.b_K)
            values[:, :, start : self.used] = _heads(residual, weights.W_V, weights.b_V)
            last = layer == len(self.layers) - 1
            residual = residual[:, -1:] if last else residual
            q = _heads(residual, weights.W_Q, weights.b_Q)
            residual = residual + self._attend(q, keys[:, :, : self.used], values[:, :, : self.used], weights)
        return residual[:, -1] @ self.model.unembed.W_U + self.model.unembed.b_U

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, weights: HeadWeights) -> Float[Tensor, "example new model"]:
        scores = q @ k.transpose(-1, -2) / self.scale
        new, seen = q.shape[2], k.shape[2]
        if new > 1:
            future = torch.ones(new, seen, dtype=torch.bool, device=q.device).triu(seen - new + 1)
            scores = scores.masked_fill(future, -torch.inf)
        z = scores.softmax(-1) @ v
        return torch.einsum("bhnd,hdm->bnm", z, weights.W_O) + weights.b_O


def _heads(
    residual: Float[Tensor, "example new model"], weight: Float[Tensor, "head model d"], bias: Float[Tensor, "head d"]
) -> Float[Tensor, "example head new d"]:
    return torch.einsum("bnm,hmd->bhnd", residual, weight) + bias[:, None]
