"""One given tree: from a networkx graph, or from a file that networkx reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import networkx as nx

from headlab.interp.errors import MissingFile, RequestError
from headlab.models.tree.trees import ROOT


def _read_json(path: Path) -> nx.DiGraph:
    """Adjacency lists, `{"parent": ["child", ...], ...}`, or networkx's node-link form."""
    data = json.loads(path.read_text(ENCODING))
    if not isinstance(data, dict):
        raise TypeError("JSON adjacency is an object: node -> list of its children")
    links = data.get("links", data.get("edges"))
    if "nodes" in data and links is not None:
        graph = nx.DiGraph()
        graph.add_nodes_from(node["id"] for node in data["nodes"])
        graph.add_edges_from((link["source"], link["target"]) for link in links)
        return graph
    return nx.DiGraph({str(node): [str(child) for child in children] for node, children in data.items()})


def _read_edges(path: Path) -> nx.DiGraph:
    return nx.parse_edgelist(path.read_text(ENCODING).splitlines(), create_using=nx.DiGraph, data=False)


ENCODING = "utf-8-sig"  # a byte-order mark is not part of the first name
READERS = {
    ".graphml": nx.read_graphml,
    ".gml": lambda path: nx.parse_gml(path.read_text(ENCODING)),
    ".json": _read_json,
}


@dataclass(frozen=True)
class GivenTree:
    """A rooted tree with named nodes, the root first and each parent before its children.

    parent: each node's parent by number, -1 for the root.
    """

    parent: tuple[int, ...]
    names: tuple[str, ...]

    def number(self, name: str) -> int:
        """The number of the node called `name`; ValueError where the tree has no such node."""
        if name not in self.names:
            shown = ", ".join(self.names[:8]) + (", ..." if len(self.names) > 8 else "")
            raise RequestError(f"the goal '{name}' is not in the tree: its nodes are {shown}")
        return self.names.index(name)


def from_graph(graph: nx.Graph) -> GivenTree:
    """The tree that a directed graph is, arcs from parent to child; an undirected one is rooted at its first node.

    Raises RequestError, naming the cycle, the second root or the node with two parents, where it is not a rooted tree,
    and where it has one node only.
    """
    if graph.number_of_nodes() < 2:
        raise RequestError(f"a tree of {graph.number_of_nodes()} nodes has no path to find: give a tree with an edge")
    tree = nx.DiGraph(graph) if graph.is_directed() else _rooted_at_first(graph)
    try:
        cycle = [str(tail) for tail, *_ in nx.find_cycle(tree)]
    except nx.NetworkXNoCycle:
        pass
    else:
        raise RequestError(f"the graph is not a tree: it has the cycle {' -> '.join([*cycle, cycle[0]])}")
    for node in tree:
        above = sorted(str(parent) for parent in tree.predecessors(node))
        if len(above) > 1:
            raise RequestError(f"the graph is not a tree: '{node}' has more than one parent: {', '.join(above)}")
    roots = [node for node in tree if not list(tree.predecessors(node))]
    if len(roots) > 1:
        raise RequestError(f"the graph is not a tree: beside the root '{roots[0]}' it has a second root '{roots[1]}'")
    order = [roots[0], *(child for _, child in nx.bfs_edges(tree, roots[0]))]
    number = {node: k for k, node in enumerate(order)}
    parent = [ROOT, *(number[next(iter(tree.predecessors(node)))] for node in order[1:])]
    return GivenTree(tuple(parent), tuple(str(node) for node in order))


def _rooted_at_first(graph: nx.Graph) -> nx.DiGraph:
    loops = [str(node) for node, _ in nx.selfloop_edges(graph)]
    if loops:
        raise RequestError(f"the graph is not a tree: it has the cycle {loops[0]} -> {loops[0]}")
    first = next(iter(graph))
    cycles = nx.cycle_basis(graph)
    if cycles:
        cycle = [str(node) for node in cycles[0]]
        raise RequestError(f"the graph is not a tree: it has the cycle {' -> '.join([*cycle, cycle[0]])}")
    reached = nx.bfs_tree(graph, first)
    if len(reached) < len(graph):
        second = next(node for node in graph if node not in reached)
        raise RequestError(f"the graph is not a tree: beside the root '{first}' it has a second root '{second}'")
    return reached


def read(path: str | Path) -> GivenTree:
    """The tree in a file: GraphML, GML, node-link JSON, or an edge list (`parent child` a line).

    Raises FileNotFoundError where there is no such file and ValueError where it cannot be read or holds no tree.
    """
    path = Path(path)
    if not path.is_file():
        raise MissingFile(f"no tree file '{path}': give a GraphML, GML, node-link JSON or edge list file")
    reader = READERS.get(path.suffix.lower())
    try:
        graph = reader(path) if reader else _read_edges(path)
    except (nx.NetworkXException, KeyError, TypeError, ValueError, ElementTree.ParseError) as error:
        raise RequestError(f"'{path}' cannot be read as a tree ({error}): write one 'parent child' a line") from error
    return from_graph(graph)
