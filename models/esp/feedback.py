"""The minimum feedback arc set of a directed multigraph: exact, or a lower and an upper bound that say so.

An order of the vertices gives up the arcs that point backwards in it; the fewest that any order gives up is |MFAS|, and
|MFAS|/(2m) is the least error of a one-head model.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import networkx as nx

from headlab.interp.errors import RequestError
from headlab.models.esp import feedback_worker
from headlab.models.esp.feedback_bounds import cycle_bound, good_order, subset_order
from headlab.models.esp.graphs import Digraph, read_graph

SMALL = 12
LARGE = 120

Arc = tuple[int, int]


@dataclass(frozen=True)
class FeedbackArcSet:
    """What the best order found gives up, and what no order can save.

    order: the vertices, first to last. arcs: those that point backwards in it, parallel arcs repeated, self-loops
    never. lower: no order gives up fewer; upper = len(arcs).
    """

    order: tuple[int, ...]
    arcs: tuple[Arc, ...]
    lower: int

    @property
    def upper(self) -> int:
        """The number of arcs that `order` gives up, with multiplicity."""
        return len(self.arcs)

    @property
    def exact(self) -> bool:
        """Whether `upper` is the minimum."""
        return self.lower == self.upper

    def __str__(self) -> str:
        return f"{self.upper} (exact)" if self.exact else f"between {self.lower} and {self.upper}"


def minimum_feedback_arc_set(graph: Digraph | nx.Graph | str, *, time_limit: float | int = 60.0) -> FeedbackArcSet:
    """The minimum feedback arc set of a graph, within about `time_limit` seconds.

    Of two opposite arcs every order gives up one, so their common multiplicity is counted and taken out; complete
    digraphs end here, with n(n-1)/2. What is left falls into strongly connected components, which no order links. One
    of up to 12 vertices is solved over subsets of its vertices. In a larger one local search bounds from above and a
    linear program over cycles from below; where they do not meet, igraph's two exact integer programs (Baharev et al.
    2021) race, each in a process that is killed at the time limit or when the other is done.

    ValueError for a time limit that is not positive and for graphs that `read_graph` refuses.
    """
    if not time_limit > 0:
        raise RequestError(f"the time limit is {time_limit} s: it must be positive")
    graph = read_graph(graph)
    weights = graph.constraints()
    deadline = time.monotonic() + time_limit
    left = {(u, v): weight - weights[v, u] for (u, v), weight in weights.items() if weight > weights[v, u]}
    lower = sum(min(weight, weights[v, u]) for (u, v), weight in weights.items() if u < v)
    kept = nx.DiGraph()
    kept.add_nodes_from(range(graph.n))
    kept.add_edges_from(left)
    components = [sorted(part) for part in nx.strongly_connected_components(kept) if len(part) > 1]
    for component in sorted(components, key=len):
        place = {vertex: k for k, vertex in enumerate(component)}
        inside = {(place[u], place[v]): w for (u, v), w in left.items() if u in place and v in place}
        order, bound = _component(len(component), inside, deadline)
        lower += bound
        rank = {vertex: k for k, vertex in enumerate(order)}
        kept.remove_edges_from((component[u], component[v]) for u, v in inside if rank[u] > rank[v])
    order = tuple(nx.lexicographical_topological_sort(kept))
    return FeedbackArcSet(order, given_up(graph, order), lower)


def given_up(graph: Digraph, order: Sequence[int]) -> tuple[Arc, ...]:
    """The arcs that point backwards in `order`, parallel arcs repeated; self-loops never.

    ValueError where `order` does not hold each vertex once.
    """
    if sorted(order) != list(range(graph.n)):
        raise RequestError(f"an order of '{graph.name}' must hold each of the {graph.n} vertices once")
    rank = {vertex: k for k, vertex in enumerate(order)}
    return tuple(arc for arc in graph.arcs if rank[arc[0]] > rank[arc[1]])


def _component(n: int, weights: Mapping[Arc, int], deadline: float) -> tuple[list[int], int]:
    """An order of one strongly connected component, and a lower bound on what any order gives up."""
    if n <= SMALL:
        order = subset_order(n, weights)
        return order, _cost(order, weights)
    order = good_order(n, weights, until=_share(deadline))
    cost, lower = _cost(order, weights), 0
    for lower in cycle_bound(n, weights, _share(deadline)):
        if lower == cost:
            return order, lower
    found = _race(n, weights, deadline)
    if found is None:
        return order, lower
    optimum = _cost(found, weights)
    return (order if cost == optimum else found), optimum


def _share(deadline: float) -> float:
    now = time.monotonic()
    return now + (deadline - now) / 4


def _cost(order: Sequence[int], weights: Mapping[Arc, int]) -> int:
    rank = {vertex: k for k, vertex in enumerate(order)}
    return sum(weight for (u, v), weight in weights.items() if rank[u] > rank[v])


def _race(n: int, weights: Mapping[Arc, int], deadline: float) -> list[int] | None:
    """An optimal order by igraph's exact variants in processes of their own; None where the deadline comes first."""
    arcs = list(weights)
    # The program with triangle inequalities has of the order of n^3 rows: beyond LARGE it only eats memory.
    methods = ("ip_ti", "ip_cg") if n <= LARGE else ("ip_cg",)
    request = {"n": n, "arcs": arcs, "weights": list(weights.values()), "limit": max(deadline - time.monotonic(), 0)}
    racers = []
    with ExitStack() as stack:
        for method in methods:
            question, answer = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            question.write(json.dumps({**request, "method": method}).encode())
            question.seek(0)
            command = [sys.executable, "-P", str(Path(feedback_worker.__file__))]
            process = subprocess.Popen(command, stdin=question, stdout=answer, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
            racers.append((process, answer))
        while time.monotonic() < deadline:
            states = [process.poll() for process, _ in racers]
            if 0 in states:
                answer = racers[states.index(0)][1]
                answer.seek(0)
                return _order_without(n, arcs, json.loads(answer.read()))
            if None not in states:
                return None
            time.sleep(0.01)
    return None


def _order_without(n: int, arcs: Sequence[Arc], removed: Sequence[int]) -> list[int]:
    kept = nx.DiGraph()
    kept.add_nodes_from(range(n))
    kept.add_edges_from(arcs)
    kept.remove_edges_from([arcs[k] for k in removed])
    return list(nx.lexicographical_topological_sort(kept))
