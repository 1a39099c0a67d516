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
POINTER_KINDS = ("resample", "positional_mean")
POINTER_DOUBLING = "pointer-doubling"
VARIANTS = ("backward", "forward", POINTER_DOUBLING)
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

    `pointer-doubling` has a circuit over several layers: see `doubling_circuit`. In the other two, of one layer, the
    backward head's queries are the goal and the BACK tokens, its keys and values the edges; the reverse head's are
    the FWD tokens, and the BACK tokens. What is written counts where answers differ: not at the root, whose answer is
    always TURN, nor at the last token, whose answer is always END. read: the positions of the answers that count, all
    by default; the `resample:` kinds are those of the task's contrasts, and count at their contrast's position alone.
    Raises KeyError for an unknown variant or kind of ablation, listing those there are, and where the layout has no
    such stages.
    """
    if variant not in VARIANTS:
        raise UnknownName(f"no construction '{variant}': there are {', '.join(VARIANTS)}")
    if variant == POINTER_DOUBLING:
        return doubling_circuit(layout, ablation, read)
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


def layers_needed(depth: int) -> int:
    """ceil(log2(depth + 1)) jump layers and the layer that answers; enough where parents are listed first."""
    return depth.bit_length() + 1


def doubling_roles(layers: int) -> tuple[str, ...]:
    """What the head of each layer does: `jump 1`, `jump 2`, ..., `answer`."""
    return (*(f"jump {number}" for number in range(1, layers)), "answer")


def doubling_circuit(
    layout: Layout, ablation: str, read: Sequence[int] | None = None, *, layers: int | None = None
) -> Circuit:
    """The circuit of the construction for random trees of one layout, parents listed first.

    An edge belongs to it where replacing what it carries, alone, moves the answers of some trees. Write n for the
    answer a_n. The answer head's query at the FWD token before it takes a_n from the one jump head M whose fetch
    holds ancestors 2^M - 1 .. 2^(M+1) - 2; from there the sets and pointers that led to it are followed back. Node a_j
    has its edge at positions D - j + 1 .. N - j: as many nodes are listed before and after it at least. The goal's
    own answer is the root's edge, which is always first; the last answer is always END, so nothing carries it.

    Args:
        layout: of a forward task without a chain of thought.
        ablation: `resample` or `positional_mean`.
        read: positions of the answers that count; all by default.
        layers: of the model; `layers_needed` by default.

    Raises:
        UnknownName: for another kind of ablation, and for another layout.
    """
    if ablation not in POINTER_KINDS:
        raise UnknownName(f"the circuit under '{ablation}' ablation is not known; known: {', '.join(POINTER_KINDS)}")
    if layout.form != "pair" or layout.backward or layout.direction != "forward":
        raise UnknownName(
            f"the construction '{POINTER_DOUBLING}' is for another task: its circuit has no place in this layout"
        )
    layers = layers_needed(layout.depth) if layers is None else layers
    trace = _Trace(layout, layers)
    for position in layout.read if read is None else read:
        trace.answer(position)
    roles = {(layer, 0): name for layer, name in enumerate(doubling_roles(layers))}
    return Circuit(frozenset(trace.edges), ablation, roles, {}, REFERENCE[ablation])


class _Trace:
    """Follows an answer back through the layers, over all positions that the path's edges can have."""

    def __init__(self, layout: Layout, layers: int) -> None:
        self.layout, self.last, self.edges = layout, layers - 1, set[Edge]()

    def answer(self, position: int) -> None:
        layout, last = self.layout, self.last
        step = position - layout.goal  # 0 at the goal; then the FWD token that shows a_(D - step + 1)
        if not step:
            self._add(START, last, "v", [1])
            self.edges.add(Edge(Node("head", last, 0), END, "end", position))
            return
        self._add(START, last, "q", [position])
        wanted = layout.depth - step
        if wanted < 0:
            self._add(START, last, "k", [layout.goal])  # the last answer is END in every tree: nothing carries it
            return
        self._add(START, last, "k", self.at(wanted))
        self._add(START, last, "v", self.at(wanted))
        self.edges.add(Edge(Node("head", last, 0), END, "end", position))
        fetch = (wanted + 1).bit_length() - 1
        self._add(Node("head", fetch, 0), last, "q", [position])
        self._add(START, 0, "v", [layout.goal])
        for jump in range(1, fetch + 1):
            self._add(Node("head", jump - 1, 0), jump, "q", [position])
            met = 2**jump - 2
            self._add(START, jump, "k", self.at(met))
            if jump < fetch:
                self._pointer(met, jump, jump)
            else:
                self._member(met, wanted - met, jump)

    def at(self, ancestor: int) -> range:
        """Positions that the edge of the goal's `ancestor` can have."""
        return range(self.layout.depth - ancestor + 1, self.layout.nodes - ancestor + 1)

    def _pointer(self, ancestor: int, doublings: int, reader: int) -> None:
        """What the value of `reader` takes from a_ancestor's pointer after so many doublings."""
        if not doublings:
            self._add(START, reader, "v", self.at(ancestor))
            return
        writer = doublings - 1
        self._add(Node("head", writer, 0), reader, "v", self.at(ancestor))
        self._jumped(ancestor, writer)
        self._pointer(ancestor + 2**writer, writer, writer)

    def _member(self, ancestor: int, distance: int, reader: int) -> None:
        """What the value of `reader` takes from a_ancestor's set: the node that far above."""
        if distance == 1:
            self._add(START, reader, "v", self.at(ancestor))
            return
        writer = (distance - 1).bit_length() - 1
        self._add(Node("head", writer, 0), reader, "v", self.at(ancestor))
        self._jumped(ancestor, writer)
        self._member(ancestor + 2**writer, distance - 2**writer, writer)

    def _jumped(self, ancestor: int, layer: int) -> None:
        """The attention of a_ancestor's edge in `layer`: its own pointer meets the child of the edge it names."""
        self._add(START, layer, "k", self.at(ancestor + 2**layer))
        self._query(ancestor, layer)

    def _query(self, ancestor: int, layer: int) -> None:
        if not layer:
            self._add(START, 0, "q", self.at(ancestor))
            return
        self._add(Node("head", layer - 1, 0), layer, "q", self.at(ancestor))
        self._jumped(ancestor, layer - 1)
        # what that jump brought is the pointer of the edge it met, as it stood before
        self._pointer(ancestor + 2 ** (layer - 1), layer - 1, layer - 1)

    def _add(self, source: Node, layer: int, port: Port, positions: Sequence[int]) -> None:
        self.edges |= {Edge(source, Node("head", layer, 0), port, position) for position in positions}
