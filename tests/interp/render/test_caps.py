"""Every kind of figure has a stated size, and says in the picture what it leaves out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from headlab.interp.render import (
    AttentionTile,
    CircuitPanel,
    ClaimRow,
    Curve,
    CurvePanel,
    Figure,
    HeadMatrices,
    Link,
    Node,
    RowGroup,
    StripRow,
    arc_diagram,
    attention_patterns,
    attention_tiles,
    circuit_diagram,
    claims_table,
    curve_chart,
    effect_grid,
    strip_chart,
    usage_chart,
    weight_matrices,
)

WORDS = {"title": "t", "description": "d"}
LARGEST = 2_000_000


def strip() -> Figure:
    return strip_chart([StripRow(f"row {k}", np.linspace(0, 1, 500)) for k in range(80)], **WORDS)


def arcs() -> Figure:
    pairs = [(i, j) for i in range(100) for j in range(100)]
    return arc_diagram([f"n{k}" for k in range(3000)], pairs, listing="all", **WORDS)


def circuit() -> Figure:
    nodes = [Node(f"n{k}") for k in range(400)]
    links = [Link((0, k), (1, 399 - k), 1.0) for k in range(400)]
    return circuit_diagram([CircuitPanel([nodes, nodes], links)] * 30, headings=("a", "b"), **WORDS)


def tiles() -> Figure:
    names = [f"t{k}" for k in range(500)]
    return attention_tiles([AttentionTile("A", "x", np.full(500, 0.002), names)] * 100, **WORDS)


def usage() -> Figure:
    return usage_chart(np.ones((60, 60)), heads=["A"] * 60, roles=[f"r{k}" for k in range(60)], **WORDS)


def matrices() -> Figure:
    rng = np.random.default_rng(0)
    one = HeadMatrices("A", "learned", rng.normal(size=700), rng.normal(size=(700, 600)))
    names = [f"r{k}" for k in range(500)]
    return weight_matrices([[one]], groups=[RowGroup(200, "first"), RowGroup(500, names=names)], **WORDS)


def curves() -> Figure:
    steps = np.arange(2000)
    wavy = np.sin(steps / 1e2)
    long, short = Curve(steps, wavy, low=wavy - 1, high=wavy + 1), Curve([0, 1], [0, 1])
    return curve_chart([CurvePanel("y", [long, *[short] * 25])], **WORDS)


def claims() -> Figure:
    return claims_table([ClaimRow(f"claim {k}", "p", "m", "holds") for k in range(2000)], **WORDS)


def grid() -> Figure:
    return effect_grid(np.ones((300, 400)), rows=["r"] * 300, columns=["c"] * 400, **WORDS)


def patterns() -> Figure:
    return attention_patterns(np.full((40, 300, 300), 0.5), ["x"] * 300, **WORDS)


SAID: list[tuple[Callable[[], Figure], str]] = [
    (strip, "Shown: the first 40 of 80 rows and the first 128 of 500 values of a row."),
    (arcs, "Shown: the first 400 of 3 000 names and the first 4 000 of 10 000 arcs between them."),
    (circuit, "Shown: the first 12 of 30 panels and the first 32 of 400 nodes of a column."),
    (tiles, "Shown: the first 48 of 100 tiles and the first 64 of 500 tokens."),
    (usage, "Shown: the first 48 of 60 heads and the first 12 of 60 roles."),
    (matrices, "Shown: the first 160 of 700 rows and the first 160 of 600 columns."),
    (curves, "Shown: the first 24 of 26 curves of a panel. Drawn through 400 of 2000"),
    (claims, "Shown: the first 300 of 2 000 claims."),
    (grid, "Shown: the first 64 of 300 rows and the first 64 of 400 columns."),
    (patterns, "Shown: the first 24 of 40 heads and the first 64 of 300 positions."),
]


@pytest.mark.parametrize(("made", "said"), SAID, ids=[one.__name__ for one, _ in SAID])
def test_what_is_left_out_is_said_in_the_picture(made: Callable[[], Figure], said: str) -> None:
    shown = made()
    assert len(shown.standalone_html().encode()) < LARGEST
    for markup in (shown.to_html(),) if shown.wide is None else (shown.svg, shown.svg_narrow or ""):
        words = markup.replace("\u202f", " ").replace("</text>", " ").split(">")
        text = " ".join(" ".join(part.split("<")[0] for part in words).split())
        assert said in text
