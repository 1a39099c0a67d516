"""Pairs of runs that differ in one token, the path's tokens kept: which head and position recovers the answer."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.models.task import Contrast
from headlab.models.tree.circuits import contrast_read
from headlab.models.tree.layout import Layout
from headlab.models.tree.tokens import Labels
from headlab.models.tree.trees import Forest

_FACTORS = {
    "goal": "which node the path is asked for",
    "edge": "the parent that one edge names",
    "predecessor": "the node that one BACK token carries",
}


def contrast(
    name: str,
    forest: Forest,
    labels: Int[Tensor, "example node"],
    tokens: Int[Tensor, "example position 3"],
    layout: Layout,
    vocabulary: Labels,
    generator: torch.Generator,
) -> Contrast:
    """The contrast `name`: the given sequences are the source runs, and their altered copies the destination runs.

    `goal`: another node with another parent is asked for, read at the goal. `edge`: half-way up, the edge to be
    looked up names another parent that is not a descendant (the result is a tree again), read at that step.
    `predecessor`: half-way down, the BACK token to be looked up carries another node of the tree, read at that
    step. Metrics: `logit_difference` (source's answer minus destination's) and `log_probability` of the source's
    answer.
    """
    path, _ = forest.ancestors()
    rows = torch.arange(len(forest))
    altered = tokens.clone()
    step, read = layout.depth // 2, contrast_read(name, layout)
    if name == "goal":
        answer = forest.parent[rows, forest.goal]
        other = _choose((forest.parent >= 0) & (forest.parent != answer[:, None]), generator)
        altered[:, layout.goal, 1] = labels[rows, other]
        wrong = labels[rows, forest.parent[rows, other]]
        right = labels[rows, answer]
    elif name == "edge":
        child = path[:, step]
        answer = forest.parent[rows, child]
        other = _choose(forest.present & ~_below(forest, child) & (_index(forest) != answer[:, None]), generator)
        where = ((tokens[..., 0] == 1) & (tokens[..., 2] == labels[rows, child][:, None])).long().argmax(1)
        altered[rows, where, 1] = labels[rows, other]
        right, wrong = labels[rows, answer], labels[rows, other]
    else:
        node, answer = path[:, step + 1], path[:, step]
        allowed = forest.present & (_index(forest) != answer[:, None]) & (_index(forest) != node[:, None])
        other = _choose(allowed, generator)
        altered[:, layout.goal + step + 1, 2] = labels[rows, other]
        right, wrong = labels[rows, answer], labels[rows, other]

    def logit_difference(logits: Float[Tensor, "example read vocabulary"]) -> Float[Tensor, " example"]:
        return _pick(logits, right) - _pick(logits, wrong)

    def log_probability(logits: Float[Tensor, "example read vocabulary"]) -> Float[Tensor, " example"]:
        return _pick(logits.log_softmax(-1), right)

    return Contrast(
        name=name,
        factor=_FACTORS[name],
        source=tokens,
        destination=altered,
        read=(read,),
        metrics={"logit_difference": logit_difference, "log_probability": log_probability},
        positions=layout.positions,
    )


def _pick(logits: Float[Tensor, "example 1 vocabulary"], token: Int[Tensor, " example"]) -> Float[Tensor, " example"]:
    return logits[:, 0].gather(1, token.to(logits.device)[:, None])[:, 0]


def _index(forest: Forest) -> Int[Tensor, "1 node"]:
    return torch.arange(forest.parent.shape[1])[None]


def _choose(allowed: Bool[Tensor, "example node"], generator: torch.Generator) -> Int[Tensor, " example"]:
    """One allowed node each, drawn evenly. ValueError where a tree has none."""
    if not bool(allowed.any(1).all()):
        raise RequestError("these trees are too small for a contrast: no other node could stand there; use more nodes")
    return torch.multinomial(allowed.float(), 1, generator=generator)[:, 0]


def _below(forest: Forest, node: Int[Tensor, " example"]) -> Bool[Tensor, "example node"]:
    """The node and all its descendants."""
    inside = _index(forest) == node[:, None]
    for child in range(1, forest.parent.shape[1]):
        inside[:, child] |= inside.gather(1, forest.parent[:, child].clamp(min=0)[:, None])[:, 0] & (
            forest.parent[:, child] >= 0
        )
    return inside
