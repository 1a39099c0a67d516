"""Bounds on a minimum feedback arc set: exact for few vertices, good orders, disjoint cycles, programs over cycles.

Problems here are weights of arcs between vertices 0..n-1: {(tail, head): positive integer}, without self-loops.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import igraph
import networkx as nx
import numpy as np
from jaxtyping import Int
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

Arc = tuple[int, int]
SLACK = 1e-6
# Beyond these a program takes minutes, measured on random graphs and tournaments.
MOST_TRIANGLES, MOST_ARCS = 20_000, 5_000  # of a linear program
SPARSE = 320  # arcs of an integer program over cycles
DENSE = 25  # vertices of an integer program over orders


def weight_matrix(n: int, weights: Mapping[Arc, int]) -> Int[np.ndarray, "tail head"]:
    matrix = np.zeros((n, n), dtype=np.int64)
    for arc, weight in weights.items():
        matrix[arc] = weight
    return matrix


def subset_order(n: int, weights: Mapping[Arc, int]) -> list[int]:
    """An order that gives up least, by dynamic programming over the 2^n sets that can come first."""
    matrix = weight_matrix(n, weights)
    # back[v][S]: what v gives up where exactly the set S stands before it.
    back = np.zeros((n, 1 << n), dtype=np.int64)
    for bit in range(n):
        back[:, 1 << bit : 2 << bit] = back[:, : 1 << bit] + matrix[:, bit, None]
    sets = np.arange(1 << n)
    size = np.array([int(subset).bit_count() for subset in sets])
    best = np.zeros(1 << n, dtype=np.int64)
    last = np.zeros(1 << n, dtype=np.int64)
    for count in range(1, n + 1):
        level = sets[size == count]
        costs = np.full((n, len(level)), np.iinfo(np.int64).max)
        for v in range(n):
            has = (level >> v) & 1 == 1
            before = level[has] ^ (1 << v)
            costs[v, has] = best[before] + back[v, before]
        last[level] = costs.argmin(axis=0)
        best[level] = costs.min(axis=0)
    order, subset = [], (1 << n) - 1
    while subset:
        order.append(int(last[subset]))
        subset ^= 1 << order[-1]
    return order[::-1]


def good_order(n: int, weights: Mapping[Arc, int], *, restarts: int = 20, seed: int = 0) -> list[int]:
    """A locally best order: no vertex can move elsewhere and save an arc.

    Starts from Eades, Lin and Smyth's order (igraph), then from seeded disturbances of the best order so far.

    Args:
        n: vertices.
        weights: arc -> its weight.
        restarts: disturbances tried.
        seed: of the disturbances.
    """
    matrix = weight_matrix(n, weights)
    arcs = list(weights)
    graph = igraph.Graph(n=n, edges=arcs, directed=True)
    removed = set(graph.feedback_arc_set(weights=[weights[arc] for arc in arcs], method="eades"))
    rest = nx.DiGraph([arc for k, arc in enumerate(arcs) if k not in removed])
    rest.add_nodes_from(range(n))
    best = _sift(list(nx.lexicographical_topological_sort(rest)), matrix)
    cost = _backward(best, matrix)
    generator = np.random.default_rng(seed)
    for _ in range(restarts):
        order = list(best)
        for vertex in generator.choice(n, size=max(2, n // 5), replace=False).tolist():
            order.remove(vertex)
            order.insert(int(generator.integers(n)), vertex)
        order = _sift(order, matrix)
        if (given_up := _backward(order, matrix)) < cost:
            best, cost = order, given_up
    return best


def _sift(start: Sequence[int], matrix: Int[np.ndarray, "tail head"]) -> list[int]:
    """Move single vertices to their best places until no move gains."""
    order, gained = np.array(start), True
    while gained:
        gained = False
        for vertex in range(len(order)):
            place = int(np.flatnonzero(order == vertex)[0])
            rest = np.delete(order, place)
            # cost at place k: arcs from the vertex back to rest[:k], and from rest[k:] back to the vertex.
            costs = np.concatenate([[0], np.cumsum(matrix[vertex, rest] - matrix[rest, vertex])])
            target = int(costs.argmin())
            if costs[target] < costs[place]:
                order, gained = np.insert(rest, target, vertex), True
    return order.tolist()


def _backward(order: Sequence[int], matrix: Int[np.ndarray, "tail head"]) -> int:
    return int(np.tril(matrix[np.ix_(order, order)], -1).sum())


def packing_bound(n: int, weights: Mapping[Arc, int]) -> int:
    """A lower bound on what any order gives up: the weight of cycles of two and three arcs, packed greedily.

    Every order gives up an arc of every cycle, and cycles that share no unit of weight have no such arc in common.
    """
    left = weight_matrix(n, weights)
    shared = np.minimum(left, left.T)
    packed = int(shared.sum()) // 2
    left -= shared
    for tail, head in np.argwhere(left).tolist():
        for third in np.flatnonzero((left[head] > 0) & (left[:, tail] > 0)).tolist():
            weight = min(left[tail, head], left[head, third], left[third, tail])
            left[tail, head] -= weight
            left[head, third] -= weight
            left[third, tail] -= weight
            packed += int(weight)
            if not left[tail, head]:
                break
    return packed


def cycle_program(n: int, weights: Mapping[Arc, int], *, nodes: int) -> tuple[list[int] | None, int]:
    """An optimal order by programs over cycles, and a lower bound on what any order gives up.

    min sum w_a x_a, every known cycle holds x_a of 1 or more in sum. With real x in [0, 1] this is a bound (one linear
    program); with binary x it is one too, and where the arcs that a solution leaves have no cycle the solution is
    optimal; else a shortest cycle through each of them is added. Components of more triangles than arcs are dense: the
    linear program leaves a gap that branching does not close, and up to DENSE vertices igraph's program over orders,
    which is written in triangles, is exact instead.

    Args:
        n: vertices.
        weights: arc -> its weight.
        nodes: of the solver's trees, all programs together, and the most programs. Where they do not suffice the order
            is None. They are counted, and the clock is not read: the same graph has the same bounds on any machine.
    """
    arcs = list(weights)
    number = {arc: k for k, arc in enumerate(arcs)}
    triangles = _triangles(weights, number)
    if len(triangles) > MOST_TRIANGLES or len(arcs) > MOST_ARCS:
        return None, 0
    cycles = dict.fromkeys([*triangles, *_order_or_cycles(n, arcs, number)[1]])
    cost = np.array([weights[arc] for arc in arcs], dtype=float)
    relaxed = _solve(cost, cycles, binary=False)
    lower = math.ceil(relaxed.fun - SLACK * max(1.0, relaxed.fun)) if relaxed.status == 0 else 0
    if len(triangles) > len(arcs) and n <= DENSE and nodes > 0:
        graph = igraph.Graph(n=n, edges=arcs, directed=True)
        removed = set(graph.feedback_arc_set(weights=cost.tolist(), method="ip_ti"))
        order, _ = _order_or_cycles(n, [arc for arc in arcs if number[arc] not in removed], number)
        return order, int(cost[sorted(removed)].sum())
    if len(triangles) > len(arcs) or len(arcs) > SPARSE:
        return None, lower
    while nodes > 0:
        solution = _solve(cost, cycles, binary=True, nodes=nodes)
        if solution.mip_dual_bound is not None and np.isfinite(solution.mip_dual_bound):
            lower = max(lower, math.ceil(solution.mip_dual_bound - SLACK))
        nodes -= max(1, solution.mip_node_count or 0)
        if solution.status != 0:
            break
        removed = set(np.flatnonzero(solution.x > 0.5).tolist())
        order, new = _order_or_cycles(n, [arc for arc in arcs if number[arc] not in removed], number)
        if order is not None:
            return order, lower
        cycles.update(dict.fromkeys(new))
    return None, lower


def _solve(cost: np.ndarray, cycles: Mapping[frozenset[int], None], *, binary: bool, nodes: int = 1) -> Any:
    rows = [k for k, cycle in enumerate(cycles) for _ in cycle]
    columns = [arc for cycle in cycles for arc in sorted(cycle)]
    matrix = csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(cycles), len(cost)))
    return milp(
        cost,
        integrality=np.full(len(cost), int(binary)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, 1, np.inf),
        options={"node_limit": nodes, "mip_rel_gap": 0.0},
    )


def _triangles(weights: Mapping[Arc, int], number: Mapping[Arc, int]) -> list[frozenset[int]]:
    """The cycles of three arcs: with all of them from the start the first program is nearly as tight as the last."""
    heads: dict[int, list[int]] = {}
    for tail, head in weights:
        heads.setdefault(tail, []).append(head)
    return [
        frozenset([number[u, v], number[v, w], number[w, u]])
        for u, v in weights
        for w in heads.get(v, ())
        if u < v and u < w and (w, u) in number
    ]


def _order_or_cycles(
    n: int, arcs: Sequence[Arc], number: Mapping[Arc, int]
) -> tuple[list[int] | None, list[frozenset[int]]]:
    """The order that the arcs allow; where they have cycles, a shortest one through each arc of a component."""
    graph = igraph.Graph(n=n, edges=arcs, directed=True)
    if graph.is_dag():
        return graph.topological_sorting(), []
    part = graph.connected_components(mode="strong").membership
    cycles = []
    for tail, head in arcs:
        if part[tail] == part[head]:
            path = graph.get_shortest_path(head, tail)
            cycles.append(frozenset([number[tail, head], *(number[step] for step in pairwise(path))]))
    return None, cycles
