"""Directed graphs from files: edge lists, GraphML and JSON, each refused in one sentence where it is none."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import networkx as nx

from headlab.interp.errors import MissingFile, RequestError

FORMATS = (
    "an edge list (two labels a line), GraphML (.graphml) or JSON (.json: adjacency, node-link or {label: [labels]})"
)


def read_file(path: str | Path) -> nx.MultiDiGraph | nx.DiGraph:
    """The directed graph in a file; parallel arcs and self-loops are kept.

    The format follows the name's ending (.graphml, .xml, .json), else what the text begins with. Raises
    FileNotFoundError where there is no such file, and ValueError for a folder, for what is not a graph, and for an
    undirected graph.
    """
    path = Path(path)
    if path.is_dir():
        raise RequestError(f"{path} is a folder: name a file that holds {FORMATS}")
    if not path.exists():
        raise MissingFile(f"no graph file {path}")
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

    A line that begins with '#' or '%' is a comment; a third column is taken only as networkx's `{...}` of edge data,
    which is left aside. ValueError names the first line that is not an arc.
    """
    graph = nx.MultiDiGraph()
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.strip()
        if not line or line[0] in "#%":
            continue
        fields = [field.strip() for field in line.split("\t")] if "\t" in line else line.split(maxsplit=2)
        if len(fields) == 3 and fields[2].startswith("{") and fields[2].endswith("}"):
            fields = fields[:2]
        if len(fields) != 2 or not all(fields):
            shown = line if len(line) <= 60 else line[:57] + "..."
            raise RequestError(
                f"{where} is not an edge list: line {number} ({shown!r}) is not two labels; wanted {FORMATS} "
                f"(a tab between labels that hold spaces; an arc that counts twice stands on two lines)"
            )
        graph.add_edge(*fields)
    return graph


def parse_graphml(text: str, where: str) -> nx.MultiDiGraph | nx.DiGraph:
    """GraphML as networkx reads it. A node's label is its `label` or `name` where all have one and no two are equal."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # networkx warns of attributes without a declared type; none is used here
            graph = nx.parse_graphml(text, node_type=str, force_multigraph=True)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RequestError(f"{where} is not GraphML that networkx can read: {reason}") from None
    require_directed(graph, where)
    for attribute in ("label", "name"):
        labels = {node: str(data[attribute]) for node, data in graph.nodes(data=True) if attribute in data}
        if len(labels) == len(graph) and len(set(labels.values())) == len(graph):
            return nx.relabel_nodes(graph, labels)
    return graph


def parse_json(text: str, where: str) -> nx.MultiDiGraph | nx.DiGraph:
    """networkx's adjacency or node-link form (with `"directed": true`), or an object {label: [labels it points to]}."""
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise RequestError(f"{where} is not JSON: {error}") from None
    wrong = f"{where} is JSON, but not a graph that can be read here; wanted {FORMATS}"
    if not isinstance(data, Mapping):
        raise RequestError(wrong)
    links = "links" if "links" in data else "edges"
    try:
        if isinstance(data.get("adjacency"), list) and isinstance(data.get("nodes"), list):
            require_flag(data, where)
            graph: Any = nx.adjacency_graph(dict(data))
        elif isinstance(data.get("nodes"), list) and isinstance(data.get(links), list):
            require_flag(data, where)
            graph = nx.node_link_graph(dict(data), edges=links)
        else:
            graph = _from_neighbours(data)
    except (nx.NetworkXError, KeyError, TypeError, AttributeError, IndexError):
        raise RequestError(wrong) from None
    require_directed(graph, where)
    return graph


def _from_neighbours(data: Mapping[str, Any]) -> nx.MultiDiGraph:
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(data)
    for tail, heads in data.items():
        if not isinstance(heads, list | Mapping):
            raise TypeError
        for head in heads:
            if not isinstance(head, str | int | float):
                raise TypeError
            graph.add_edge(tail, str(head))
    return graph


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
