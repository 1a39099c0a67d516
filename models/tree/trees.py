"""Batches of rooted trees: random ones of a given depth, perfect, paths, caterpillars, or copies of one given tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headlab.interp.errors import RequestError

ROOT, PAD = -1, -2
ORDERS = ("random", "parents-first")


@dataclass(frozen=True)
class Forest:
    """Unlabelled rooted trees with a goal each; nodes are numbered so that a parent comes before its children.

    parent: the parent's number; -1 at the root, which is node 0; -2 where a smaller tree has no such node.
    goal: the node whose path to the root is asked for.
    """

    parent: Int[Tensor, "tree node"]
    goal: Int[Tensor, " tree"]

    def __len__(self) -> int:
        return self.parent.shape[0]

    def __getitem__(self, rows: Tensor | slice) -> Forest:
        return Forest(self.parent[rows], self.goal[rows])

    @property
    def present(self) -> Bool[Tensor, "tree node"]:
        """Which numbers are nodes."""
        return self.parent != PAD

    @property
    def nodes(self) -> Int[Tensor, " tree"]:
        """Nodes of each tree."""
        return self.present.sum(dim=1)

    def depth(self) -> Int[Tensor, "tree node"]:
        """Edges between each node and the root; -1 where there is no node."""
        depth = torch.where(self.present, 0, -1)
        above = self.parent.clamp(min=0)
        alive = self.parent >= 0
        current = above
        while bool(alive.any()):
            depth = depth + alive.long()
            alive = alive & (self.parent.gather(1, current) >= 0)
            current = above.gather(1, current)
        return depth

    def ancestors(self) -> tuple[Int[Tensor, "tree step"], Int[Tensor, " tree"]]:
        """From each goal up to its root: node numbers (the root repeated to the longest), and the goals' depths."""
        above = self.parent.clamp(min=0)
        chain, length = [self.goal], torch.zeros_like(self.goal)
        while True:
            inner = self.parent.gather(1, chain[-1][:, None])[:, 0] >= 0
            if not bool(inner.any()):
                return torch.stack(chain, dim=1), length
            length = length + inner.long()
            chain.append(above.gather(1, chain[-1][:, None])[:, 0])


def capacity(depth: int, branching: int) -> int:
    """The most nodes of a tree with that depth and that many children a node."""
    return depth + 1 if branching == 1 else (branching ** (depth + 1) - 1) // (branching - 1)


def _require_depth(depth: int) -> None:
    if depth < 1:
        raise RequestError(f"depth {depth} leaves a tree of one node, in which there is no path to find: use 1 or more")


def random_forest(
    depth: Int[Tensor, " tree"], nodes: Int[Tensor, " tree"], branching: int, generator: torch.Generator
) -> Forest:
    """Trees of exactly the given depth and number of nodes, at most `branching` children a node; goal: the spine's end.

    A spine from the root to the goal comes first; each further node then hangs under a node drawn evenly from those
    that are above the last level and have room. Raises ValueError where a tree cannot hold its nodes, or has only one.
    """
    _require_depth(int(depth.min()))
    if branching < 1:
        raise RequestError(f"branching {branching} gives no node a child: use 1 or more")
    for d, n in {(int(d), int(n)) for d, n in zip(depth, nodes)}:
        if not d + 1 <= n <= capacity(d, branching):
            raise RequestError(
                f"a tree of depth {d} with at most {branching} children a node has {d + 1} to {capacity(d, branching)} "
                f"nodes, not {n}"
            )
    count, most = len(depth), int(nodes.max())
    parent = torch.full((count, most), PAD)
    parent[:, 0] = ROOT
    level = torch.zeros(count, most, dtype=torch.long)
    room = torch.full((count, most), branching)
    rows = torch.arange(count)
    for node in range(1, most):
        open_ = (room[:, :node] > 0) & (level[:, :node] < depth[:, None])
        draw = torch.rand(count, node, generator=generator).masked_fill(~open_, -1.0).argmax(dim=1)
        chosen = torch.where(depth >= node, node - 1, draw)
        exists = nodes > node
        parent[:, node] = torch.where(exists, chosen, PAD)
        level[:, node] = torch.where(exists, level[rows, chosen] + 1, most)
        room[rows, chosen] -= exists.long()
    return Forest(parent, depth.clone())


def perfect_forest(count: int, depth: int, branching: int, generator: torch.Generator) -> Forest:
    """Perfect trees: every node above the last level has `branching` children; each goal is a leaf drawn evenly."""
    _require_depth(depth)
    parent = (torch.arange(capacity(depth, branching)) - 1) // branching
    leaves = capacity(depth, branching) - capacity(depth - 1, branching)
    goal = capacity(depth - 1, branching) + torch.randint(leaves, (count,), generator=generator)
    return Forest(parent.repeat(count, 1), goal)


def caterpillar_forest(count: int, depth: int, legs: int) -> Forest:
    """A spine of `depth` edges with `legs` leaves on each of its nodes but the last, which is the goal."""
    _require_depth(depth)
    spine = torch.arange(-1, depth)
    leaves = torch.arange(depth).repeat_interleave(legs)
    return Forest(torch.cat([spine, leaves]).repeat(count, 1), torch.full((count,), depth))


def path_forest(count: int, depth: int) -> Forest:
    """Chains of depth + 1 nodes; the goal is the last."""
    return caterpillar_forest(count, depth, legs=0)


def given_forest(parent: Sequence[int], count: int, generator: torch.Generator, goal: int | None = None) -> Forest:
    """Copies of one tree; each goal is drawn evenly from the nodes below the root unless `goal` names one."""
    if len(parent) < 2:
        raise RequestError("a tree of one node has no path to find: give a tree with an edge")
    if goal is None:
        goals = torch.randint(1, len(parent), (count,), generator=generator)
    else:
        goals = torch.full((count,), goal)
    return Forest(torch.tensor(parent).repeat(count, 1), goals)


def join(forests: Sequence[Forest]) -> Forest:
    """One batch of several, the smaller trees padded."""
    most = max(forest.parent.shape[1] for forest in forests)
    padded = [
        torch.nn.functional.pad(forest.parent, (0, most - forest.parent.shape[1]), value=PAD) for forest in forests
    ]
    return Forest(torch.cat(padded), torch.cat([forest.goal for forest in forests]))


def linear_extension(forest: Forest, generator: torch.Generator) -> Int[Tensor, "tree place"]:
    """The nodes of each tree in an order in which parents come first, drawn evenly from all such orders.

    An order of a tree is even when each next node is drawn among those whose parent is listed, in proportion to the
    size of its subtree (the hook length formula). Absent nodes come last.
    """
    present, above = forest.present, forest.parent.clamp(min=0)
    size, most = present.double(), present.shape[1]
    for node in range(most - 1, 0, -1):  # children have larger numbers than their parents
        inner = (forest.parent[:, node] >= 0).double()
        size.scatter_add_(1, above[:, node : node + 1], (size[:, node] * inner)[:, None])
    listed, rows, order = torch.zeros_like(present), torch.arange(len(forest)), []
    for _ in range(most):
        ready = present & ~listed & ((forest.parent < 0) | listed.gather(1, above))
        weight = torch.where(ready, size, 0.0) + 1e-9 * (~present & ~listed) * ~ready.any(1, keepdim=True)
        drawn = torch.multinomial(weight, 1, generator=generator)[:, 0]
        listed[rows, drawn] = True
        order.append(drawn)
    return torch.stack(order, dim=1)
