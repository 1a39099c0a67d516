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
        (
            "weights-data.txt",
            b"a b {'weight': 2}\nb a {}",
            "line 1, gives the arc a -> b the weight 2, and arcs have none",
        ),
        ("weights.json", b'{"a": {"b": {"weight": 2}}}', "the arc a -> b the weight 2"),
        ("numbers.json", b'{"a": {"b": 2}}', "is JSON, but not a graph"),
        ("keys.json", b'{"a": ["b"], "a": ["c"]}', "gives the key 'a' 2 times"),
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


def both_json_forms(graph):
    return nx.adjacency_data(graph), nx.node_link_data(graph, edges="edges"), nx.node_link_data(graph, edges="links")


@pytest.mark.parametrize("key", ["weight", "Weight", "capacity"])
def test_weights_are_refused_in_every_format(tmp_path, key):
    weighted = nx.DiGraph([("a", "b", {key: 1}), ("b", "a", {key: 3})])
    nx.write_graphml(weighted, tmp_path / "g.graphml")
    nx.write_edgelist(weighted, tmp_path / "g.txt")
    paths = [tmp_path / "g.graphml", tmp_path / "g.txt"]
    for number, data in enumerate((*both_json_forms(weighted), nx.to_dict_of_dicts(weighted))):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(json.dumps(data))
    for path in paths:
        with pytest.raises(ValueError, match=f"the arc b -> a the {key} 3, and arcs have none here"):
            read_graph(path)
        path.write_text(path.read_text().replace("3", "1"))  # a weight of 1 says nothing that is lost
        assert arcs_by_label(read_graph(path)) == [("a", "b"), ("b", "a")]


def test_what_stands_twice_is_refused(tmp_path):
    path = tmp_path / "g.graphml"
    head = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    graph = '<graph edgedefault="directed"><node id="a"/><node id="b"/><edge source="a" target="b"{}/>{}</graph>'
    arc = '<edge id="e" source="a" target="b"/>'
    for text, message in (
        (graph.format("", "") + graph.format("", ""), "holds 2 graphs"),
        (graph.format("", '<node id="a"/>'), "gives the node 'a' 2 times"),
        (graph.format(' id="e"', arc), "has 2 arcs, of which 1 share both ends and their id"),
    ):
        path.write_text(f"{head}{text}</graphml>")
        with pytest.raises(ValueError, match=message):
            read_graph(path)
    path.write_text(head + graph.format("", '<edge source="a" target="b"/>') + "</graphml>")
    assert read_graph(path).m == 2

    twice = nx.MultiDiGraph([("a", "b"), ("a", "b"), ("b", "a")])
    path = tmp_path / "g.json"
    for data in both_json_forms(twice):
        path.write_text(json.dumps(data))
        assert arcs_by_label(read_graph(path)) == [("a", "b"), ("a", "b"), ("b", "a")]
        path.write_text(json.dumps(data).replace('"key": 1', '"key": 0'))
        with pytest.raises(ValueError, match="gives the arc 'a -> b' 2 times"):
            read_graph(path)
        path.write_text(json.dumps({**data, "multigraph": False}))
        with pytest.raises(ValueError, match="gives the arc 'a -> b' 2 times"):
            read_graph(path)
        path.write_text(json.dumps({**data, "nodes": [*data["nodes"], {"id": "a"}]}))
        with pytest.raises(ValueError, match=r"gives the node 'a' 2 times|not a graph"):
            read_graph(path)


def test_a_byte_order_mark_is_not_part_of_a_label(tmp_path):
    graph = nx.DiGraph([("a", "b"), ("b", "a")])
    nx.write_graphml(graph, tmp_path / "plain.graphml")
    texts = {"g.graphml": (tmp_path / "plain.graphml").read_bytes(), "g.txt": b"a b\nb a\n"}
    texts["g.json"] = json.dumps(nx.node_link_data(graph, edges="links")).encode()
    for name, content in texts.items():
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + content)
        assert arcs_by_label(read_graph(tmp_path / name)) == [("a", "b"), ("b", "a")]
