"""Two heads select an endpoint on any graph: each head reads one end, and is sunk by the other selector."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.models.basis import Basis, Direction
from headlab.models.constructed import Constructed
from headlab.models.esp.assembly import AssembledHead, assemble, weights
from headlab.models.esp.task import EspTask

ETA = 0.1


def two_head(
    task: EspTask,
    *,
    tied: bool = False,
    sink: float | int = 8.0,
    dtype: torch.dtype | str = torch.float32,
    device: str = "cpu",
) -> Constructed:
    """Two heads, width n + 3, any graph: no error.

    Residual axes: one per vertex, `first` and `second` (which selector is here), `query`. Proof sketch. At '#', head 0
    scores a position by M times its `first` coordinate, head 1 by M times its `second`. u has (0, -1), v (-1, 0), '#'
    (0, 0), the selector '1' (-1, +1), '2' (+1, -1). Under '1' head 0 rests evenly on u and '#', each with weight
    a = 1/(2 + 2e^-M), and e^-M a on v; head 1 rests on the selector, whose value is zero, and gives u and v at most
    1/(e^M + 2 + e^-M). So the target's logit exceeds the other endpoint's by
    (1 - e^-M)/(2 + 2e^-M) - (1 - e^-M)/(e^M + 2 + e^-M), and every other vertex has logit 0. Under '2' the heads
    change places. Tied, '#' has the logit ETA^2, the largest of the tokens that are no endpoint. The margin is exact
    where some arc is no self-loop.

    On the induction form (1, u, 2, v, #, i, #) the first three tokens that are no endpoint get -3 on both switch axes:
    their scores are -2M, -3M and -4M, which both denominators take up.

    Raises ValueError for a sink that is not positive.
    """
    residual = Basis("residual", (*range(task.n), "first", "second", "query"))
    vertices = [residual[k] for k in range(task.n)]
    head = Basis("head", tuple(range(task.n)))
    value = residual.linear({k: head[k] for k in range(task.n)}, into=head)
    write = head.linear({k: residual[k] for k in range(task.n)}, into=residual)
    return _two_heads(task, "two-head", residual, head, vertices, value, write, tied, sink, dtype, device)


def two_head_narrow(
    task: EspTask,
    *,
    tied: bool = False,
    sink: float | int | None = None,
    dtype: torch.dtype | str = torch.float32,
    device: str = "cpu",
) -> Constructed:
    """Two heads, width 5, heads of width 2, any graph: no error. M = ln n + 5 unless `sink` is given.

    `two_head` with the vertices at n points of the unit circle, p_k = (cos 2 pi k/n, sin 2 pi k/n). Proof sketch. The
    heads bring A_t p_t + A_o p_o to the logits, A_t the attention on the target, A_o that on the other endpoint.
    Against the vertex at an angle 2x from the target the margin is at least 2 sin x (A_t sin x - A_o), since
    |p_t - p_w| = 2 sin x; it grows with x, so the neighbours at x = pi/n decide. A_t is about 1/2 and A_o about
    1.5 e^-M = .01/n, which costs less than 2 % of (1 - cos(2 pi/n))/2. Against tokens that are no vertex (logit 0;
    tied, '#' has ETA^2) the margin is at least A_t - A_o, less ETA^2 where tied. The figure kept is the smaller of the
    two bounds; where a weak sink makes it negative, nothing is claimed.

    float32 is right to n = 8192, float16 to 128, bfloat16 to 64. Raises ValueError for a sink that is not positive.
    """
    residual = Basis("residual", ("x", "y", "first", "second", "query"))
    angles = [2 * math.pi * k / task.n for k in range(task.n)]
    vertices = [residual.combination({"x": math.cos(angle), "y": math.sin(angle)}) for angle in angles]
    head = Basis("head", ("x", "y"))
    value = residual.linear({axis: head[axis] for axis in ("x", "y")}, into=head)
    write = head.linear({axis: residual[axis] for axis in ("x", "y")}, into=residual)
    sink = math.log(task.n) + 5 if sink is None else sink
    return _two_heads(task, "two-head-narrow", residual, head, vertices, value, write, tied, sink, dtype, device)


def _two_heads(
    task: EspTask,
    variant: str,
    residual: Basis,
    space: Basis,
    vertices: list[Direction],
    value: Float[Tensor, "model d_head"],
    write: Float[Tensor, "d_head model"],
    tied: bool,
    sink: float | int,
    dtype: torch.dtype | str,
    device: str,
) -> Constructed:
    if not sink > 0:
        raise RequestError(f"the sink is {sink}: it must be a positive attention score, e.g. 8")
    first, second, query = residual["first"], residual["second"], residual["query"]
    match = space[space.axes[0]]
    tokens = [*vertices, second - first, first - second, ETA * query]
    positions = [residual.zero] * len(task.positions)
    positions[task.position("u")] = -second
    positions[task.position("v")] = -first
    if task.induction:
        for silent in ("mark 1", "mark 2", "break"):
            positions[task.position(silent)] = -3 * (first + second)
    asks = residual.linear({"query": match / ETA}, into=space)
    heads = [
        AssembledHead(asks, residual.linear({axis: sink * match}, into=space), value, write)
        for axis in ("first", "second")
    ]
    target, other = attention(sink, induction=task.induction)
    proper = any(u != v for u, v in task.graph.arcs)
    if variant == "two-head":
        margin = target - max(other, ETA**2 if tied else 0.0)
    else:
        x = math.sin(math.pi / task.n)
        margin = min(2 * x * (target * x - other), target - other - (ETA**2 if tied else 0.0))
    return assemble(
        task,
        variant,
        weights(residual, tokens, positions, vertices, heads, tied),
        tied=tied,
        dtype=dtype,
        device=device,
        options={"tied": tied, "sink": float(sink)},
        errors=0 if margin > 0 else None,
        margin=margin if margin > 0 else None,
        margin_is_exact=proper and variant == "two-head",
        notes={"sink": float(sink), "attention_on_target": target, "attention_on_other": other},
    )


def attention(sink: float | int, *, induction: bool = False) -> tuple[float, float]:
    """Both heads' summed attention on the target and on the other endpoint in the two-head constructions."""
    weak = math.exp(-sink)
    silent = weak**2 + weak**3 + weak**4 if induction else 0.0
    resting, sunk = 2 + 2 * weak + silent, math.exp(sink) + 2 + weak + silent
    return 1 / resting + weak / sunk, weak / resting + 1 / sunk
