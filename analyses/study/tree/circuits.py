"""The QK and OV circuits of a tree model in label space, and whether the right entry stands out in every row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.interp.weights import ov_circuit, qk_circuit
from headlab.models.hooked import HookedTransformer
from headlab.models.tree.task import TreeTask
from headlab.models.tree.tokens import BACK, EDGE, FWD

RIGHT = {"backward": ("backward QK", "backward OV"), "reverse": ("reverse QK", "reverse OV")}


@dataclass(frozen=True)
class LabelCircuits:
    """What the labels of tokens do to each other in every head of a one-layer model, biases and scale included.

    backward QK: score from a BACK token of node n to an EDGE with child m. reverse QK: from a FWD token of n to a BACK
    token of m. backward OV: logits that an edge's parent adds; reverse OV: those that a BACK token's predecessor
    adds. In each the right entry is the diagonal. The labels beside the one that varies are left out (null).
    """

    circuits: dict[str, Float[np.ndarray, "head row column"]]

    def of(self, role: str, head: int) -> dict[str, Float[np.ndarray, "row column"]]:
        """The two circuits of `role` in one head."""
        return {name: self.circuits[name][head] for name in RIGHT[role]}

    def diagonal_share(self, role: str, head: int) -> dict[str, float]:
        """In how many of the rows the right entry is the largest."""
        return {name: float((m.argmax(1) == np.arange(len(m))).mean()) for name, m in self.of(role, head).items()}


def label_circuits(model: HookedTransformer, task: TreeTask, *, layer: int = 0) -> LabelCircuits:
    """The circuits of `layer` over the node labels. Raises ValueError for plain tokens."""
    if task.form != "pair":
        raise RequestError("label circuits need pair tokens, whose two labels have tables of their own")
    nodes = task.trees.labels
    embed = model.embed
    kinds, a, b = (getattr(embed, name).detach() for name in ("W_T", "W_A", "W_B"))
    edge_child, edge_parent = kinds[EDGE] + b[:nodes], kinds[EDGE] + a[:nodes]
    visited, carried, ahead = kinds[BACK] + a[:nodes], kinds[BACK] + b[:nodes], kinds[FWD] + a[:nodes]
    return LabelCircuits(
        {
            "backward QK": _numpy(qk_circuit(model, layer, visited, edge_child)),
            "reverse QK": _numpy(qk_circuit(model, layer, ahead, visited)),
            "backward OV": _numpy(ov_circuit(model, layer, edge_parent)[..., :nodes]),
            "reverse OV": _numpy(ov_circuit(model, layer, carried)[..., :nodes]),
        }
    )


def block_cosines(model: HookedTransformer, task: TreeTask) -> dict[str, dict[str, float]]:
    """How alike a model trained by plain descent and the construction are, block by block of the trained matrix.

    role -> `raw` (cosine of the node block with the identity) and `centred` (row and column means removed from both,
    which the softmax does not feel). Heads stand in the order of the construction, whose value maps they have.
    """
    width = (model.cfg.d_model - 4) // 3
    nodes = task.trees.labels
    found = {}
    for head, role in enumerate(("backward", "reverse")[: model.cfg.n_heads]):
        matrix = (model.W_Q[0, head] @ model.W_K[0, head].T).detach().double()
        start = width if role == "backward" else 0
        block = matrix[:nodes, start : start + nodes]
        identity = torch.eye(nodes, dtype=torch.float64)
        found[role] = {"raw": _cosine(block, identity), "centred": _cosine(_centred(block), _centred(identity))}
    return found


def _centred(x: Tensor) -> Tensor:
    return x - x.mean(0, keepdim=True) - x.mean(1, keepdim=True) + x.mean()


def _cosine(x: Tensor, y: Tensor) -> float:
    return float((x * y).sum() / (x.norm() * y.norm()))


def _numpy(x: Tensor) -> np.ndarray:
    return x.double().cpu().numpy()
