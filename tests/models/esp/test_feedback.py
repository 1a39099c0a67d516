"""Minimum feedback arc sets: equal to a subset recursion, to closed forms and to igraph's own solvers."""

import json
import subprocess
import sys
from collections import Counter
from functools import cache
from math import comb

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headlab.models.esp import feedback as rooms
from headlab.models.esp import feedback_worker
from headlab.models.esp.feedback import given_up, minimum_feedback_arc_set
from headlab.models.esp.feedback_worker import solve
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
        arcs = [list(arc) for arc in graph.arcs]
        for method in ("ip_ti", "ip_cg"):
            assert len(solve(graph.n, arcs, [1] * len(arcs), method)) == expected


def test_large_components_take_the_other_road_to_the_same_answer(monkeypatch):
    monkeypatch.setattr(rooms, "SMALL", 2)
    for number in range(300, 330):
        graph = drawn(number)
        check(graph, recursion(graph))


def test_the_race_between_processes_is_exact(monkeypatch):
    monkeypatch.setattr(rooms, "SMALL", 2)
    monkeypatch.setattr(rooms, "cycle_bound", lambda *_: iter(()))
    graph = read_graph("random:9:0.5:3")
    check(graph, recursion(graph))


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


def test_where_time_is_over_both_bounds_are_honest():
    graph = read_graph("tournament:40:390:1")
    found = minimum_feedback_arc_set(graph, time_limit=0.5)
    assert 0 < found.lower < found.upper < graph.m / 2
    assert not found.exact
    assert str(found) == f"between {found.lower} and {found.upper}"
    assert len(given_up(graph, found.order)) == found.upper


def test_no_process_is_left_behind(monkeypatch):
    started = []
    start = subprocess.Popen

    def remember(*arguments, **options):
        started.append(start(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", remember)
    minimum_feedback_arc_set(read_graph("tournament:40:390:2"), time_limit=0.4)
    assert len(started) == 2
    assert all(process.returncode is not None for process in started)

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(rooms.time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        minimum_feedback_arc_set(read_graph("tournament:40:390:2"))
    assert len(started) == 4
    assert all(process.returncode is not None for process in started)


def test_solvers_that_fail_leave_the_bounds(monkeypatch):
    monkeypatch.setattr(feedback_worker, "__file__", "/nonexistent/worker.py")
    found = minimum_feedback_arc_set(read_graph("tournament:25:150:1"))
    assert found.lower == 87
    assert found.upper >= 92


def test_the_worker_is_a_program():
    request = {"n": 2, "arcs": [[0, 1], [1, 0]], "weights": [5, 3], "method": "ip_cg", "limit": 9.5}
    command = [sys.executable, "-P", feedback_worker.__file__]
    answer = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout) == [1]


def test_bad_requests():
    graph = read_graph("cycle:3")
    with pytest.raises(ValueError, match="time limit is 0 s"):
        minimum_feedback_arc_set(graph, time_limit=0)
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
