"""Bounds around a minimum feedback arc set: exact over subsets, orders from above, cycles from below."""

from itertools import permutations

import numpy as np

from headlab.models.esp.feedback_bounds import cycle_program, good_order, packing_bound, subset_order


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
        assert packing_bound(6, weights) <= best
        order, lower = cycle_program(6, weights, nodes=500)
        assert lower <= best
        assert order is None or cost(order, weights) == lower == best
        met += order is not None
        bound = cycle_program(6, weights, nodes=0)
        assert bound[0] is None
        assert bound[1] <= best
    assert met == 40


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


def test_packed_cycles_share_no_weight():
    # two triangles on the arc (0, 1) of weight 3, one of them twice: 1 + 2; and two opposite arcs of 2 and 5: 2
    weights = {(0, 1): 3, (1, 2): 1, (2, 0): 9, (1, 3): 2, (3, 0): 4, (4, 5): 2, (5, 4): 5}
    assert packing_bound(6, weights) == 5
    assert packing_bound(6, {**weights, (0, 1): 2}) == 4
    assert packing_bound(4, {(0, 1): 1, (1, 2): 1, (2, 3): 1, (3, 0): 1}) == 0  # longer cycles are not packed


def test_graphs_without_cycles_have_bound_0():
    weights = {(u, v): 2 for u in range(8) for v in range(u + 1, 8)}
    assert packing_bound(8, weights) == 0
    order, lower = cycle_program(8, weights, nodes=9)
    assert (cost(order, weights), lower) == (0, 0)
    assert cost(good_order(8, weights), weights) == 0
    assert cost(subset_order(8, weights), weights) == 0
