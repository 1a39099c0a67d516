"""Files: edge lists, GraphML and JSON keep labels and parallel arcs; what is no graph is refused in one sentence."""

import json

import networkx as nx
import pytest

from headlab.models.esp.graphs import read_graph

LABELS = ("<bos>", 'it\'s "quoted"', "x" * 200, "emoji 😀", "a&b", "two words")


@pytest.fixture
def graph():
    made = nx.MultiDiGraph()
    made.add_edges_from(zip(LABELS, LABELS[1:] + LABELS[:1]))
    made.add_edge(LABELS[0], LABELS[1])
    made.add_edge(LABELS[1], LABELS[0])
    made.add_edge(LABELS[2], LABELS[2])
    return made


def arcs_by_label(found):
    return sorted((found.labels[u], found.labels[v]) for u, v in found.arcs)


def test_edge_list(tmp_path, graph):
    path = tmp_path / "g.edgelist"
    lines = ["# a comment", "", "% another", *("\t".join(arc) for arc in graph.edges())]
    path.write_text("\n".join(lines), encoding="utf-8")
    found = read_graph(path)
    assert found.name == "g"
    assert arcs_by_label(found) == sorted(graph.edges())


def test_edge_lists_of_networkx_and_of_windows(tmp_path):
    path = tmp_path / "g.txt"
    nx.write_edgelist(nx.DiGraph([(0, 1), (1, 2), (2, 0)]), path)
    assert arcs_by_label(read_graph(path)) == [("0", "1"), ("1", "2"), ("2", "0")]
    path.write_bytes(b"\xef\xbb\xbfa b\r\nb a\r\n")
    assert arcs_by_label(read_graph(str(path))) == [("a", "b"), ("b", "a")]


def test_graphml(tmp_path, graph):
    path = tmp_path / "g.graphml"
    nx.write_graphml(graph, path)
    assert arcs_by_label(read_graph(path)) == sorted(graph.edges())
    for number, node in enumerate(list(graph)):
        graph.nodes[node]["label"] = f"<{number}>"
    nx.write_graphml(graph, tmp_path / "noname")
    assert read_graph(tmp_path / "noname").labels == tuple(f"<{number}>" for number in range(6))


def test_json_forms(tmp_path, graph):
    path = tmp_path / "g.json"
    for data in (
        nx.adjacency_data(graph),
        nx.node_link_data(graph, edges="edges"),
        nx.node_link_data(graph, edges="links"),
        {u: [v for _, v in graph.out_edges(u)] for u in graph},
    ):
        path.write_text(json.dumps(data), encoding="utf-8")
        assert arcs_by_label(read_graph(path)) == sorted(graph.edges())
    path.write_text(json.dumps({"a": {"b": {}}, "b": {"a": {}}}))
    assert arcs_by_label(read_graph(path)) == [("a", "b"), ("b", "a")]


def test_undirected_files_are_refused(tmp_path):
    undirected = nx.path_graph(3)
    nx.write_graphml(undirected, tmp_path / "g.graphml")
    with pytest.raises(ValueError, match=r"is an undirected graph.*to_directed"):
        read_graph(tmp_path / "g.graphml")
    for number, data in enumerate((nx.adjacency_data(undirected), nx.node_link_data(undirected, edges="edges"))):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(data))
        with pytest.raises(ValueError, match='does not say "directed": true'):
            read_graph(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("prose.txt", b"Dear reader,\nthis is no graph.", r"line 2 \('this is no graph.'\) is not two labels"),
        ("long.txt", b"word " * 99, r"line 1 \('word word .*\.\.\.'\)"),
        ("one.txt", b"lonely", "is not two labels"),
        ("weights.txt", b"a b 0.5", "is not two labels"),
        ("tabs.txt", b"a\t\n", "is not two labels"),
        ("image.png", b"\x89PNG\r\n\x1a\n\x00\xff", "it is not text"),
        ("zeros.bin", b"a b\x00c", "it is not text"),
        ("empty.txt", b"", "is empty"),
        ("comments.txt", b"# nothing\n", "is empty"),
        ("broken.json", b'{"a": [', "is not JSON"),
        ("deep.json", b"[" * 100_000, "is not JSON|is JSON, but not a graph"),
        ("list.json", b"[1, 2]", "is JSON, but not a graph"),
        ("table.json", b'{"a": 1}', "is JSON, but not a graph"),
        ("nested.json", b'{"a": [["b"]]}', "is JSON, but not a graph"),
        ("links.json", b'{"directed": true, "nodes": [{"id": 1}], "links": [{"from": 1}]}', "is JSON, but not a graph"),
        ("empty.json", b"{}", "is empty"),
        ("broken.graphml", b"<graphml><graph", "is not GraphML"),
        ("page.xml", b"<html><body/></html>", "is not GraphML"),
    ],
)
def test_files_that_are_no_graphs(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_graph(path)
    assert "\n" not in str(caught.value)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is a folder"):
        read_graph(tmp_path)
