"""One head selects endpoints by holding an order of the vertices: right on DAGs, least wrong on any other graph."""

from __future__ import annotations

import math

import networkx as nx
import torch

from headlab.interp.errors import RequestError
from headlab.models.basis import Basis
from headlab.models.constructed import Constructed
from headlab.models.esp.assembly import AssembledHead, assemble, weights
from headlab.models.esp.feedback import FeedbackArcSet, given_up, minimum_feedback_arc_set
from headlab.models.esp.task import EspTask


def one_head_dag(
    task: EspTask, *, tied: bool = False, dtype: torch.dtype | str = torch.float32, device: str = "cpu"
) -> Constructed:
    """One head, width n + 1 (n would do), graphs without a directed cycle: no error. Self-loops are allowed.

    r: a topological rank; s(v) = c((n-1)/2 - r(v))/n, c = 1 untied and 1/sqrt(n) tied. Attention is uniform and
    copies values. Proof sketch. The selector '1' embeds as sum_v s(v) e_v, '2' as its negative, '#' as 0. So 4 times
    the logit of t is [t = u] + [t = v] + s(t) under '1' and [t = u] + [t = v] - s(t) under '2'. On an arc r(u) < r(v),
    hence s(u) > s(v) by at least c/n: '1' prefers u, '2' prefers v. Another vertex w lacks the 1, and |s(t) - s(w)| is
    at most c(n-1)/n, so it stays 1 - c(n-1)/n >= c/n below. The margin is c/(4n) at least, and equal to it where an
    arc joins neighbouring ranks. Tied, '1' and '2' get at most half of the target's logit.

    Measured untied: float32 holds 1000 vertices and more, float16 512, bfloat16 96; tied needs float32. Raises
    ValueError for a graph with a cycle, naming the one found, and for the induction form.
    """
    _refuse_induction(task, "one-head-dag")
    cycle = task.graph.cycle()
    if cycle is not None:
        raise RequestError(
            f"one-head-dag needs a graph without directed cycles, and '{task.graph.name}' has the cycle "
            f"{task.graph.show_cycle(cycle)}: take one-head, two-head or two-head-narrow"
        )
    order, rank, c = _ranks(task, None, tied)
    n = task.n
    residual, head, copies = _copying_head(n, "spare")
    vertices = [residual[k] for k in range(n)]
    slope = residual.combination({v: c * ((n - 1) / 2 - rank[v]) / n for v in range(n)})
    tokens = [*vertices, slope, -slope, residual.zero]
    still = residual.linear({}, into=head)
    heads = [AssembledHead(still, still, *copies)]
    return assemble(
        task,
        "one-head-dag",
        weights(residual, tokens, [residual.zero] * 4, vertices, heads, tied),
        tied=tied,
        dtype=dtype,
        device=device,
        options={"tied": tied},
        errors=0,
        margin=c / (4 * n),
        margin_is_exact=any(rank[v] - rank[u] == 1 for u, v in task.graph.arcs),
        notes={"order": order},
    )


def one_head(
    task: EspTask,
    *,
    tied: bool = False,
    feedback: FeedbackArcSet | None = None,
    dtype: torch.dtype | str = torch.float32,
    device: str = "cpu",
) -> Constructed:
    """One head, width n + 1, any graph: as many errors as a minimum feedback arc set has arcs, the fewest possible.

    r: the rank in an order that gives up the fewest arcs (`feedback`, computed where it is None; where that is only an
    upper bound, errors equal the bound). c = 1 untied, 1/sqrt(n) tied; b = c/n, D = b/2. With the slopes of
    `one_head_dag` a backward arc would lose both of its samples, so the selectors are not treated alike. Proof sketch.
    '#' scores 0 everything but u, whose position scores ln(1 + D), and itself, which scores -eta; Z = 3 + D + e^-eta.
    The selector '1' embeds as 0, '2' as b sum_v (r(v) - (n-1)/2) e_v. Z times the logit of t is
    (1 + D)[t = u] + [t = v], under '2' plus b(r(t) - (n-1)/2). Under '1' u leads v by D: always right. Under '2' v
    leads u by b(r(v) - r(u)) - D: at least D on a forward arc, at most -3D on a backward one. Another vertex w lacks
    the 1 and gains at most b(n-1) <= 1 - 1/n of it back, and 1/n >= 2D. So the margin of the right samples is D/Z,
    1/(2nZ) untied, and each arc that the order gives up costs its '2' sample. Tied, '1', '2' and '#' get less than
    half of the target's logit.

    Raises ValueError for a feedback arc set of another graph, and for the induction form.
    """
    _refuse_induction(task, "one-head")
    feedback = minimum_feedback_arc_set(task.graph) if feedback is None else feedback
    if sorted(feedback.arcs) != sorted(given_up(task.graph, feedback.order)):
        raise RequestError(f"the feedback arc set given is not one of the graph '{task.graph.name}'")
    order, rank, c = _ranks(task, feedback, tied)
    n = task.n
    b, eta = c / n, 0.1 if tied else 1.0
    lead = b / 2
    residual, head, copies = _copying_head(n, "gate")
    vertices = [residual[k] for k in range(n)]
    slope = residual.combination({v: b * (rank[v] - (n - 1) / 2) for v in range(n)})
    tokens = [*vertices, residual.zero, slope, -eta * residual["gate"]]
    positions = [math.log(1 + lead) * residual["gate"], *[residual.zero] * 3]
    asks = residual.linear({"gate": -head[0] / eta}, into=head)
    answers = residual.linear({"gate": head[0]}, into=head)
    total = 3 + lead + math.exp(-eta)
    return assemble(
        task,
        "one-head",
        weights(residual, tokens, positions, vertices, [AssembledHead(asks, answers, *copies)], tied),
        tied=tied,
        dtype=dtype,
        device=device,
        options={"tied": tied},
        errors=feedback.upper,
        margin=lead / total,
        margin_is_exact=bool(task.graph.constraints()),
        notes={"order": order, "mfas": [feedback.lower, feedback.upper], "mfas_exact": feedback.exact, "Z": total},
    )


def _refuse_induction(task: EspTask, variant: str) -> None:
    if task.induction:
        raise RequestError(f"'{variant}' has no induction form: take two-head or two-head-narrow")


def _ranks(task: EspTask, feedback: FeedbackArcSet | None, tied: bool) -> tuple[list[int], dict[int, int], float]:
    """An order, the rank of each vertex in it, and the slopes' scale c."""
    if feedback is None:
        graph = nx.DiGraph(list(task.graph.constraints()))
        graph.add_nodes_from(range(task.n))
        order = list(nx.lexicographical_topological_sort(graph))
    else:
        order = list(feedback.order)
    return order, {vertex: k for k, vertex in enumerate(order)}, 1 / math.sqrt(task.n) if tied else 1.0


def _copying_head(n: int, spare: str):
    """A residual basis of the vertices and one spare axis, a head's basis, and the maps that copy vertices through."""
    residual, head = Basis("residual", (*range(n), spare)), Basis("head", tuple(range(n)))
    value = residual.linear({k: head[k] for k in range(n)}, into=head)
    write = head.linear({k: residual[k] for k in range(n)}, into=residual)
    return residual, head, (value, write)
