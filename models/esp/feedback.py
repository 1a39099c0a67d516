"""The minimum feedback arc set of a directed multigraph: exact, or a lower and an upper bound that say so.

An order of the vertices gives up the arcs that point backwards in it; the fewest that any order gives up is |MFAS|, and
|MFAS|/(2m) is the least error of a one-head model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from headlab.interp.errors import RequestError
from headlab.models.esp.feedback_bounds import cycle_program, good_order, packing_bound, subset_order
from headlab.models.esp.graphs import Digraph, read_graph

SMALL = 12  # vertices of a component that is solved over the subsets of its vertices
NODES = 500

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


def minimum_feedback_arc_set(graph: Digraph | nx.Graph | str, *, nodes: int = NODES) -> FeedbackArcSet:
    """The minimum feedback arc set of a graph, or bounds on it; the same on any machine.

    Of two opposite arcs every order gives up one, so their common multiplicity is counted and taken out; complete
    digraphs end here, with n(n-1)/2. What is left falls into strongly connected components, which no order links. One
    of up to 12 vertices is solved over subsets of its vertices. In a larger one local search bounds from above and a
    packing of disjoint cycles from below; where they do not meet, programs over cycles (Baharev et al. 2021) decide, or
    for components too large for that raise the bound from below.

    Args:
        graph: what `read_graph` takes.
        nodes: of the integer programs' search trees, for each component; 0 asks for the bounds alone.

    Raises:
        RequestError: for fewer than 0 nodes and for graphs that `read_graph` refuses.
    """
    if nodes < 0:
        raise RequestError(f"the solver was given {nodes} nodes: 0 or more are needed")
    graph = read_graph(graph)
    weights = graph.constraints()
    left = {(u, v): weight - weights[v, u] for (u, v), weight in weights.items() if weight > weights[v, u]}
    lower = sum(min(weight, weights[v, u]) for (u, v), weight in weights.items() if u < v)
    forward = nx.DiGraph()
    forward.add_nodes_from(range(graph.n))
    forward.add_edges_from(left)
    components = [sorted(part) for part in nx.strongly_connected_components(forward) if len(part) > 1]
    for component in sorted(components, key=len):
        place = {vertex: k for k, vertex in enumerate(component)}
        inside = {(place[u], place[v]): w for (u, v), w in left.items() if u in place and v in place}
        order, bound = _component(len(component), inside, nodes)
        lower += bound
        rank = {vertex: k for k, vertex in enumerate(order)}
        forward.remove_edges_from((component[u], component[v]) for u, v in inside if rank[u] > rank[v])
    order = tuple(nx.lexicographical_topological_sort(forward))
    return FeedbackArcSet(order, given_up(graph, order), lower)


def given_up(graph: Digraph, order: Sequence[int]) -> tuple[Arc, ...]:
    """The arcs that point backwards in `order`, parallel arcs repeated; self-loops never.

    ValueError where `order` does not hold each vertex once.
    """
    if sorted(order) != list(range(graph.n)):
        raise RequestError(f"an order of '{graph.name}' must hold each of the {graph.n} vertices once")
    rank = {vertex: k for k, vertex in enumerate(order)}
    return tuple(arc for arc in graph.arcs if rank[arc[0]] > rank[arc[1]])


def _component(n: int, weights: Mapping[Arc, int], nodes: int) -> tuple[list[int], int]:
    """An order of one strongly connected component, and a lower bound on what any order gives up."""
    if n <= SMALL:
        order = subset_order(n, weights)
        return order, _cost(order, weights)
    order = good_order(n, weights, restarts=20 if n <= 100 else 2)
    cost, lower = _cost(order, weights), packing_bound(n, weights)
    if lower < cost:
        optimal, proven = cycle_program(n, weights, nodes=nodes)
        lower = max(lower, proven)
        if optimal is not None and _cost(optimal, weights) < cost:
            order = optimal
    return order, lower


def _cost(order: Sequence[int], weights: Mapping[Arc, int]) -> int:
    rank = {vertex: k for k, vertex in enumerate(order)}
    return sum(weight for (u, v), weight in weights.items() if rank[u] > rank[v])
