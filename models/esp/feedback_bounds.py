"""Bounds on a minimum feedback arc set: exact for few vertices, good orders, and a linear program over cycles.

Problems here are weights of arcs between vertices 0..n-1: {(tail, head): positive integer}, without self-loops.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterator, Mapping, Sequence

import igraph
import networkx as nx
import numpy as np
from jaxtyping import Int
from scipy.optimize import linprog
from scipy.sparse import csr_array

Arc = tuple[int, int]
SLACK = 1e-6


def _matrix(n: int, weights: Mapping[Arc, int]) -> Int[np.ndarray, "tail head"]:
    matrix = np.zeros((n, n), dtype=np.int64)
    for arc, weight in weights.items():
        matrix[arc] = weight
    return matrix


def subset_order(n: int, weights: Mapping[Arc, int]) -> list[int]:
    """An order that gives up least, by dynamic programming over the 2^n sets that can come first."""
    matrix = _matrix(n, weights)
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


def good_order(
    n: int, weights: Mapping[Arc, int], *, until: float = math.inf, restarts: int = 20, seed: int = 0
) -> list[int]:
    """A locally best order: no vertex can move elsewhere and save an arc.

    Starts from Eades, Lin and Smyth's order (igraph), then from seeded disturbances of the best order so far. Ends at
    the time `until` (of time.monotonic) at the latest, and is then only good.
    """
    matrix = _matrix(n, weights)
    arcs = list(weights)
    graph = igraph.Graph(n=n, edges=arcs, directed=True)
    removed = set(graph.feedback_arc_set(weights=[weights[arc] for arc in arcs], method="eades"))
    kept = nx.DiGraph([arc for k, arc in enumerate(arcs) if k not in removed])
    kept.add_nodes_from(range(n))
    best = _sift(list(nx.lexicographical_topological_sort(kept)), matrix, until)
    cost = _backward(best, matrix)
    generator = np.random.default_rng(seed)
    for _ in range(restarts):
        if time.monotonic() > until:
            break
        order = list(best)
        for vertex in generator.choice(n, size=max(2, n // 5), replace=False).tolist():
            order.remove(vertex)
            order.insert(int(generator.integers(n)), vertex)
        order = _sift(order, matrix, until)
        if (found := _backward(order, matrix)) < cost:
            best, cost = order, found
    return best


def _sift(order: list[int], matrix: Int[np.ndarray, "tail head"], until: float) -> list[int]:
    """Move single vertices to their best places until no move gains."""
    gained = True
    while gained and time.monotonic() < until:
        gained = False
        for vertex in sorted(order):
            place = order.index(vertex)
            rest = order[:place] + order[place + 1 :]
            # cost at place k: arcs from the vertex back to rest[:k], and from rest[k:] back to the vertex.
            step = matrix[vertex, rest] - matrix[rest, vertex]
            costs = np.concatenate([[0], np.cumsum(step)])
            target = int(costs.argmin())
            if costs[target] < costs[place]:
                order = [*rest[:target], vertex, *rest[target:]]
                gained = True
    return order


def _backward(order: Sequence[int], matrix: Int[np.ndarray, "tail head"]) -> int:
    return int(np.tril(matrix[np.ix_(order, order)], -1).sum())


def cycle_bound(n: int, weights: Mapping[Arc, int], deadline: float) -> Iterator[int]:
    """Ever better lower bounds on what any order gives up, until the linear program is solved or time is over.

    min sum w_a x_a, x >= 0, each known cycle holds at least 1 of x; new cycles are the shortest ones that a solution
    leaves below 1. What is yielded comes from the dual solution, scaled so that it is feasible for certain: weights on
    cycles of which no arc carries more than its own.
    """
    arcs = list(weights)
    number = {arc: k for k, arc in enumerate(arcs)}
    cost = np.array([weights[arc] for arc in arcs], dtype=float)
    heads: list[list[int]] = [[] for _ in range(n)]
    for tail, head in arcs:
        heads[tail].append(head)
    known: dict[frozenset[int], None] = {}
    values = np.zeros(len(arcs))
    lower = 0
    yield lower
    while time.monotonic() < deadline:
        touched: set[int] = set()
        for arc in arcs:
            if number[arc] in touched:
                continue
            cycle = _light_cycle(arc, heads, number, values)
            if cycle is not None and cycle not in known:
                known[cycle] = None
                touched |= cycle
            if time.monotonic() > deadline:
                break
        if not touched:
            return
        rows = [k for k, cycle in enumerate(known) for _ in cycle]
        columns = [arc for cycle in known for arc in sorted(cycle)]
        matrix = csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(known), len(arcs)))
        left = max(deadline - time.monotonic(), 1.0)
        solved = linprog(cost, A_ub=-matrix, b_ub=-np.ones(len(known)), method="highs", options={"time_limit": left})
        if solved.status != 0:
            return
        values = np.clip(solved.x, 0.0, None)
        dual = np.clip(-solved.ineqlin.marginals, 0.0, None)
        overload = float(((matrix.T @ dual) / cost).max())
        lower = max(lower, math.ceil(float(dual.sum()) / max(1.0, overload) - SLACK))
        yield lower


def _light_cycle(
    arc: Arc, heads: list[list[int]], number: Mapping[Arc, int], values: np.ndarray
) -> frozenset[int] | None:
    """The arcs of a lightest cycle through `arc`, where its `values` add up to less than 1."""
    start, goal = arc[1], arc[0]
    limit = 1.0 - SLACK - values[number[arc]]
    # A little length per arc prefers short cycles among equally light ones.
    length = 1e-9
    best = {start: 0.0}
    queue: list[tuple[float, int]] = [(0.0, start)]
    before: dict[int, int] = {}
    while queue:
        distance, vertex = heapq.heappop(queue)
        if distance > best[vertex]:
            continue
        if vertex == goal:
            cycle = [number[arc]]
            while vertex != start:
                cycle.append(number[before[vertex], vertex])
                vertex = before[vertex]
            return frozenset(cycle)
        for head in heads[vertex]:
            there = distance + float(values[number[vertex, head]]) + length
            if there < limit and there < best.get(head, math.inf):
                best[head] = there
                before[head] = vertex
                heapq.heappush(queue, (there, head))
    return None
