"""Minimum feedback arc sets: equal to a subset recursion, to closed forms and to igraph's own solvers."""

from collections import Counter
from functools import cache
from math import comb

import igraph
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headlab.models.esp import feedback, feedback_bounds
from headlab.models.esp.feedback import given_up, minimum_feedback_arc_set
from headlab.models.esp.graphs import Digraph, read_graph


def recursion(graph: Digraph) -> int:
    """The minimum over all orders, vertex by vertex: an independent few lines."""
    weights = graph.constraints()

    @cache
    def least(left: frozenset[int]) -> int:
        if not left:
            return 0
        return min(least(left - {last}) + sum(weights[last, w] for w in left - {last}) for last in left)

    return least(frozenset(range(graph.n)))


def drawn(number: int, largest: int = 10) -> Digraph:
    """A random multigraph with parallel arcs and loops."""
    generator = np.random.default_rng(number)
    n = int(generator.integers(2, largest + 1))
    m = int(generator.integers(1, 3 * n))
    arcs = tuple((int(u), int(v)) for u, v in generator.integers(0, n, (m, 2)))
    return Digraph(f"drawn {number}", tuple(f"v{k}" for k in range(n)), arcs)


def check(graph: Digraph, expected: int) -> None:
    found = minimum_feedback_arc_set(graph)
    assert (found.lower, found.upper, found.exact) == (expected, expected, True)
    assert sorted(found.order) == list(range(graph.n))
    rank = {vertex: place for place, vertex in enumerate(found.order)}
    assert Counter(found.arcs) == Counter(arc for arc in graph.arcs if rank[arc[0]] > rank[arc[1]])
    assert str(found) == f"{expected} (exact)"


def test_200_multigraphs_against_the_recursion():
    for number in range(200):
        graph = drawn(number, largest=8)
        check(graph, recursion(graph))


def test_ten_vertices_against_the_recursion_and_both_exact_variants():
    for number in range(200, 212):
        graph = read_graph(f"random:10:0.4:{number}")
        expected = recursion(graph)
        check(graph, expected)
        theirs = igraph.Graph(n=graph.n, edges=graph.arcs, directed=True)
        for method in ("ip_ti", "ip_cg"):
            assert len(theirs.feedback_arc_set(method=method)) == expected


def test_large_components_take_the_other_road_to_the_same_answer(monkeypatch):
    monkeypatch.setattr(feedback, "SMALL", 2)
    for number in range(300, 330):
        graph = drawn(number)
        check(graph, recursion(graph))


def test_every_program_is_exact_where_local_search_and_packing_do_not_help(monkeypatch):
    monkeypatch.setattr(feedback, "SMALL", 2)
    monkeypatch.setattr(feedback, "good_order", lambda n, weights, restarts: list(range(n)))
    monkeypatch.setattr(feedback, "packing_bound", lambda n, weights: 0)
    for number in range(12):
        for graph in (read_graph(f"random:9:0.5:{number}"), drawn(400 + number)):
            check(graph, recursion(graph))
    monkeypatch.setattr(feedback_bounds, "DENSE", 0)
    for number in range(6):
        graph = read_graph(f"random:9:0.5:{number}")
        found = minimum_feedback_arc_set(graph)
        assert found.lower <= recursion(graph) <= found.upper


@pytest.mark.parametrize("spec", ["random:30:0.08:1", "random:40:0.06:2", "random:24:0.1:3", "tournament:16:60:4"])
def test_larger_graphs_against_igraph(spec):
    graph = read_graph(spec)
    theirs = igraph.Graph(n=graph.n, edges=graph.arcs, directed=True)
    check(graph, len(theirs.feedback_arc_set(method="ip_ti" if graph.n < 20 else "ip_cg")))


@pytest.mark.parametrize("n", range(2, 21))
def test_complete_digraphs(n):
    check(read_graph(f"complete:{n}"), comb(n, 2))


def test_dags_cycles_and_disjoint_unions():
    check(read_graph("tournament:30"), 0)
    check(read_graph("cycle:40"), 1)
    graph = nx.disjoint_union_all([nx.cycle_graph(k, create_using=nx.MultiDiGraph) for k in (3, 4, 5)])
    check(read_graph(graph), 3)
    graph.add_edges_from([(0, 0), (0, 0), (7, 7)])
    check(read_graph(graph), 3)


def test_multiplicity_counts():
    check(read_graph(nx.MultiDiGraph([(0, 1)] * 5 + [(1, 0)] * 3)), 3)
    check(read_graph(nx.MultiDiGraph([(0, 1)] * 4 + [(1, 2)] * 2 + [(2, 0)] * 3)), 2)


@pytest.mark.parametrize(("name", "size"), [("click", 9), ("httpx", 6), ("jinja2", 15), ("rich", 43)])
def test_the_real_graphs(name, size):
    check(read_graph(name), size)


def test_where_no_program_decides_both_bounds_are_honest_and_the_same_each_time():
    graph = read_graph("tournament:30:200:1")
    found = minimum_feedback_arc_set(graph)
    assert graph.m / 5 < found.lower < found.upper < graph.m / 2
    assert not found.exact
    assert str(found) == f"between {found.lower} and {found.upper}"
    assert len(given_up(graph, found.order)) == found.upper
    assert found == minimum_feedback_arc_set(graph)


def test_without_nodes_there_are_bounds_alone():
    graph = read_graph("rich")
    found = minimum_feedback_arc_set(graph, nodes=0)
    assert 30 <= found.lower <= 43 <= found.upper <= 45


def test_a_large_tournament_has_a_large_bound():
    coin = np.random.default_rng(0).random((120, 120)) < 0.5
    arcs = tuple((u, v) if coin[u, v] else (v, u) for u in range(120) for v in range(u))
    found = minimum_feedback_arc_set(Digraph("coins", tuple(map(str, range(120))), arcs))
    # Every order of a random tournament gives up nearly half of its arcs; cycles of three arcs prove most of a third.
    assert 0.25 * len(arcs) < found.lower <= len(arcs) / 3
    assert found.upper < 0.45 * len(arcs)


def test_bad_requests():
    graph = read_graph("cycle:3")
    with pytest.raises(ValueError, match="given -1 nodes"):
        minimum_feedback_arc_set(graph, nodes=-1)
    with pytest.raises(ValueError, match="each of the 3 vertices once"):
        given_up(graph, [0, 1, 1])
    with pytest.raises(ValueError, match="undirected"):
        minimum_feedback_arc_set(nx.path_graph(3))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.randoms(use_true_random=False))
def test_no_order_gives_up_fewer_and_names_do_not_matter(number, random):
    graph = drawn(number)
    found = minimum_feedback_arc_set(graph)
    order = list(range(graph.n))
    random.shuffle(order)
    assert len(given_up(graph, order)) >= found.lower
    renamed = Digraph("renamed", graph.labels, tuple((order[u], order[v]) for u, v in graph.arcs))
    assert minimum_feedback_arc_set(renamed).upper == found.upper
    reversed_arcs = Digraph("reversed", graph.labels, tuple((v, u) for u, v in graph.arcs))
    assert minimum_feedback_arc_set(reversed_arcs).upper == found.upper
