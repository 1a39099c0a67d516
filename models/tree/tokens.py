"""How a labelled tree and a path become tokens.

Labels: nodes 0..S-1, then TURN, END and NUL. A pair token is (type, a, b), so that both ends of an edge share one
position and an emitted token carries its predecessor: that is why one layer is enough. The plain form has one label a
position and no pairs; a model of it needs positions and a second layer to put an edge's two ends together.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from headlab.models.tree.layout import Layout
from headlab.models.tree.trees import Forest

TYPES = ("bos", "edge", "back", "fwd")
BOS, EDGE, BACK, FWD = range(4)


@dataclass(frozen=True)
class Labels:
    """Label ids for S node labels. A model predicts nodes, TURN and END: ids 0..S+1."""

    nodes: int

    @property
    def turn(self) -> int:
        """What the parent look-up of a root answers, and the signal that the stage changes."""
        return self.nodes

    @property
    def end(self) -> int:
        """What the goal carries as its predecessor, so that the way back stops there."""
        return self.nodes + 1

    @property
    def nul(self) -> int:
        """No label; in the plain form, the mark before the goal."""
        return self.nodes + 2

    @property
    def bos(self) -> int:
        """The first token of the plain form."""
        return self.nodes + 3

    @property
    def outputs(self) -> tuple[str, ...]:
        """Printable names of what a model predicts."""
        return (*map(str, range(self.nodes)), "turn", "end")

    @property
    def inputs(self) -> tuple[str, ...]:
        """Printable names of the labels that a pair token is made of."""
        return (*self.outputs, "nul")


@dataclass(frozen=True)
class Sequences:
    """Encoded trees, each with its right answer already written: one forward pass scores every prediction.

    tokens: [example, position, 3] as (type, a, b), or [example, position] of labels in the plain form; shorter
        sequences are padded on the right, where no position that is read can see it.
    read, targets: the positions that predict, and what is right there; -1 and 0 past a sequence's last prediction.
    depth: of each goal.
    """

    tokens: Int[Tensor, "example position *pair"]
    read: Int[Tensor, "example read"]
    targets: Int[Tensor, "example read"]
    depth: Int[Tensor, " example"]


def encode(
    forest: Forest,
    labels: Int[Tensor, "tree node"],
    order: Int[Tensor, "tree node"],
    vocabulary: Labels,
    direction: str,
    chain_of_thought: bool,
    form: str,
) -> Sequences:
    """The sequences of labelled trees.

    labels: each node's label. order: node numbers in the order in which their edges are written (absent nodes last).
    """
    path, depth = forest.ancestors()
    path = labels.gather(1, path)
    a, b, kind, targets = _path_tokens(path, depth, vocabulary, direction, chain_of_thought)
    edges, edge_count = _edge_tokens(forest, labels, order, vocabulary)
    count, most = len(forest), a.shape[1]
    steps = torch.arange(most)
    used = steps < predictions_of(depth, direction, chain_of_thought)[:, None]
    first = 1 + edge_count if form == "pair" else 2 + 2 * edge_count
    size = int((first + used.sum(1)).max())
    read = torch.where(used, first[:, None] + steps, -1)
    if form == "pair":
        tokens = torch.tensor([BOS, vocabulary.nul, vocabulary.nul]).repeat(count, size + 1, 1)
        tokens[:, 1 : 1 + edges.shape[1]] = edges
        slot = torch.where(used, read, size)
        tokens.scatter_(1, slot[..., None].expand(-1, -1, 3), torch.stack([kind, a, b], dim=-1))
    else:
        tokens = torch.full((count, size + 1), vocabulary.nul)
        tokens[:, 0] = vocabulary.bos
        tokens[:, 1 : 1 + 2 * edges.shape[1]] = edges[..., 1:].flatten(1)
        tokens.scatter_(1, torch.where(used, read, size), a)
    return Sequences(tokens[:, :size], read, torch.where(used, targets, 0), depth)


def predictions_of(depth: Int[Tensor, " tree"], direction: str, chain_of_thought: bool) -> Int[Tensor, " tree"]:
    """How many tokens are predicted for goals of those depths."""
    if direction == "backward":
        return depth + 1
    return 2 * depth + 3 if chain_of_thought else depth + 2


def _edge_tokens(
    forest: Forest, labels: Int[Tensor, "tree node"], order: Int[Tensor, "tree node"], vocabulary: Labels
) -> tuple[Int[Tensor, "tree node 3"], Int[Tensor, " tree"]]:
    above = labels.gather(1, forest.parent.clamp(min=0))
    above = torch.where(forest.parent < 0, vocabulary.turn, above)
    tokens = torch.stack([torch.full_like(above, EDGE), above, labels], dim=-1)
    blank = torch.tensor([BOS, vocabulary.nul, vocabulary.nul])
    tokens = torch.where(forest.present[..., None], tokens, blank)
    return tokens.gather(1, order[..., None].expand(-1, -1, 3)), forest.nodes


def _path_tokens(
    path: Int[Tensor, "tree step"],
    depth: Int[Tensor, " tree"],
    vocabulary: Labels,
    direction: str,
    chain_of_thought: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """a, b, type and target of each step from the goal on."""
    d = depth[:, None]
    steps = torch.arange(Layout(0, int(depth.max()), direction, chain_of_thought).predictions)[None]
    at = lambda index: path.gather(1, index.clamp(0, path.shape[1] - 1).expand(len(path), -1))  # noqa: E731
    if not chain_of_thought and direction == "forward":
        down = d - steps + 1  # path index of the node that a step's token shows; the goal comes first
        a = torch.where(steps == 0, at(steps), at(down))
        b = torch.where(steps == 0, vocabulary.end, vocabulary.nul)
        kind = torch.where(steps == 0, BACK, FWD).expand_as(a)
        targets = torch.where(steps <= d, at(down - 1), vocabulary.end)
        return a, b.expand_as(a), kind, targets
    back, turn = steps <= d, steps == d + 1
    down = 2 * d + 2 - steps
    a = torch.where(back, at(steps), torch.where(turn, vocabulary.turn, at(down)))
    b = torch.where(steps == 0, vocabulary.end, at(steps - 1))
    b = torch.where(back | turn, b, vocabulary.nul)
    kind = torch.where(back | turn, BACK, FWD)
    targets = torch.where(steps < d, at(steps + 1), torch.where(steps == d, vocabulary.turn, at(down - 1)))
    targets = torch.where(steps == 2 * d + 2, vocabulary.end, targets)
    return a, b, kind, targets
