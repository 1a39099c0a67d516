"""Where what stands in the sequence of one tree."""

from __future__ import annotations

from dataclasses import dataclass

DIRECTIONS = ("backward", "forward")
FORMS = ("pair", "plain")


@dataclass(frozen=True)
class Layout:
    """The positions of a tree with that many nodes and a goal of that depth.

    bos, one edge per node (the root's hangs under TURN), the goal, then the emitted path. Plain tokens give an edge two
    positions and put a mark before the goal. Positions count from 0.
    """

    nodes: int
    depth: int
    direction: str = "forward"
    chain_of_thought: bool = True
    form: str = "pair"

    @property
    def predictions(self) -> int:
        """Tokens to predict: parents and TURN; forward also root to goal and END, or those alone without the chain."""
        if self.direction == "backward":
            return self.depth + 1
        return 2 * self.depth + 3 if self.chain_of_thought else self.depth + 2

    @property
    def goal(self) -> int:
        """The goal's position, the first that predicts."""
        return 1 + self.nodes if self.form == "pair" else 2 + 2 * self.nodes

    @property
    def length(self) -> int:
        """Positions in all: the last one predicts the last token."""
        return self.goal + self.predictions

    @property
    def edges(self) -> range:
        """The positions of the edges."""
        return range(1, 1 + self.nodes * (1 if self.form == "pair" else 2))

    @property
    def read(self) -> range:
        """The positions that predict."""
        return range(self.goal, self.length)

    @property
    def backward(self) -> range:
        """The positions that predict a parent or TURN; empty without a backward stage."""
        if self.direction == "forward" and not self.chain_of_thought:
            return range(self.goal, self.goal)
        return range(self.goal, self.goal + self.depth + 1)

    @property
    def turn(self) -> int | None:
        """The position of the emitted TURN, where the stage changes; None where no second stage follows."""
        staged = self.direction == "forward" and self.chain_of_thought
        return self.goal + self.depth + 1 if staged else None

    @property
    def reverse(self) -> range:
        """The positions on the way back down that predict, TURN left out; empty where no second stage follows."""
        return range(self.length if self.turn is None else self.turn + 1, self.length)

    @property
    def positions(self) -> tuple[str, ...]:
        """A name for each position."""
        if self.form == "pair":
            edges = [f"edge {k}" for k in range(self.nodes)]
        else:
            edges = [f"edge {k} {end}" for k in range(self.nodes) for end in ("parent", "child")] + ["mark"]
        down = [f"fwd {k}" for k in range(self.depth + 1)]
        back = [f"back {k + 1}" for k in range(self.depth)] + ["turn"] if self.backward else []
        return ("bos", *edges, *["goal", *back, *down][: self.predictions])
