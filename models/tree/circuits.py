"""The true circuits of the constructions: which edges act, under each kind of ablation, in one layout of positions.

An edge belongs to a circuit where replacing what it carries, alone, moves the answers of some trees; edges that
would move them only by the attention that a finite beta leaves over (of order e^-beta) do not belong. What is the
same in every tree at a position (the TURN token's label, the END that the goal carries, the last answer) carries
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from headlab.interp.circuits import END, START, Circuit, Edge, Node, Port
from headlab.interp.errors import UnknownName
from headlab.models.tree.layout import Layout

KINDS = ("resample", "positional_mean", "resample:goal", "resample:edge", "resample:predecessor")
VARIANTS = ("backward", "forward")
REFERENCE = {
    "resample": "another tree of the same layout: labels, edges, goal and path redrawn together",
    "positional_mean": "the mean over trees of one layout, position by position",
    "resample:goal": "the same tree with another goal, path tokens kept",
    "resample:edge": "the same tree with another parent on the edge to be looked up half-way, path tokens kept",
    "resample:predecessor": "the same tree with another node carried by the BACK token to be looked up half-way down",
}
BACKWARD, REVERSE = 0, 1


def true_circuit(layout: Layout, variant: str, ablation: str, read: Sequence[int] | None = None) -> Circuit:
    """The circuit of `variant` under `ablation`, with the roles of its heads, for trees of one layout.

    The backward head's queries are the goal and the BACK tokens, its keys and values the edges; the reverse head's are
    the FWD tokens, and the BACK tokens. What is written counts where answers differ: not at the root, whose answer is
    always TURN, nor at the last token, whose answer is always END. read: the positions of the answers that count, all
    by default; the `resample:` kinds are those of the task's contrasts, and count at their contrast's position alone.
    Raises KeyError for an unknown variant or kind of ablation, listing those there are, and where the layout has no
    such stages.
    """
    if variant not in VARIANTS:
        raise UnknownName(f"no construction '{variant}': there are {', '.join(VARIANTS)}")
    if ablation not in KINDS:
        raise UnknownName(f"the circuit under '{ablation}' ablation is not known; known: {', '.join(KINDS)}")
    staged = layout.turn is not None
    if layout.form != "pair" or not layout.backward or (variant == "forward") != staged:
        raise UnknownName(f"the construction '{variant}' is for another task: its circuit has no place in this layout")
    if ablation == "resample:predecessor" and not staged:
        raise UnknownName("the circuit under 'resample:predecessor' ablation needs the second stage: take 'forward'")
    counted = set(layout.read if read is None else read)
    slot = ablation.partition(":")[2]
    edges = _contrast(slot, layout, counted) if slot else _whole(layout, counted)
    roles = {(0, BACKWARD): "backward"} | ({(0, REVERSE): "reverse"} if staged else {})
    return Circuit(frozenset(edges), ablation, roles, {}, REFERENCE[ablation])


def contrast_read(name: str, layout: Layout) -> int:
    """Where the contrast `name` is read: at the goal, half-way up, or half-way down at the same node."""
    step = layout.depth // 2
    if name == "goal":
        return layout.goal
    return layout.goal + step if name == "edge" else layout.reverse[layout.depth - step - 1]


def _whole(layout: Layout, counted: set[int]) -> set[Edge]:
    up = counted & set(layout.backward)
    edges = {_reads(BACKWARD, port, position) for port in ("k", "v") for position in layout.edges if up}
    edges |= {_reads(BACKWARD, "q", position) for position in up}
    edges |= {_writes(BACKWARD, position) for position in up - {layout.backward[-1]}}
    if layout.turn in counted:  # the TURN token matches itself: its key and query are the same in every tree
        edges |= {_reads(REVERSE, "v", layout.turn), _writes(REVERSE, layout.turn)}
    for step, position in enumerate(layout.reverse):
        if position not in counted:
            continue
        visited = layout.goal + layout.depth - step  # the BACK token of the node that stands here
        edges |= {_reads(REVERSE, "q", position), _reads(REVERSE, "k", visited)}
        if visited != layout.goal:
            edges |= {_reads(REVERSE, "v", visited), _writes(REVERSE, position)}
    return edges


def _contrast(name: str, layout: Layout, counted: set[int]) -> set[Edge]:
    read = contrast_read(name, layout)
    if read not in counted:
        return set()
    if name == "goal":
        return {_reads(BACKWARD, "q", read), _writes(BACKWARD, read)}
    if name == "edge":
        return {_reads(BACKWARD, "v", position) for position in layout.edges} | {_writes(BACKWARD, read)}
    return {_reads(REVERSE, "v", layout.goal + layout.depth // 2 + 1), _writes(REVERSE, read)}


def _reads(head: int, port: Port, position: int) -> Edge:
    return Edge(START, Node("head", 0, head), port, position)


def _writes(head: int, position: int) -> Edge:
    return Edge(Node("head", 0, head), END, "end", position)
