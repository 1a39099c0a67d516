"""Directed graphs from files: edge lists, GraphML and JSON. Whatever a file says that a directed multigraph cannot hold
(weights, a second graph, one key twice) is refused in one sentence, in every format alike.
"""

from __future__ import annotations

import ast
import json
import warnings
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import networkx as nx

from headlab.interp.errors import MissingFile, RequestError

WEIGHTS = ("weight", "weights", "multiplicity", "count", "capacity")
TWICE = "an arc that counts twice stands twice"
FORMATS = (
    "an edge list (two labels a line), GraphML (.graphml) or JSON (.json: adjacency, node-link or {label: [labels]})"
)


def read_file(path: str | Path, *, most_bytes: int | None = None) -> nx.MultiDiGraph:
    """The directed graph in a file; parallel arcs and self-loops are kept.

    The format follows the name's ending (.graphml, .xml, .json), else what the text begins with.

    Args:
        path: of the file.
        most_bytes: a larger file is refused unread; None reads any.

    Raises:
        MissingFile: where there is no such file.
        RequestError: for a folder, for what is not a graph, an undirected graph, arcs with weights, several graphs in
            one file, and whatever stands twice under one name.
    """
    path = Path(path)
    if path.is_dir():
        raise RequestError(f"{path} is a folder: name a file that holds {FORMATS}")
    if not path.exists():
        raise MissingFile(f"no graph file {path}")
    size = path.stat().st_size
    if most_bytes is not None and size > most_bytes:
        raise RequestError(f"{path} has {size / 1e6:.0f} MB, more than the {most_bytes / 1e6:.0f} MB that are read")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RequestError(f"{path} is not a graph: it is not text; wanted {FORMATS}") from None
    if "\0" in text:
        raise RequestError(f"{path} is not a graph: it is not text; wanted {FORMATS}")
    start = text.lstrip()[:16].lower()
    if path.suffix.lower() in (".graphml", ".xml") or start.startswith(("<?xml", "<graphml")):
        return parse_graphml(text, str(path))
    if path.suffix.lower() == ".json" or start.startswith("{"):
        return parse_json(text, str(path))
    return parse_edge_list(text, str(path))


def parse_edge_list(text: str, where: str) -> nx.MultiDiGraph:
    """An arc a line: tail, then head, set apart by a tab (labels may then hold spaces) or by any white space.

    A line that begins with '#' or '%' is a comment; a third column is taken only as networkx's `{...}` of edge data.
    RequestError names the first line that is not an arc, and the first that gives its arc a weight.
    """
    graph = nx.MultiDiGraph()
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.strip()
        if not line or line[0] in "#%":
            continue
        fields = [field.strip() for field in line.split("\t")] if "\t" in line else line.split(maxsplit=2)
        if len(fields) == 3 and fields[2].startswith("{") and fields[2].endswith("}"):
            require_no_weight(_edge_data(fields.pop()), fields, f"{where}, line {number},")
        if len(fields) != 2 or not all(fields):
            shown = line if len(line) <= 60 else line[:57] + "..."
            raise RequestError(
                f"{where} is not an edge list: line {number} ({shown!r}) is not two labels; wanted {FORMATS} "
                f"(a tab between labels that hold spaces; an arc that counts twice stands on two lines)"
            )
        graph.add_edge(*fields)
    return graph


def parse_graphml(text: str, where: str) -> nx.MultiDiGraph:
    """GraphML as networkx reads it. A node's label is its `label` or `name` where all have one and no two are equal."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # networkx warns of attributes without a declared type; none is used here
            root = ElementTree.fromstring(text)
            graph = nx.parse_graphml(text, node_type=str, force_multigraph=True)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RequestError(f"{where} is not GraphML that networkx can read: {reason}") from None
    require_directed(graph, where)
    _require_one_graph(root, where)
    _require_all_arcs(graph, sum(_tag(element) == "edge" for element in root.iter()), where)
    for tail, head, data in graph.edges(data=True):
        require_no_weight(data, (tail, head), where)
    for attribute in ("label", "name"):
        labels = {node: str(data[attribute]) for node, data in graph.nodes(data=True) if attribute in data}
        if len(labels) == len(graph) and len(set(labels.values())) == len(graph):
            return nx.relabel_nodes(graph, labels)
    return graph


def parse_json(text: str, where: str) -> nx.MultiDiGraph:
    """networkx's adjacency or node-link form (with `"directed": true`), or an object {label: [labels it points to]}."""
    try:
        data = json.loads(text, object_pairs_hook=lambda pairs: _each_key_once(pairs, where))
    except (json.JSONDecodeError, RecursionError) as error:
        raise RequestError(f"{where} is not JSON: {error}") from None
    wrong = f"{where} is JSON, but not a graph that can be read here; wanted {FORMATS}"
    if not isinstance(data, Mapping):
        raise RequestError(wrong)
    links = data.get("links", data.get("edges"))
    try:
        if isinstance(data.get("nodes"), list) and isinstance(data.get("adjacency"), list):
            require_flag(data, where)
            nodes = [node["id"] for node in data["nodes"]]
            arcs = [
                (tail, {**row, "target": row["id"]})
                for tail, row_of in zip(nodes, data["adjacency"], strict=True)
                for row in row_of
            ]
        elif isinstance(data.get("nodes"), list) and isinstance(links, list):
            require_flag(data, where)
            nodes = [node["id"] for node in data["nodes"]]
            arcs = [(link["source"], link) for link in links]
        else:
            nodes = list(data)
            arcs = [(tail, head) for tail, heads in data.items() for head in _neighbours(heads)]
        graph = nx.MultiDiGraph()
        graph.add_nodes_from(_once(nodes, "node", where))
        # A key tells parallel arcs apart; in a graph that says that it has none, there is one arc each.
        several = data.get("multigraph") is not False
        named = [(tail, row["target"], row.get("key") if several else "") for tail, row in arcs]
        _once([arc for arc in named if arc[2] is not None], "arc", where)
        for tail, row in arcs:
            require_no_weight(row, (tail, row["target"]), where)
            graph.add_edge(tail, row["target"])
    except RequestError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError):
        raise RequestError(wrong) from None
    return graph


def _each_key_once(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    _once([key for key, _ in pairs], "key", where)
    return dict(pairs)


def _once(names: list[Any], what: str, where: str) -> list[Any]:
    """`names`, none of which may stand twice. TypeError for one that cannot be a name."""
    for name, count in Counter(names).items():
        if count > 1:
            shown = " -> ".join(map(str, name[:2])) if isinstance(name, tuple) else name
            raise RequestError(f"{where} gives the {what} '{shown}' {count} times: one of them would be lost")
    return names


def _neighbours(heads: Any) -> Iterable[dict[str, Any]]:
    """The arcs to a list of labels, or to an object {label: edge data}."""
    if isinstance(heads, Mapping):
        for data in heads.values():
            if not isinstance(data, Mapping) or any(isinstance(value, Mapping | list) for value in data.values()):
                raise TypeError("edge data is an object of single values")
        return [{**data, "target": head} for head, data in heads.items()]
    if not isinstance(heads, list) or not all(isinstance(head, str | int | float) for head in heads):
        raise TypeError("neighbours are a list of labels")
    return [{"target": str(head)} for head in heads]


def _edge_data(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _require_one_graph(root: ElementTree.Element, where: str) -> None:
    """Raise RequestError for several graphs, and for ids and keys that stand twice."""
    graphs = sum(_tag(element) == "graph" for element in root.iter())
    if graphs != 1:
        raise RequestError(f"{where} holds {graphs} graphs: give a file with one")
    for tag in ("key", "node"):
        _once([element.get("id") for element in root.iter() if _tag(element) == tag], tag, where)
    for element in root.iter():
        _once([child.get("key") for child in element if _tag(child) == "data"], "key", where)


def _require_all_arcs(graph: nx.MultiDiGraph, count: int, where: str) -> None:
    """Raise RequestError where parallel arcs of one id became one arc."""
    if graph.number_of_edges() != count:
        raise RequestError(
            f"{where} has {count} arcs, of which {count - graph.number_of_edges()} share both ends and their id with "
            "another: give each an id of its own, or none"
        )


def require_no_weight(data: Any, arc: Iterable[Hashable], where: str) -> None:
    """Raise RequestError where the data of an arc hold a weight other than 1, which an arc cannot have."""
    for key, value in data.items() if isinstance(data, Mapping) else ():
        if str(key).lower() in WEIGHTS and value not in (1, "1", "1.0", None):
            raise RequestError(
                f"{where} gives the arc {' -> '.join(map(str, arc))} the {key} {value!r}, and arcs have none here: "
                f"{TWICE}, so write it that often, or leave the {key} out"
            )


def require_flag(data: Mapping[str, Any], where: str) -> None:
    """Raise ValueError where networkx's JSON does not say that the graph is directed (networkx would assume not)."""
    if data.get("directed") is not True:
        raise RequestError(
            f'{where} does not say "directed": true, and an undirected graph has no arcs to order: '
            f"write it from a networkx DiGraph or MultiDiGraph"
        )


def require_directed(graph: nx.Graph, where: str) -> None:
    """Raise ValueError for an undirected graph."""
    if not graph.is_directed():
        raise RequestError(
            f"{where} is an undirected graph, and endpoint selection needs arcs with a first and a second endpoint: "
            f"give each edge a direction (networkx: graph.to_directed() makes two arcs of each edge)"
        )
