"""Which trees a task draws, and which of them training never sees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.models.tree.given import GivenTree
from headlab.models.tree.split import RULES, SHARE, held_out, label_pool, labelled_key, shape_key
from headlab.models.tree.trees import (
    Forest,
    capacity,
    caterpillar_forest,
    given_forest,
    join,
    path_forest,
    perfect_forest,
    random_forest,
)

SHAPES = ("random", "binary", "path", "caterpillar", "given")
_CHUNK = 4096


def stream(*numbers: int) -> torch.Generator:
    """A generator of its own for each tuple of numbers >= 0: (seed, purpose, index, ...)."""
    state = np.random.SeedSequence(numbers).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(state[0]) << 31 ^ int(state[1]))


@dataclass(frozen=True)
class TreeSource:
    """Rooted trees with different random labels out of `labels`, and a goal each.

    depths: a goal's depth is drawn evenly from these; in a given tree it is that of its goal, and `depths` is empty.
    shape: `random` (exactly `nodes` nodes, at most `branching` children each), `binary` (perfect, goal a leaf), `path`,
        `caterpillar` (a leaf on each inner node of the spine), `given` (copies of `given`; `goal` by name, else drawn).
    nodes: of random trees; by default 3 (depth + 1), or what labels and branching allow where that is less.
    split: what training never sees: an eighth of the labelled trees, of the shapes, or of the labels; or `none`.
    Raises ValueError for a depth under 1, more nodes than labels, a goal that is not in the tree.
    """

    depths: tuple[int, ...] = (3,)
    shape: str = "random"
    labels: int = 64
    nodes: int | None = None
    branching: int = 3
    split: str = "labelling"
    given: GivenTree | None = None
    goal: str | None = None

    def __post_init__(self) -> None:
        for value, known, what in ((self.shape, SHAPES, "shape"), (self.split, RULES, "split")):
            if value not in known:
                raise RequestError(f"no {what} '{value}': choose one of {', '.join(known)}")
        if (self.shape == "given") != (self.given is not None):
            raise RequestError("shape 'given' and a tree belong together: give both or neither")
        if self.goal is not None:
            if self.given is None:
                raise RequestError("a goal is named in a given tree only: leave it out, or give the tree")
            if self.given.number(self.goal) == 0:
                raise RequestError(f"the goal '{self.goal}' is the root: its path is one node; name another")
        if self.given is None and (not self.depths or min(self.depths) < 1):
            depths = ", ".join(map(str, self.depths)) or "none"
            raise RequestError(f"depths: {depths}; a tree of one node has no path to find: use depths of 1 or more")
        if self.most_nodes > self.room:
            held = f" (the eighth of {self.labels} that is held out)" if self.split == "labels" else ""
            raise RequestError(
                f"a tree of {self.most_nodes} nodes needs as many labels, but there are {self.room}{held}: "
                "use more labels"
            )
        if self.shape == "random":
            for depth in self.depths:
                least, most = depth + 1, capacity(depth, self.branching)
                if not least <= self.nodes_at(depth) <= most:
                    raise RequestError(
                        f"{self.nodes_at(depth)} nodes do not fit a tree of depth {depth} with at most "
                        f"{self.branching} children a node: use {least} to {most}"
                    )

    @property
    def room(self) -> int:
        """The labels that the smaller side of the split has."""
        return len(label_pool(self.labels, test=True)) if self.split == "labels" else self.labels

    def nodes_at(self, depth: int) -> int:
        """The nodes of a tree of that depth."""
        if self.given is not None:
            return len(self.given.parent)
        if self.shape == "binary":
            return capacity(depth, 2)
        if self.shape in ("path", "caterpillar"):
            return depth + 1 + (depth if self.shape == "caterpillar" else 0)
        return self.nodes or max(depth + 1, min(3 * (depth + 1), self.room, capacity(depth, self.branching)))

    @property
    def most_nodes(self) -> int:
        """The nodes of the largest tree."""
        return self.nodes_at(1) if self.given is not None else max(map(self.nodes_at, self.depths))

    @property
    def deepest(self) -> int:
        """The largest depth of a goal."""
        if self.given is None:
            return max(self.depths)
        depth = Forest(torch.tensor([self.given.parent]), torch.zeros(1, dtype=torch.long)).depth()[0]
        return int(depth.max() if self.goal is None else depth[self.given.number(self.goal)])

    @property
    def uniform(self) -> bool:
        """Whether all trees have the same number of nodes and the same depth of goal."""
        return len(set(self.depths)) == 1 if self.given is None else self.goal is not None

    def forest(self, count: int, generator: torch.Generator) -> Forest:
        """`count` trees with goals, of both sides of the split."""
        if self.given is not None:
            goal = None if self.goal is None else self.given.number(self.goal)
            return given_forest(self.given.parent, count, generator, goal)
        depths = torch.tensor(sorted(set(self.depths)))
        rank = torch.randint(len(depths), (count,), generator=generator)
        drawn = depths[rank]
        if self.shape == "random":
            nodes = torch.tensor([self.nodes_at(int(depth)) for depth in depths])
            return random_forest(drawn, nodes[rank], self.branching, generator)
        parts = []
        for depth in depths.tolist():
            number = int((drawn == depth).sum())
            if not number:
                continue
            if self.shape == "binary":
                parts.append(perfect_forest(number, depth, 2, generator))
            elif self.shape == "path":
                parts.append(path_forest(number, depth))
            else:
                parts.append(caterpillar_forest(number, depth, legs=1))
        joined = join(parts)
        return joined[torch.randperm(count, generator=generator)] if len(parts) > 1 else joined

    def draw(
        self, count: int, generator: torch.Generator, *, test: bool, distinct: bool = False
    ) -> tuple[Forest, Int[Tensor, "tree node"]]:
        """`count` labelled trees from one side of the split; `distinct` ones differ in edges or goal.

        Fewer distinct ones come where there are no more. Raises ValueError where one side of the split is empty.
        """
        pool = torch.arange(self.labels)
        if self.split == "labels":
            pool = torch.tensor(label_pool(self.labels, test=test))
        parts: list[tuple[Forest, Tensor]] = []
        seen: set[int] = set()
        have, idle = 0, 0
        while have < count and idle < 8:
            forest = self.forest(min(self._asked(count - have, test), _CHUNK), generator)
            keys = torch.rand(len(forest), len(pool), generator=generator)
            labels = pool[keys.topk(forest.parent.shape[1], dim=1, largest=False).indices]
            rows = self._side(forest, labels, test).nonzero()[:, 0]
            if distinct:
                known = labelled_key(forest, labels).tolist()
                rows = torch.tensor([row for row in rows.tolist() if _new(known[row], seen)], dtype=torch.long)
            rows = rows[: count - have]
            have, idle = have + len(rows), 0 if len(rows) else idle + 1
            parts.append((forest[rows], labels[rows]))
        if not have:
            side = "held-out" if test else "training"
            raise RequestError(f"the split '{self.split}' leaves no {side} trees of this kind: use another split")
        most = max(labels.shape[1] for _, labels in parts)
        padded = [torch.nn.functional.pad(labels, (0, most - labels.shape[1])) for _, labels in parts]
        return join([forest for forest, _ in parts]), torch.cat(padded)

    def _asked(self, missing: int, test: bool) -> int:
        if self.split in ("none", "labels"):
            return missing
        return missing * SHARE + 32 if test else missing + missing // (SHARE - 2) + 8

    def _side(self, forest: Forest, labels: Int[Tensor, "tree node"], test: bool) -> Bool[Tensor, " tree"]:
        if self.split in ("none", "labels"):
            return torch.ones(len(forest), dtype=torch.bool)
        key = shape_key(forest) if self.split == "shape" else labelled_key(forest, labels)
        return held_out(key) == test


def _new(key: int, seen: set[int]) -> bool:
    """Whether `key` was not yet in `seen`; now it is."""
    known = key in seen
    seen.add(key)
    return not known
