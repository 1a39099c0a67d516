"""The true circuits of the constructions: which edges act, under each kind of ablation, in one layout of positions.

An edge belongs to a circuit where replacing what it carries, alone, moves the answers of some trees; edges that
would move them only by the attention that a finite beta leaves over (of order e^-beta) do not belong. What is the
same in every tree at a position (the TURN token's label, the END that the goal carries, the last answer) carries
nothing.
"""

from __future__ import annotations

from interp.circuits import END, START, Circuit, Edge, Node, Port
from models.tree.layout import Layout

KINDS = ("resample", "positional_mean")
VARIANTS = ("backward", "forward")
REFERENCE = {
    "resample": "another tree of the same layout: labels, edges, goal and path redrawn together",
    "positional_mean": "the mean over trees of one layout, position by position",
}
BACKWARD, REVERSE = 0, 1


def true_circuit(layout: Layout, variant: str, ablation: str) -> Circuit:
    """The circuit of `variant` under `ablation`, with the roles of its heads, for trees of one layout.

    The backward head's queries are the goal and the BACK tokens, its keys and values the edges; the reverse head's
    are the FWD tokens, and the BACK tokens. What an answer is written to counts where answers differ: not at the
    root, whose answer is always TURN, nor at the last token, whose answer is always END. Raises KeyError for an
    unknown variant or kind of ablation, listing those there are, and where the layout has no such stages.
    """
    if variant not in VARIANTS:
        raise KeyError(f"no construction '{variant}': there are {', '.join(VARIANTS)}")
    if ablation not in KINDS:
        raise KeyError(f"the circuit under '{ablation}' ablation is not known; known: {', '.join(KINDS)}")
    if layout.form != "pair" or not layout.backward or (variant == "forward") != (layout.turn is not None):
        raise KeyError(f"the construction '{variant}' is for another task: its circuit has no place in this layout")
    edges = {_reads(BACKWARD, port, position) for port in ("k", "v") for position in layout.edges}
    edges |= {_reads(BACKWARD, "q", position) for position in layout.backward}
    edges |= {_writes(BACKWARD, position) for position in layout.backward[:-1]}
    roles = {(0, BACKWARD): "backward"}
    if layout.turn is not None:
        visited = layout.backward  # the goal and the BACK tokens, which carry where the path came from
        edges |= {_reads(REVERSE, "q", position) for position in layout.reverse}
        edges |= {_reads(REVERSE, "k", position) for position in visited}
        edges |= {_reads(REVERSE, "v", position) for position in (*visited[1:], layout.turn)}
        edges |= {_writes(REVERSE, position) for position in (layout.turn, *layout.reverse[:-1])}
        roles[0, REVERSE] = "reverse"
    return Circuit(frozenset(edges), ablation, roles, {}, REFERENCE[ablation])


def _reads(head: int, port: Port, position: int) -> Edge:
    return Edge(START, Node("head", 0, head), port, position)


def _writes(head: int, position: int) -> Edge:
    return Edge(Node("head", 0, head), END, "end", position)
