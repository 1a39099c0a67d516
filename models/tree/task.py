"""Path finding in rooted trees: goal to root, and with a chain of thought from there root to goal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headlab.interp.circuits import Circuit
from headlab.interp.errors import RequestError, UnknownName
from headlab.interp.roles import Role
from headlab.models.task import Contrast, Examples, LogitMetric
from headlab.models.tree.circuits import POINTER_DOUBLING, layers_needed, true_circuit
from headlab.models.tree.contrasts import contrast
from headlab.models.tree.given import GivenTree
from headlab.models.tree.layout import DIRECTIONS, FORMS, Layout
from headlab.models.tree.metrics import path_metrics
from headlab.models.tree.roles import doubling_roles_of, queries_and_answers, role_targets
from headlab.models.tree.source import TreeSource, stream
from headlab.models.tree.tokens import BACK, BOS, EDGE, TYPES, Labels, Sequences, encode
from headlab.models.tree.trees import ORDERS, Forest, linear_extension

_TEST, _TRAIN, _CONTRAST = range(3)


@dataclass(frozen=True)
class TreeTask:
    """A tree's edges in random order, then a goal: predict its path token by token.

    trees: which trees, labels and goals. direction: `backward` predicts goal to root and TURN; `forward` goes on from
    the root to the goal and END, or, without `chain_of_thought`, predicts root to goal and END at once. form: `pair`
    tokens (type, a, b), or `plain` ones with one label a position. order: of the edges, `random`, or `parents-first`
    (a random one in which every edge comes after the edge above it).
    """

    trees: TreeSource = field(default_factory=TreeSource)
    direction: str = "forward"
    chain_of_thought: bool = True
    form: str = "pair"
    order: str = "random"
    name: str = "tree"

    def __post_init__(self) -> None:
        for value, known, what in (
            (self.direction, DIRECTIONS, "direction"),
            (self.form, FORMS, "form"),
            (self.order, ORDERS, "order"),
        ):
            if value not in known:
                raise RequestError(f"no {what} '{value}': choose one of {', '.join(known)}")

    @property
    def layout(self) -> Layout:
        """The positions of the largest tree with the deepest goal."""
        return Layout(self.trees.most_nodes, self.trees.deepest, self.direction, self.chain_of_thought, self.form)

    @property
    def positions(self) -> tuple[str, ...]:
        """The layout's names; plain numbers where sequences differ in layout."""
        if self.trees.uniform:
            return self.layout.positions
        return tuple(f"position {k}" for k in range(self.layout.length))

    @property
    def tokens(self) -> Labels:
        """The label ids."""
        return Labels(self.trees.labels)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """A printable name for each label that a model predicts: nodes, turn, end."""
        return self.tokens.outputs

    @property
    def staged(self) -> bool:
        """Whether both stages, backward and reverse, occur."""
        return self.direction == "forward" and self.chain_of_thought

    def require_context(self, context: int) -> None:
        """Raise ValueError where a sequence of this task is longer than a model's context."""
        if self.layout.length > context:
            raise RequestError(
                f"depth {self.trees.deepest} with {self.trees.most_nodes} nodes makes sequences of "
                f"{self.layout.length} positions, beyond the context of {context}: use smaller trees or a longer one"
            )

    def sequences(self, forest: Forest, labels: Int[Tensor, "tree node"], generator: torch.Generator) -> Sequences:
        """Encoded with the edges in an order drawn by `generator`."""
        if self.order == "random":
            order = torch.rand(labels.shape, generator=generator).masked_fill(~forest.present, 2.0).argsort(1)
        else:
            order = linear_extension(forest, generator)
        return encode(forest, labels, order, self.tokens, self.direction, self.chain_of_thought, self.form)

    def training_batch(self, count: int, *, seed: int, index: int) -> Sequences:
        """The `index`-th batch of the endless stream of `seed`, from the training side of the split."""
        generator = stream(seed, _TRAIN, index)
        return self.sequences(*self.trees.draw(count, generator, test=False), generator)

    # ---- what every task offers -----------------------------------------------------------------------------------

    def examples(self, *, seed: int = 0, count: int | None = None) -> Examples:
        """`count` (2000 by default) different held-out trees, or all there are; factor `depth`.

        ValueError for a count below 1.
        """
        count = 2000 if count is None else count
        if count < 1:
            raise RequestError(f"{count} examples were asked for: at least 1 is needed")
        generator = stream(seed, _TEST)
        return self.as_examples(self.sequences(*self.trees.draw(count, generator, test=True, distinct=True), generator))

    def as_examples(self, encoded: Sequences) -> Examples:
        """Encoded trees with their depth as a factor."""
        depths, level = encoded.depth.unique(return_inverse=True)
        names = tuple(str(depth) for depth in depths.tolist())
        return Examples(encoded.tokens, encoded.targets, encoded.read, {"depth": level}, {"depth": names})

    def stages(self, read: Int[Tensor, "example read"]) -> Mapping[str, Bool[Tensor, "example read"]]:
        """role -> which reads belong to its stage. The TURN query, which trained models answer by another route, is in
        neither; empty without a backward stage.
        """
        if self.direction == "forward" and not self.chain_of_thought:
            return {}
        steps, number = torch.arange(read.shape[1], device=read.device), (read >= 0).sum(1, keepdim=True)
        depth = (number - 3) // 2 if self.staged else number - 1
        found = {"backward": (steps <= depth) & (read >= 0)}
        if self.staged:
            found["reverse"] = (steps >= depth + 2) & (read >= 0)
        return found

    def metrics(self, examples: Examples) -> Mapping[str, LogitMetric]:
        """Performance per example from the full logits, higher is better; see `models.tree.metrics.path_metrics`."""
        return path_metrics(examples.read, examples.targets, self.stages(examples.read))

    def contrasts(self, *, seed: int = 0, count: int = 64) -> Mapping[str, Contrast]:
        """Pairs that differ in one token, path tokens fixed: `goal` (another one, read there), `edge` (another parent,
        read where it is looked up, half-way up) and, with both stages, `predecessor` (what a BACK token carries,
        read on the way down). Of mixed depths the largest is taken; empty for plain tokens and without a backward
        stage.
        """
        if self.form == "plain" or not self.layout.backward:
            return {}
        task = self.deepest_only()
        generator = stream(seed, _CONTRAST)
        forest, labels = task.trees.draw(count, generator, test=True, distinct=True)
        encoded = task.sequences(forest, labels, generator)
        names = ("goal", "edge", "predecessor") if self.staged else ("goal", "edge")
        return {
            name: contrast(name, forest, labels, encoded.tokens, task.layout, task.tokens, generator) for name in names
        }

    def roles(self, *, seed: int = 0, count: int = 256) -> tuple[Role, ...]:
        """`backward` and, with both stages, `reverse`; without a chain of thought `jump 1`, `jump 2`, .. and `answer`.

        Queries and targets are those of `headlab.models.tree.roles`. Empty for plain tokens.
        """
        if self.form == "plain":
            return ()
        examples = self.examples(seed=seed, count=count)
        if not self.layout.backward:
            jumps = layers_needed(self.trees.deepest) - 1
            return doubling_roles_of(examples.inputs, examples.read, self.tokens.turn, jumps)
        return tuple(
            Role(name, examples.inputs, *role_targets(name, examples.inputs, examples.read, where))
            for name, where in self.stages(examples.read).items()
        )

    def role_metrics(self, roles: Sequence[Role]) -> Mapping[str, LogitMetric]:
        """role -> the share of right predictions at the role's queries, from the logits of the role's own inputs.

        Without a chain of thought, where jumps predict nothing themselves, at the queries of `answer`.
        """
        found, answers = {}, next((role for role in roles if role.name == "answer"), None)
        for role in roles:
            ends = self.direction == "forward"
            read, targets = queries_and_answers(role if answers is None else answers, self.tokens, ends=ends)
            found[role.name] = path_metrics(read, targets, {role.name: read >= 0})[role.name]
        return found

    def circuit(self, variant: str, ablation: str, *, read: Sequence[int] | None = None) -> Circuit:
        """The true circuit of the constructed `variant` under `ablation`, in this layout.

        read: the positions of the answers that count, all by default. KeyError lists what is known; that of
        `pointer-doubling` is known where parents are listed first.
        """
        if variant == POINTER_DOUBLING and self.order != "parents-first":
            raise UnknownName(f"the circuit of '{variant}' is known for parents listed first: set the task's order")
        return true_circuit(self.layout, variant, ablation, read)

    def token_labels(self, row: Int[Tensor, "position ..."]) -> tuple[str, ...]:
        """What stands at each position of one example: `7 -> 3` for an edge, `back 3 (7)` for a visited node, ..."""
        names = self.tokens.inputs
        if self.form == "plain":
            return tuple(
                {self.tokens.bos: "bos", self.tokens.nul: "?"}.get(t, names[min(t, len(names) - 1)])
                for t in row.tolist()
            )
        shown = []
        for kind, a, b in row.tolist():
            if kind == EDGE:
                shown.append(f"{names[a]} → {names[b]}")
            else:
                carried = f" ({names[b]})" if kind == BACK else ""
                shown.append("bos" if kind == BOS else f"{TYPES[kind]} {names[a]}{carried}")
        return tuple(shown)

    def deepest_only(self) -> TreeTask:
        """The same task with one depth, the largest, so that all sequences have one layout."""
        if self.trees.given is not None:
            if self.trees.goal is None:
                raise RequestError("contrasts need sequences of one layout: name a goal in the given tree")
            return self
        return replace(self, trees=replace(self.trees, depths=(max(self.trees.depths),)))

    def options(self) -> dict[str, Any]:
        """JSON-ready options from which `from_options` makes an equal task."""
        source = {entry.name: getattr(self.trees, entry.name) for entry in fields(self.trees)}
        source["depths"] = list(self.trees.depths)
        if self.trees.given is not None:
            source["given"] = {"parent": list(self.trees.given.parent), "names": list(self.trees.given.names)}
        return {
            **source,
            "direction": self.direction,
            "chain_of_thought": self.chain_of_thought,
            "form": self.form,
            "order": self.order,
        }

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> TreeTask:
        """The task that `options` describes, those of the trees beside its own; what is left out has its default.

        Raises ValueError for an unknown option, and as TreeSource does.
        """
        own = {"direction", "chain_of_thought", "form", "order"}
        known = own | {entry.name for entry in fields(TreeSource)}
        unknown = sorted(set(options) - known)
        if unknown:
            raise RequestError(f"the tree task has no option '{unknown[0]}': it has {', '.join(sorted(known))}")
        source = {name: value for name, value in options.items() if name not in own}
        if "depths" in source:
            source["depths"] = tuple(source["depths"])
        if source.get("given") is not None:
            source["given"] = GivenTree(tuple(source["given"]["parent"]), tuple(source["given"]["names"]))
        return cls(TreeSource(**source), **{name: value for name, value in options.items() if name in own})
