"""Path finding written down from the theorem: one head for goal to root, two heads for the way back as well.

No norm, attention scale 1, biases 0. A residual stream has slots A and B for the two labels of a token, OUT for the
answer, and four flags; a head's own space has a slot for one label and one axis for the flags. Labels are
k-dimensional unit
vectors: one-hot, or random near-orthogonal ones, so that many fit in few dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import RequestError, UnknownName
from headlab.models.basis import Basis, Direction
from headlab.models.constructed import Constructed
from headlab.models.hooked import DTYPES, build
from headlab.models.tree import pointer_doubling
from headlab.models.tree.architecture import architecture
from headlab.models.tree.circuits import KINDS, POINTER_DOUBLING, VARIANTS, true_circuit
from headlab.models.tree.source import stream
from headlab.models.tree.task import TreeTask
from headlab.models.tree.tokens import TYPES

FLAGS = ("BOS", "BACK", "FWD", "TURN")
SPECIAL = 2  # TURN and END have axes of their own, also where node labels are random vectors


@dataclass(frozen=True)
class _Spaces:
    residual: Basis
    head: Basis

    def flags(self, **strength: float | int) -> dict[Hashable, Direction]:
        """residual flag -> that strength on the head's flag axis."""
        return {flag: factor * self.head["flag"] for flag, factor in strength.items()}

    def copy(self, name: str, factor: float | int) -> dict[Hashable, Direction]:
        """residual slot -> the head's label slot."""
        return {(name, k): factor * self.head[k] for k in range(len(self.head) - 1)}


def construct(
    task: TreeTask,
    variant: str,
    *,
    beta: float | int = 20.0,
    label_width: int | None = None,
    seed: int = 0,
    layers: int | None = None,
    dtype: torch.dtype | str = torch.float32,
    device: str = "cpu",
) -> Constructed:
    """The construction `variant` for `task`: `backward` (one head), `forward` (two heads), `pointer-doubling`.

    The last is headlab.models.tree.pointer_doubling.construct, which takes `layers`; what follows is about the others.

    beta: the attention score of a match, and the logit of a right answer. label_width: dimensions k of a label, at
    least 3; one-hot by default (k = S + 2). seed draws the random labels. Raises KeyError for an unknown variant
    and ValueError where it is for another task, where beta is not positive, or where the context is too short.

    Proof sketch. Write a, b for the label vectors of a token's slots and <x, y> for inner products; one-hot labels
    give 1 for a match and 0 else. Backward head: score beta <a_q, b_k> + 2 beta [q FWD or TURN][k BOS], value a. At
    the goal and at BACK tokens the flag is silent and the one key with b_k = a_q is the edge that ends there (a
    BACK token carries the node before it, which is not a_q): the answer is the parent, and TURN at the root, whose
    edge hangs under TURN. In the second stage BOS wins by beta, and BOS has no labels, so nothing is written: that
    is the switch. Reverse head: score beta <a_q, a_k> + f_q f_k, with f_k = [BACK] - [BOS] and f_q = beta ([FWD] +
    [TURN]) - 4 beta ([BACK] - [TURN]), value b. In the second stage the BACK token of the same node has 2 beta, any
    other key at most beta: the answer is the node from which the path came, and END at the goal. In the first stage
    BACK tokens lose 4 beta, BOS gains as much and wins. The emitted TURN token is both BACK and TURN: it matches
    itself, and carries the root.

    With L keys in view the leak is at most l = (L - 1) e^-beta: each head puts at least 1/(1 + l) on its target, and at
    most l/(1 + l) elsewhere. The answer's logit is beta/(1 + l), any other one's at most beta 2 l/(1 + l) (both heads'
    leaks, two stages), so one-hot labels have a margin of at least beta (1 - 2 l)/(1 + l), for every tree: a bound that
    knows no depth except through L. Random labels of width k overlap by about sqrt(2 ln S / k); beta times the gap must
    outweigh ln L, and no bound is claimed.
    """
    if variant not in VARIANTS:
        raise UnknownName(f"no construction '{variant}': there are {', '.join(VARIANTS)}")
    if variant == POINTER_DOUBLING:
        if label_width is not None:
            raise RequestError(f"'{variant}' adds labels up, which takes one-hot ones: leave the label width out")
        return pointer_doubling.construct(task, layers=layers, beta=beta, dtype=dtype, device=device)
    if layers is not None:
        raise RequestError(f"'{variant}' has one layer: leave the number of layers out")
    wanted = "forward" if task.staged else "backward"
    if task.form != "pair" or not task.layout.backward or variant != wanted:
        raise RequestError(
            f"'{variant}' solves the {variant} task with a chain of thought on pair tokens: give it that task"
        )
    if not beta > 0:
        raise RequestError(f"beta is {beta}: it must be a positive attention score, e.g. 20")
    vectors = label_vectors(task.trees.labels, label_width, seed)
    width = vectors.shape[1]
    spaces = _Spaces(_residual(width), Basis("head", (*range(width), "flag")))
    plan = architecture(
        task, heads=len(VARIANTS[: VARIANTS.index(variant) + 1]), d_model=3 * width + 4, d_head=width + 1, scaled=False
    )
    model = build(plan, device=device, dtype=dtype)
    weights = _heads(spaces, float(beta))[: plan.config["n_heads"]]
    state = embedding_tables(task, vectors, beta=float(beta))
    for index, name in enumerate(("W_Q", "W_K", "W_V", "W_O")):
        state[f"blocks.0.attn.{name}"] = torch.stack([head[index] for head in weights])
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in state.items():
            parameters[name].copy_(value)
    kinds = [kind for kind in KINDS if task.staged or kind != "resample:predecessor"]
    circuits = {kind: true_circuit(task.layout, variant, kind) for kind in kinds}
    one_hot = label_width is None
    margin = bound(float(beta), task.layout.length) if one_hot else None
    return Constructed(
        model=model,
        architecture=plan,
        variant=variant,
        circuits=circuits,
        roles=dict(circuits["resample"].roles),
        options={"beta": float(beta), "label_width": label_width, "seed": seed},
        errors=0 if margin is not None and margin > 0 and _holds(float(beta), dtype) else None,
        margin=margin if margin is not None and margin > 0 else None,
        notes={"beta": float(beta), "label_width": width, "keys": task.layout.length},
    )


def bound(beta: float | int, keys: int) -> float:
    """The margin that one-hot labels have at least, in logits, with that many keys in view; negative: none is
    claimed.
    """
    leak = (keys - 1) * math.exp(-beta)
    return beta * (1 - 2 * leak) / (1 + leak)


def _holds(beta: float, dtype: torch.dtype | str) -> bool:
    """Whether scores up to 4 beta are told apart to within a tenth in this precision."""
    kind = DTYPES[dtype] if isinstance(dtype, str) else dtype
    return 4 * beta * torch.finfo(kind).eps < 0.1


def label_vectors(nodes: int, width: int | None, seed: int) -> Float[Tensor, "label width"]:
    """Unit vectors of the labels, float64, rows in the order of the label ids; NUL is the null vector.

    width None: one-hot. Otherwise TURN and END have an axis each and the nodes are random directions of the other
    width - 2, drawn with `seed`: with random vectors for TURN and END too, the stages would bleed into one another.
    Raises ValueError for a width below 3.
    """
    if width is None:
        return torch.cat([torch.eye(nodes + SPECIAL), torch.zeros(1, nodes + SPECIAL)]).double()
    if width < 3:
        raise RequestError(f"labels of width {width} leave nodes no dimension beside TURN and END: use 3 or more")
    draw = torch.randn(nodes, width - SPECIAL, generator=stream(seed, 3), dtype=torch.float64)
    vectors = torch.zeros(nodes + SPECIAL + 1, width, dtype=torch.float64)
    vectors[:nodes, : width - SPECIAL] = draw / draw.norm(dim=1, keepdim=True)
    vectors[nodes, width - 2] = vectors[nodes + 1, width - 1] = 1.0
    return vectors


def _heads(spaces: _Spaces, beta: float) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """W_Q, W_K, W_V, W_O of the backward head and of the reverse head."""
    residual, head = spaces.residual, spaces.head

    def read(images: dict[Hashable, Direction]) -> Tensor:
        return residual.linear(images, into=head)

    write = head.linear({k: residual["OUT", k] for k in range(len(head) - 1)}, into=residual)
    backward = (
        read(spaces.copy("A", beta) | spaces.flags(FWD=2 * beta, TURN=2 * beta)),
        read(spaces.copy("B", 1) | spaces.flags(BOS=1)),
        read(spaces.copy("A", 1)),
        write,
    )
    reverse = (
        read(spaces.copy("A", beta) | spaces.flags(FWD=beta, TURN=beta + 4 * beta, BACK=-4 * beta)),
        read(spaces.copy("A", 1) | spaces.flags(BACK=1, BOS=-1)),
        read(spaces.copy("B", 1)),
        write,
    )
    return [backward, reverse]


def embedding_tables(
    task: TreeTask, vectors: Float[Tensor, "label width"], *, beta: float | int = 1.0
) -> dict[str, Float[Tensor, "row column"]]:
    """The construction's embedding tables and unembedding by parameter name, float64; a right answer has logit beta."""
    width, outputs = vectors.shape[1], len(task.vocabulary)
    residual = _residual(width)
    flag_of = {"bos": "BOS", "back": "BACK", "fwd": "FWD"}
    types = [residual[flag_of[kind]] if kind in flag_of else residual.zero for kind in TYPES]
    tables = {"embed.W_T": residual.rows(types)}
    for slot, name in enumerate(("embed.W_A", "embed.W_B")):
        tables[name] = torch.zeros(len(vectors), len(residual), dtype=torch.float64)
        tables[name][:, slot * width : (slot + 1) * width] = vectors
    tables["embed.W_A"][task.tokens.turn] += residual["TURN"].coordinates
    tables["unembed.W_U"] = torch.zeros(len(residual), outputs, dtype=torch.float64)
    tables["unembed.W_U"][2 * width : 3 * width] = beta * vectors[:outputs].T
    return tables


def _residual(width: int) -> Basis:
    return Basis("residual", (*((slot, k) for slot in ("A", "B", "OUT") for k in range(width)), *FLAGS))
