"""Root-to-goal paths without a chain of thought in logarithmic depth: one attention head a layer, written down.

Pointer doubling (Wyllie 1979, list ranking on a PRAM): in each layer every edge replaces its pointer by its pointer's
pointer, so that after l layers it knows its 2^l nearest ancestors; the last layer answers.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

import torch
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.models.basis import Basis, Direction
from headlab.models.constructed import Constructed
from headlab.models.hooked import DTYPES, build
from headlab.models.tree.architecture import architecture
from headlab.models.tree.circuits import (
    POINTER_DOUBLING,
    POINTER_KINDS,
    doubling_circuit,
    doubling_roles,
    layers_needed,
)
from headlab.models.tree.task import TreeTask
from headlab.models.tree.tokens import TYPES

FLAG_OF = {"bos": "BOS", "edge": "EDGE", "back": "BACK", "fwd": "FWD"}


def construct(
    task: TreeTask,
    *,
    layers: int | None = None,
    beta: float | int = 20.0,
    dtype: torch.dtype | str = torch.float32,
    device: str = "cpu",
) -> Constructed:
    """Constructed weights that write the path from root to goal without a chain of thought.

    Args:
        task: a forward task on pair tokens without a chain of thought.
        layers: attention layers, at least 2; by default `layers_needed` of the deepest goal.
        beta: the smallest gap between the attention scores of the target and of any other key, and the logit of an
            answer; positive.
        dtype: of the weights.
        device: of the weights.

    Returns:
        The model. `errors` and `margin` are the theorem's where it speaks: J = layers - 1 jumps, and parents listed
        first with 2^J >= D + 1, or edges in any order with J >= D. The circuits are those of parents listed first.

    Raises:
        RequestError: for another task, fewer than 2 layers, a beta that is not positive, or a context too short.

    Proof sketch. Labels are one-hot, TURN among them. An edge token (a, b) starts with the pointer ptr_0 = a, its
    parent, and set_0 = {a}. A jump head has the score 2 beta <ptr_q, b_k> + beta [k BOS]: an edge attends to the edge
    whose child it points at, copies that edge's pointer into ptr_l and adds its set to its own. BOS stands for the edge
    above the root: child TURN, pointer TURN, empty set; it is also where a pointer that matches nothing rests. By
    induction over l, where parents are listed first, ptr_l is the 2^l-th ancestor of b (TURN past the root) and set_l
    holds ancestors 1 .. 2^l, each once. A FWD token, which shows x, attends to the goal in the first layer (score
    4 beta against 2 beta) and jumps from there: after l layers its set holds x and the goal's ancestors 0 .. 2^l - 2.
    The path is a_D (root), ..., a_0 (goal): to answer a_n with n <= D - 1 the set must hold it, so 2^J - 2 >= D - 1,
    which is J = ceil(log2(D + 1)).

    The answer layer at a FWD token that shows x has the score M <a_q, a_k> + beta <set_q, b_k>, M = beta 2^J, minus 4 M
    at FWD and BOS keys, plus beta at the goal. Of the edges below x (M each) one child is an ancestor of the goal, and
    wins by beta; at x = goal the goal token itself wins by beta, and carries END; any other key has at most
    beta 2^J = M. At the goal 3 M <TURN, a_k> selects the root's edge. The value is b.

    In random order the causal mask may hide the edge that a pointer names. There the second term is beta <b_q, b_k>
    instead, so that such an edge attends to itself, keeps its pointer, and waits. A FWD token sees all edges, and every
    jump gains at least one ancestor: J = D always suffices. A set may then count a node up to 2^J times, which M
    allows for.

    Soft attention. With K keys in view let e_l = (K - 1) exp(-beta (1 - 2 p_(l-1))) bound the attention off the target
    in layer l, p_l = 2 (e_1 + ... + e_l) the error of a pointer and s_l = 2^l (e_1 + ... + e_l) that of a set, both in
    the 1-norm (a set weighs 2^l). The answer's leak is r = (K - 1) exp(-beta (1 - s_J)), its logit at least
    beta / (1 + r), any other at most beta r / (1 + r): the margin is at least beta (1 - r) / (1 + r).

    Lower bound. One layer fewer leaves the root's child out of the set, and all children of the root tie: THIS
    construction fails. Whether another one needs fewer layers is open.
    """
    if task.form != "pair" or task.direction != "forward" or task.chain_of_thought:
        raise RequestError(
            f"'{POINTER_DOUBLING}' solves the forward task without a chain of thought on pair tokens: give it that task"
        )
    if not beta > 0:
        raise RequestError(f"beta is {beta}: it must be a positive attention score, e.g. 20")
    depth = task.trees.deepest
    layers = layers_needed(depth) if layers is None else layers
    if layers < 2:
        raise RequestError(f"{layers} layers: pointer doubling takes one to jump and one to answer, so 2 or more")
    jumps, width = layers - 1, len(task.vocabulary)
    labels, slots = range(width), ("A", "B", "SET", *(f"PTR {j}" for j in range(1, jumps + 1)), "OUT")
    residual = Basis("residual", (*((slot, k) for slot in slots for k in labels), *FLAG_OF.values()))
    head = Basis("head", (*((half, k) for half in ("first", "second") for k in labels), "flag", "rest"))
    plan = architecture(task, heads=1, layers=layers, d_model=len(residual), d_head=len(head), scaled=False)
    model = build(plan, device=device, dtype=dtype)
    parameters = dict(model.named_parameters())
    state = _embedding(residual, width, task.tokens.turn, float(beta))
    for layer in range(layers):
        weights = (
            _jump(residual, head, width, layer, float(beta), waits=task.order == "random")
            if layer < jumps
            else _answer(residual, head, width, task.tokens.turn, float(beta), float(beta) * 2.0**jumps)
        )
        state |= {f"blocks.{layer}.attn.{name}": value[None] for name, value in weights.items()}
    with torch.no_grad():
        for name, value in state.items():
            parameters[name].copy_(value)
    ordered = task.order == "parents-first"
    enough = jumps >= depth or (ordered and 2**jumps >= depth + 1)
    margin = bound(float(beta), task.layout.length, jumps)
    kind = DTYPES[dtype] if isinstance(dtype, str) else dtype
    exact = enough and margin > 0 and 6 * beta * 2.0**jumps * torch.finfo(kind).eps < 0.1
    known = ordered and enough and task.trees.uniform
    return Constructed(
        model=model,
        architecture=plan,
        variant=POINTER_DOUBLING,
        circuits={name: doubling_circuit(task.layout, name, layers=layers) for name in POINTER_KINDS if known},
        roles={(layer, 0): name for layer, name in enumerate(doubling_roles(layers))},
        options={"beta": float(beta), "layers": layers},
        errors=0 if exact else None,
        margin=margin if exact else None,
        notes={"beta": float(beta), "keys": task.layout.length, "layers_needed": layers_needed(depth)},
    )


def bound(beta: float | int, keys: int, jumps: int) -> float:
    """The margin in logits that the proof guarantees with that many keys in view; negative: none is claimed."""
    leaks = 0.0
    for _ in range(jumps):
        leaks += (keys - 1) * math.exp(-beta * (1 - 4 * leaks)) if 4 * leaks < 1 else math.inf
    deviation = 2**jumps * leaks
    leak = (keys - 1) * math.exp(-beta * (1 - deviation)) if deviation < 1 else math.inf
    return beta * (1 - leak) / (1 + leak) if math.isfinite(leak) else -beta


def _copy(source: str, width: int, target: str, basis: Basis, factor: float = 1.0) -> dict[Hashable, Direction]:
    return {(source, k): factor * basis[target, k] for k in range(width)}


def _embedding(residual: Basis, width: int, turn: int, beta: float) -> dict[str, Tensor]:
    """The three tables and the unembedding. NUL, the last label, is the null vector."""
    types = [residual[FLAG_OF[kind]] for kind in TYPES]
    above_root = residual["A", turn] + residual["B", turn]
    types[TYPES.index("bos")] = types[TYPES.index("bos")] + above_root
    a = [residual["A", k] + residual["SET", k] for k in range(width)]
    b = [residual["B", k] for k in range(width)]
    return {
        "embed.W_T": residual.rows(types),
        "embed.W_A": residual.rows([*a, residual.zero]),
        "embed.W_B": residual.rows([*b, residual.zero]),
        "unembed.W_U": beta * residual.rows([residual["OUT", k] for k in range(width)]).T,
    }


def _jump(residual: Basis, head: Basis, width: int, layer: int, beta: float, *, waits: bool) -> dict[str, Tensor]:
    """Attend to the edge that the pointer names, else to BOS, or, where the query `waits`, to itself; fetch its pointer
    and its set.
    """
    pointer = f"PTR {layer}" if layer else "A"
    q, k = _copy(pointer, width, "first", head, 2 * beta), _copy("B", width, "first", head)
    if waits:
        q |= _copy("B", width, "first", head, beta)
    else:
        q |= dict.fromkeys(("EDGE", "BACK", "FWD"), beta * head["rest"])
        k["BOS"] = head["rest"]
    if not layer:  # a FWD token fetches the goal before it jumps
        q["FWD"] = q.get("FWD", head.zero) + 4 * beta * head["flag"]
        k["BACK"] = head["flag"]
    v = _copy(pointer, width, "first", head) | _copy("SET", width, "second", head)
    o = _copy("first", width, f"PTR {layer + 1}", residual) | _copy("second", width, "SET", residual)
    return _weights(residual, head, q, k, v, o)


def _answer(residual: Basis, head: Basis, width: int, turn: int, beta: float, most: float) -> dict[str, Tensor]:
    """Attend to the edge below the node shown whose child is an ancestor of the goal; write the child."""
    q = _copy("A", width, "first", head, most) | _copy("SET", width, "second", head, beta)
    q |= {"FWD": beta * head["flag"], "BACK": beta * head["flag"] + 3 * most * head["first", turn]}
    k = _copy("A", width, "first", head) | _copy("B", width, "second", head)
    never = -4 * most / beta * head["flag"]
    k |= {"BACK": head["flag"], "FWD": never, "BOS": never}
    return _weights(residual, head, q, k, _copy("B", width, "first", head), _copy("first", width, "OUT", residual))


def _weights(
    residual: Basis,
    head: Basis,
    q: Mapping[Hashable, Direction],
    k: Mapping[Hashable, Direction],
    v: Mapping[Hashable, Direction],
    o: Mapping[Hashable, Direction],
) -> dict[str, Tensor]:
    read = {name: residual.linear(images, into=head) for name, images in (("W_Q", q), ("W_K", k), ("W_V", v))}
    return read | {"W_O": head.linear(o, into=residual)}
