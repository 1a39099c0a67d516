"""Bounds around a minimum feedback arc set: exact over subsets, orders from above, cycles from below."""

import math
import time
from itertools import permutations

import numpy as np

from headlab.models.esp.feedback_bounds import cycle_bound, good_order, subset_order


def cost(order, weights):
    rank = {vertex: place for place, vertex in enumerate(order)}
    return sum(weight for (u, v), weight in weights.items() if rank[u] > rank[v])


def drawn(number, n, share):
    generator = np.random.default_rng(number)
    chosen = generator.random((n, n)) < share
    return {(u, v): int(generator.integers(1, 4)) for u in range(n) for v in range(n) if u != v and chosen[u, v]}


def test_bounds_enclose_the_best_of_all_orders():
    met = 0
    for number in range(40):
        weights = drawn(number, 6, 0.5)
        best = min(cost(order, weights) for order in permutations(range(6)))
        assert cost(subset_order(6, weights), weights) == best
        assert cost(good_order(6, weights), weights) >= best
        lower = list(cycle_bound(6, weights, math.inf))
        assert lower == sorted(lower)
        assert lower[-1] <= best
        met += lower[-1] == best
    assert met >= 30


def test_local_search_finds_the_optimum_of_most_small_graphs():
    found = sum(
        cost(good_order(9, weights), weights) == cost(subset_order(9, weights), weights)
        for weights in (drawn(number, 9, 0.5) for number in range(30))
    )
    assert found >= 25


def test_good_orders_are_the_same_each_time_and_move_no_global_generator():
    weights = drawn(0, 20, 0.4)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    assert good_order(20, weights) == good_order(20, weights)
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


def test_time_that_is_over_still_gives_an_order_and_a_true_bound():
    weights = drawn(1, 30, 0.3)
    assert sorted(good_order(30, weights, until=-math.inf)) == list(range(30))
    bounds = list(cycle_bound(30, weights, time.monotonic()))
    assert bounds[-1] <= cost(good_order(30, weights), weights)


def test_graphs_without_cycles_have_bound_0():
    weights = {(u, v): 2 for u in range(8) for v in range(u + 1, 8)}
    assert list(cycle_bound(8, weights, math.inf)) == [0]
    assert cost(good_order(8, weights), weights) == 0
    assert cost(subset_order(8, weights), weights) == 0
