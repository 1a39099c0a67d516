"""Graphs from names, generators, networkx and files; each kind of bad input is one clear sentence."""

import json

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headlab.models.esp.graphs import Digraph, from_networkx, read_graph

HARD_LABELS = ("<bos>", "</script><b>", 'it\'s "quoted"', "x" * 200, "emoji 😀", "שלום", "#", "1", "a&b")


@pytest.mark.parametrize(
    ("name", "n", "m"), [("click", 12, 46), ("httpx", 11, 31), ("jinja2", 21, 89), ("rich", 53, 294)]
)
def test_bundled_graphs(name, n, m):
    graph = read_graph(name)
    assert (graph.name, graph.n, graph.m) == (name, n, m)
    assert all(label.startswith(name) for label in graph.labels)


def test_generators():
    assert read_graph("complete:8").m == 56
    tournament = read_graph("tournament:8")
    assert tournament.m == 28
    assert tournament.cycle() is None
    assert read_graph("tournament:8:3:1").cycle() is not None
    assert read_graph("cycle:5").cycle() == (0, 1, 2, 3, 4)
    drawn = read_graph("random:10:0.3:7")
    assert drawn == read_graph("random:10:0.3:7")
    assert drawn != read_graph("random:10:0.3:8")
    assert 10 < drawn.m < 50
    assert read_graph("complete:3").labels == ("v0", "v1", "v2")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("complete", "write complete:N"),
        ("complete:many", "write complete:N"),
        ("complete:8:2", "write complete:N"),
        ("complete:1", "asks for 1 vertices"),
        ("complete:-3", "asks for -3 vertices"),
        ("complete:99999", r"99999 vertices and up to 9999700002 arcs: .* about 1.05e\+04 GB, .* the limit is 2 GB"),
        ("cycle:30000000", r"about 4.32e\+07 GB"),
        ("tournament:7000", "the limit is 2 GB, which --memory raises"),
        ("random:7000:0.001", "about 2.4 GB"),
        ("cycle:0", "asks for 0 vertices"),
        ("random:10", "write random:N:P"),
        ("random:10:x:0", "write random:N:P"),
        ("random:10:1.5:0", "between 0 and 1"),
        ("random:10:0.5:-1", "must not be negative"),
        ("random:10:0.0:0", "no arcs"),
        ("tournament:4:9:0", "6 arcs: 9 cannot be reversed"),
        ("star:5", "unknown generator: 'star:5'; there are the bundled graphs click, httpx, jinja2, rich.*complete:N"),
    ],
)
def test_bad_specifications(spec, message):
    with pytest.raises(ValueError, match=message):
        read_graph(spec)


def test_a_missing_file_lists_what_there_is():
    with pytest.raises(FileNotFoundError, match=r"no such file: 'nowhere/graph.edgelist'.*click, httpx.*tournament:N"):
        read_graph("nowhere/graph.edgelist")


def test_a_name_too_long_for_a_file_is_no_file():
    with pytest.raises(FileNotFoundError, match="unknown graph, and no such file: 'aaa"):
        read_graph("a" * 5000)


def test_networkx_graphs_keep_parallel_arcs_loops_and_labels():
    graph = nx.MultiDiGraph(name="mine")
    graph.add_edges_from([("a", "b"), ("a", "b"), ("b", "a"), ("c", "c"), (1, "a")])
    found = read_graph(graph)
    assert found.name == "mine"
    assert found.labels == ("a", "b", "c", "1")
    assert sorted(found.arcs) == [(0, 1), (0, 1), (1, 0), (2, 2), (3, 0)]
    assert found.constraints() == {(0, 1): 2, (1, 0): 1, (3, 0): 1}
    assert nx.utils.graphs_equal(from_networkx(found.to_networkx()).to_networkx(), found.to_networkx())


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (nx.DiGraph(), "is empty"),
        (nx.empty_graph(5, create_using=nx.DiGraph), "5 vertices and no arcs"),
        (nx.DiGraph([(0, 0)]), "has 1 vertex"),
        (nx.path_graph(4), "is an undirected graph"),
        (nx.MultiGraph([(0, 1)]), "is an undirected graph"),
        (nx.DiGraph([(1, "1"), ("1", 2)]), "two vertices with the label '1'"),
    ],
)
def test_graphs_without_a_problem_are_refused(graph, message):
    with pytest.raises(ValueError, match=message):
        read_graph(graph)


def test_stored_graphs():
    graph = read_graph("httpx")
    assert Digraph.from_json(json.loads(json.dumps(graph.to_json()))) == graph
    with pytest.raises(ValueError, match="not a stored graph"):
        Digraph.from_json({"labels": ["a", "b"]})
    with pytest.raises(ValueError, match=r"the arc \(0, 7\), but its vertices are 0 to 1"):
        Digraph.from_json({"labels": ["a", "b"], "arcs": [[0, 7]]})


def test_a_long_cycle_is_shortened_in_the_middle():
    graph = read_graph("cycle:30")
    shown = graph.show_cycle(graph.cycle() or ())
    assert shown == "v0 -> v1 -> v2 -> v3 -> ... 23 more ... -> v27 -> v28 -> v29 -> v0"
    assert read_graph("cycle:3").show_cycle((0, 1, 2)) == "v0 -> v1 -> v2 -> v0"
    loops = from_networkx(nx.DiGraph([("a", "a"), ("a", "b")]))
    assert loops.cycle() is None


labels = st.lists(
    st.one_of(st.sampled_from(HARD_LABELS), st.text(min_size=1, max_size=6)), min_size=2, max_size=6, unique=True
)


@st.composite
def parts(draw: st.DrawFn):
    """Labels and arcs. The graph is made in the test: a strategy may not touch the random module, and beartype does."""
    names = draw(labels)
    vertex = st.integers(0, len(names) - 1)
    return names, draw(st.lists(st.tuples(vertex, vertex), min_size=1, max_size=12))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(parts())
def test_any_graph_survives_json_and_networkx(made):
    graph = Digraph("drawn", tuple(made[0]), tuple(made[1]))
    assert Digraph.from_json(json.loads(json.dumps(graph.to_json()))) == graph
    again = from_networkx(graph.to_networkx(), "drawn")
    assert again.labels == graph.labels
    assert sorted(again.arcs) == sorted(graph.arcs)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(parts())
def test_cycle_is_a_cycle_and_none_only_for_dags(made):
    graph = Digraph("drawn", tuple(made[0]), tuple(made[1]))
    cycle = graph.cycle()
    arcs = set(graph.constraints())
    if cycle is None:
        assert nx.is_directed_acyclic_graph(nx.DiGraph(list(arcs)))
    else:
        assert len(set(cycle)) == len(cycle) >= 2
        assert all((u, cycle[(k + 1) % len(cycle)]) in arcs for k, u in enumerate(cycle))


def test_the_limit_on_memory_can_be_raised(tmp_path):
    assert read_graph("cycle:7000", memory=3).n == 7000
    path = tmp_path / "wide.txt"
    path.write_text("\n".join(f"{k} {k + 1}" for k in range(20_000)))
    with pytest.raises(ValueError, match=r"20001 vertices and up to 20000 arcs: .* about 19\.2 GB"):
        read_graph(path)
    assert read_graph(path, memory=20).n == 20_001
    with pytest.raises(ValueError, match="0 MB, more than the 0 MB that are read"):
        read_graph(path, memory=0.001)


def test_random_graphs_are_what_they_were():
    drawn = np.random.default_rng(3).random((6, 6)) < 0.4
    expected = tuple((u, v) for u in range(6) for v in range(6) if u != v and drawn[u, v])
    assert read_graph("random:6:0.4:3").arcs == expected
