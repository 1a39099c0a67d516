import json

import networkx as nx
import pytest

from headlab.models.tree.given import from_graph, read


def test_a_directed_tree_keeps_its_root_and_names():
    tree = from_graph(nx.DiGraph([("b", "c"), ("a", "b"), ("a", "d")]))
    assert tree.names == ("a", "b", "d", "c")
    assert tree.parent == (-1, 0, 0, 1)
    assert tree.number("c") == 3


def test_an_undirected_tree_is_rooted_at_its_first_node():
    tree = from_graph(nx.Graph([(7, 3), (3, 1)]))
    assert tree.names == ("7", "3", "1")
    assert tree.parent == (-1, 0, 1)


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (nx.DiGraph([("a", "b"), ("b", "c"), ("c", "b")]), "the cycle b -> c -> b"),
        (nx.DiGraph([("a", "b"), ("b", "b")]), "the cycle b -> b"),
        (nx.DiGraph([("a", "b"), ("c", "d")]), "beside the root 'a' it has a second root 'c'"),
        (nx.DiGraph([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]), "'d' has more than one parent: b, c"),
        (nx.Graph([(1, 2), (2, 3), (3, 1)]), "it has the cycle"),
        (nx.Graph([(1, 1), (1, 2)]), "the cycle 1 -> 1"),
        (nx.Graph([(1, 2), (3, 4)]), "beside the root '1' it has a second root '3'"),
        (nx.empty_graph(1, create_using=nx.DiGraph), "a tree of 1 nodes has no path"),
        (nx.empty_graph(0), "a tree of 0 nodes has no path"),
    ],
)
def test_what_is_no_tree_is_named(graph, words):
    with pytest.raises(ValueError, match=words) as raised:
        from_graph(graph)
    assert "\n" not in str(raised.value)


def test_an_unknown_goal_lists_the_nodes():
    with pytest.raises(ValueError, match="the goal 'z' is not in the tree: its nodes are a, b"):
        from_graph(nx.DiGraph([("a", "b")])).number("z")


def test_every_file_form_gives_the_same_tree(tmp_path):
    graph = nx.DiGraph([("a", "b"), ("b", "c")])
    nx.write_edgelist(graph, tmp_path / "tree.txt", data=False)
    nx.write_graphml(graph, tmp_path / "tree.graphml")
    nx.write_gml(graph, tmp_path / "tree.gml")
    (tmp_path / "links.json").write_text(json.dumps(nx.node_link_data(graph, edges="links")))
    (tmp_path / "lists.json").write_text(json.dumps({"a": ["b"], "b": ["c"]}))
    trees = {read(path) for path in tmp_path.iterdir()}
    assert len(trees) == 1
    assert trees.pop().names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("name", "text"),
    [("t.graphml", "<graphml"), ("t.json", "{"), ("t.json", "[1]"), ("t.gml", "x"), ("t.json", '{"a": 3}')],
)
def test_a_broken_file_is_one_sentence(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match="cannot be read as a tree"):
        read(tmp_path / name)


def test_a_missing_file():
    with pytest.raises(FileNotFoundError, match="no tree file"):
        read("/nowhere/tree.json")


def test_a_byte_order_mark_is_not_part_of_the_root(tmp_path):
    graph = nx.DiGraph([("root", "a"), ("root", "b")])
    nx.write_gml(graph, tmp_path / "t.gml")
    nx.write_graphml(graph, tmp_path / "t.graphml")
    (tmp_path / "t.txt").write_text("root a\nroot b\n")
    (tmp_path / "t.json").write_text(json.dumps(nx.node_link_data(graph, edges="edges")))
    (tmp_path / "lists.json").write_text('{"root": ["a", "b"]}')
    for path in sorted(tmp_path.iterdir()):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        assert read(path).names == ("root", "a", "b")
