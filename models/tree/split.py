"""Which trees are kept from training: by labelled tree, by shape, or by label. Membership is a rule, not a list.

A tree's key is a 64-bit hash that is blind to the order of its edges; an eighth of the keys is held out. So an endless
stream of training trees and any test set are disjoint without either being stored.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headlab.models.tree.trees import Forest

RULES = ("none", "labelling", "shape", "labels")
SHARE = 8


def _mix(x: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014), on two's-complement integers."""
    x = x + (-0x61C8864680B583EB)
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * (-0x40A7B892E31B1A47)
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * (-0x6B2FB644ECCEEE15)
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


def labelled_key(forest: Forest, labels: Int[Tensor, "tree node"]) -> Int[Tensor, " tree"]:
    """One key per labelled tree with its goal: equal where edges and goal are, whatever the numbering."""
    above = labels.gather(1, forest.parent.clamp(min=0))
    edges = _mix(_mix(labels) + 3 * above + (forest.parent < 0).long())
    goal = _mix(labels.gather(1, forest.goal[:, None])[:, 0] + 0x5BD1E995)
    return _mix((edges * forest.present).sum(dim=1) + goal)


def shape_key(forest: Forest) -> Int[Tensor, " tree"]:
    """One key per unlabelled tree with its goal marked: equal for isomorphic ones (rooted, goal to goal)."""
    depth = forest.depth()
    goal = torch.zeros_like(forest.parent).scatter_(1, forest.goal[:, None], 0x5BD1E995)
    below = torch.zeros_like(forest.parent)
    key = _mix(goal)
    for level in range(int(depth.max()), -1, -1):
        here = depth == level
        key = torch.where(here, _mix(below + goal), key)
        if level:
            below.scatter_add_(1, forest.parent.clamp(min=0), _mix(key + level) * here)
    return key[:, 0]


def held_out(key: Int[Tensor, " tree"]) -> Bool[Tensor, " tree"]:
    """Whether a key belongs to the eighth that training never sees."""
    return (_mix(key) & (SHARE - 1)) == 0


def label_pool(vocabulary: int, *, test: bool) -> range:
    """The labels of one side of the split by labels: the last eighth is the test's."""
    edge = vocabulary - vocabulary // SHARE
    return range(edge, vocabulary) if test else range(edge)
