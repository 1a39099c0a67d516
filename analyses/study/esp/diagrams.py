"""Three diagrams of endpoint selection models: the order of one head, the circuit of two, their weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headlab.analyses.study.words import Words, plural
from headlab.interp.render import (
    Figure,
    Node,
    RowGroup,
    arc_diagram,
    circuit_diagram,
    signed,
    token_head_logit,
    weight_matrices,
)
from headlab.interp.render.matrices import HeadMatrices
from headlab.models.esp.graphs import Digraph

LETTERS = ("A", "B")
WIDE = 1080


def short_names(labels: Sequence[str]) -> tuple[str, ...]:
    """The labels without the package that all of them share: rich, rich.text -> rich, text. Others stay as they are.

    Only the first dotted part is taken away, and only where the names then still differ.
    """
    heads = {label.split(".", 1)[0] for label in labels}
    if len(heads) != 1:
        return tuple(labels)
    short = tuple(label.split(".", 1)[-1] for label in labels)
    return short if len(set(short)) == len(labels) else tuple(labels)


def learned_order(
    graph: Digraph, order: Sequence[int], least: int, *, words: Words | None = None, width: int = WIDE, **values: Any
) -> Figure:
    """The order that a one-head model has learned, the arcs that it gives up below the names.

    Args:
        graph: The graph.
        order: Its vertices, first to last.
        least: No order has fewer backward arcs.
        words: The words of the study; `values` are what their caption needs, or `caption` itself.
        width: In pixels.
    """
    place = {vertex: k for k, vertex in enumerate(order)}
    names = short_names(graph.labels)
    arcs = [(place[u], place[v]) for u, v in graph.arcs if u != v]
    backward = sum(i > j for i, j in arcs)
    degree = np.bincount(np.array([end for i, j in arcs if i > j for end in (i, j)], dtype=int), minlength=graph.n)
    words = words or Words("esp", {})
    about = {"name": graph.name, "arcs": len(arcs), "backward": backward, "least": least}
    text: dict[str, Any] = words("order", **about, **values) | {
        key: values[key] for key in ("caption",) if key in values
    }
    return arc_diagram(
        [names[vertex] for vertex in order],
        arcs,
        **text,
        **words.labels("order", **about),
        hubs=[int(degree.argmax())] if backward else [],
        listing=f"List the {plural(backward, 'backward arc')}" if backward and width == WIDE else "",
        width=width,
    )


def two_head_circuit(
    labels: Sequence[str],
    arc: tuple[int, int],
    logit_parts: np.ndarray,
    pair_parts: np.ndarray,
    *,
    words: Words | None = None,
    **values: Any,
) -> Figure:
    """Both questions about one arc: token -> head -> logit.

    Args:
        labels: The vertices' labels.
        arc: Tail and head, the arc that is asked about.
        logit_parts: [selector, head, vertex], what a head adds to each vertex's logit, vertex mean removed.
        pair_parts: [selector, position, head], what it adds from each position to the right endpoint's logit minus
            the other's.
        words: The words of the study; `values` are what the caption needs (`whose`).
    """
    names, words = short_names(labels), words or Words("esp", {})
    ends = {"tail": names[arc[0]], "head": names[arc[1]]}
    panels = []
    for level in (0, 1):
        totals = logit_parts[level].sum(0)
        rest = [vertex for vertex in np.argsort(-totals).tolist() if vertex not in arc]
        shown = [*arc, *rest[:1]]
        right = totals[arc[level]] > max(total for vertex, total in enumerate(totals) if vertex != arc[level])
        logits = []
        for k, vertex in enumerate(shown):
            mark = " ✓" if vertex == arc[level] and right else ""
            note = f"{signed(totals[vertex])}{mark}{' next best' if k == 2 else ''}"
            logits.append(Node(names[vertex], note, strong=vertex == arc[level]))
        by_head = pair_parts[level].sum(0)
        acting = int(np.abs(by_head).argmax())
        text = words.labels("circuit", **ends, level=level, letter=LETTERS[acting], logits=signed(by_head[acting]))
        tokens = [
            Node(names[arc[0]], "first", strong=level == 0),
            Node(names[arc[1]], "second", strong=level == 1),
            Node(text["selector"], "selector"),
            Node(text["query"], "query"),
        ]
        panels.append(
            token_head_logit(
                tokens,
                list(LETTERS),
                logits,
                pair_parts[level],
                logit_parts[level][:, shown],
                question=text["question"],
                result=text["result"],
            )
        )
    return circuit_diagram(panels, **words("circuit", **ends, **values))


def matrices(
    graph: str,
    vertices: int,
    learned: Sequence[tuple[np.ndarray, np.ndarray]],
    built: Sequence[tuple[np.ndarray, np.ndarray]],
    similarity: Sequence[str],
    *,
    words: Words | None = None,
    **values: Any,
) -> Figure:
    """QK strip, OV matrix of each head, learned beside constructed; rows u, v, then 1 2 #; columns the vertices.

    Args:
        graph: Its name. vertices: their number.
        learned: (QK strip [row], OV [row, vertex]) of heads A and B. built: of the construction.
        similarity: A line for each head.
        words: The words of the study; `values` are what their caption needs, or `caption` itself.
    """
    pairs = [
        [HeadMatrices(letter, "learned", *learned[k]), HeadMatrices(letter, "constructed", *built[k])]
        for k, letter in enumerate(LETTERS)
    ]
    count = plural(vertices, "vertex", "vertices")
    groups = [
        RowGroup(vertices, "token u", count),
        RowGroup(vertices, "token v", count),
        RowGroup(3, names=["1", "2", "#"]),
    ]
    words = words or Words("esp", {})
    text = words("matrices", name=graph, vertices=vertices, similarity=similarity, **values)
    text |= {key: values[key] for key in ("caption",) if key in values}
    return weight_matrices(pairs, groups=groups, similarity=list(similarity), **text)
