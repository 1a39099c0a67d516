"""A rung of the ladder: a model, its data, and the edges that are true under each kind of ablation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from headlab.interp.circuits import Edge, Node
from headlab.interp.interventions import Intervention
from headlab.interp.symmetries import disguised
from headlab.models.constructed import Constructed
from headlab.models.hooked import Architecture, HookedTransformer

Basis = Literal["proved", "enumerated", "measured"]
Truth = Mapping[str, frozenset[Edge]]
ReadMetric = Callable[[Float[Tensor, "example read output"]], Float[Tensor, " example"]]
KINDS: dict[str, str] = {"zero": "zero", "mean": "positional_mean", "resample": "resample"}


@dataclass(frozen=True)
class Rung:
    """One model of one task whose circuit is known, with everything that an instrument needs to look for it.

    task, name: e.g. `esp`, `shaken`.
    model, architecture: in float64.
    inputs: the examples, all that the truth speaks of.
    metric: the output at the positions `read` -> one number per example; what an edge must move to be true.
    read: the model's positions that are read.
    interventions: kind -> what is put in place; `mean` is the positional mean.
    truth: kind -> the edges that are true.
    right: the output at `read` -> 1 where the answer is right, else 0.
    basis: how the truth is known: by theorem and lemma (`proved`), by the construction and enumeration (`enumerated`),
        or by a gap in the enumeration alone (`measured`).
    contested: kind -> edges that act singly and are needed by nothing; they are not scored.
    contexts: kind -> heads that back each other up: an edge is true that acts alone, or once one of them is silent.
    note: what a reader must know of this truth.
    """

    task: str
    name: str
    model: HookedTransformer
    architecture: Architecture
    inputs: Shaped[Tensor, "example ..."]
    metric: ReadMetric
    read: tuple[int, ...]
    interventions: Mapping[str, Intervention]
    truth: Truth
    right: ReadMetric
    basis: Basis = "proved"
    contested: Truth = field(default_factory=dict)
    contexts: Mapping[str, tuple[Node, ...]] = field(default_factory=dict)
    note: str = ""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of ablation under which the truth is known."""
        return tuple(kind for kind in self.interventions if kind in self.truth)


def interventions(inputs: Tensor, kinds: tuple[str, ...]) -> dict[str, Intervention]:
    """What each kind puts in place, over the inputs themselves."""
    return {k: Intervention("zero") if k == "zero" else Intervention(KINDS[k], inputs, 0) for k in kinds}


def known(built: Constructed, kinds: tuple[str, ...]) -> dict[str, frozenset[Edge]]:
    """The construction's circuits by the ladder's names of kinds."""
    return {kind: built.circuit(KINDS[kind]).edges for kind in kinds}


def blind(rung: Rung, seed: int) -> Rung:
    """The same rung with heads in a random order and bases, and residual axes rotated: nobody knows it by heart.

    Lemma: the outputs are equivariant, so that every edge's effect stays, under the head's new name. Axes that the
    unembedding reads by number stay where they are, and a norm that centres keeps its axes.
    """
    count = rung.model.cfg.n_heads
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    model = disguised(rung.model, seed=seed, order=order)
    if rung.model.cfg.normalization_type not in ("LN", "LNPre"):
        rotate(model, rung.architecture, seed + 1)
    names = {old: new for new, old in enumerate(order)}
    return replace(
        rung,
        model=model,
        truth=renamed(rung.truth, names),
        contested=renamed(rung.contested, names),
        contexts={kind: tuple(_renamed(node, names) for node in nodes) for kind, nodes in rung.contexts.items()},
    )


def renamed(truth: Truth, names: Mapping[int, int]) -> dict[str, frozenset[Edge]]:
    """The same edges where head h of every layer is now head names[h]; heads that are not named keep their number."""
    return {
        kind: frozenset(
            replace(edge, source=_renamed(edge.source, names), destination=_renamed(edge.destination, names))
            for edge in edges
        )
        for kind, edges in truth.items()
    }


def _renamed(node: Node, names: Mapping[int, int]) -> Node:
    return replace(node, head=names.get(node.head, node.head)) if node.kind == "head" else node


WRITES = ("W_E", "W_pos", "W_T", "W_A", "W_B", "b_E", "c0", "W_O", "b_O", "W_out", "b_out")
READS = ("W_U", "W_in", "W_0")


def rotate(model: HookedTransformer, architecture: Architecture, seed: int) -> HookedTransformer:
    """Turn the residual stream of `model`, in place, by a random rotation of the axes that no part reads by number."""
    q = rotation(architecture, seed)
    width = model.cfg.d_model
    with torch.no_grad():
        for name, value in model.named_parameters():
            owner, _, last = name.rpartition(".")
            inner = owner == "embed" and last == "W_in"
            if last in WRITES:
                value.copy_(value @ q)
            elif last in ("W_Q", "W_K", "W_V"):
                value.copy_(torch.einsum("md,hmk->hdk", q, value))
            elif last in READS and value.shape[0] == width and not inner:
                value.copy_(q.T @ value)
    return model


def rotation(architecture: Architecture, seed: int) -> Float[Tensor, "old new"]:
    """The rotation of `rotate`: x becomes x q."""
    width = architecture.config["d_model"]
    q = torch.eye(width, dtype=torch.float64)
    kept = set(read_axes(architecture))
    free = torch.tensor([axis for axis in range(width) if axis not in kept])
    draw = torch.randn(len(free), len(free), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    q[free[:, None], free] = torch.linalg.qr(draw).Q
    return q


def read_axes(architecture: Architecture) -> range:
    """The residual axes that the unembedding reads by number; empty where it has a matrix."""
    part: Mapping[str, Any] = architecture.parts.get("unembed", {})
    if "first" not in part:
        return range(0)
    count = part["count"] if part["part"] == "ProductUnembed" else len(part["exponents"][0])
    return range(part["first"], part["first"] + count)
