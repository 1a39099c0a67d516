"""The figures on real data: accuracy over heads, and what of the difference is width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from headlab.analyses.study.retrieval.figures import heads_axis
from headlab.analyses.study.retrieval.real.plans import Family
from headlab.analyses.study.retrieval.real.readings import Deficit, accuracy
from headlab.analyses.study.retrieval.real.runs import Found
from headlab.analyses.study.retrieval.real.verdicts import listed
from headlab.interp.render import Axis, Curve, CurvePanel, Figure, Level, curve_chart, effect_grid, percent

PAPER: Mapping[str, tuple[Sequence[int], Sequence[float], Sequence[float], Sequence[float]]] = {
    "pictures": ((8, 10), (0.925, 0.97), (0.90, 0.96), (0.95, 0.98)),
    "passages": ((8, 12), (0.932, 0.991), (0.932, 0.991), (0.932, 0.991)),
}  # heads, middle, low, high
PAPER_LENGTH = {"passages": 64}  # the one length of the paper's figures; else they are for all
NAMES = {"digits": "Digits", "pictures": "Pictures", "passages": "Passages"}
TOKENS = {"digits": "patches", "pictures": "patches", "passages": "passages"}


def head_curves(found: Found) -> Figure:
    """Training accuracy over heads, one panel a length: a fixed width a head, a fixed total, and what is held out."""
    kind, lengths = found.plan.kind, found.lengths()
    most = max(found.heads("growing"))
    panels = [_panel(found, length) for length in lengths]
    measured = [(h, made) for h in found.heads("growing") if (made := accuracy(found, "growing", lengths[-1], h))]
    (few, first), (many, last) = measured[0], measured[-1]
    wide = accuracy(found, "fixed", lengths[-1], 1)
    more = " Dotted: the passage most like the question, held out, by the frozen embeddings." if found.baseline else ""
    more += " The paper's figures are for its own data and training set." if kind in PAPER else ""
    return curve_chart(
        panels,
        axis=heads_axis(most),
        title=f"{NAMES[kind]}: training accuracy over heads",
        description=f"With {lengths[-1]} {TOKENS[kind]} the training accuracy rises from {percent(first.value, 1)} at "
        f"{few} head{'s' if few > 1 else ''} to {percent(last.value, 1)} at {many}"
        + (f"; one head of the fixed total width has {percent(wide.value, 1)}." if wide else "."),
        caption=f"{NAMES[kind]}, {found.source}: {found.plan.train} sequences to train on, "
        f"{found.plan.layers} layers, {found.plan.seeds} seeds: mean and its bootstrap interval. Solid: "
        f"{found.plan.width} numbers a head. Dashed: {found.plan.total} in all, shared by the heads. Pale: the solid "
        f"models on {found.plan.held} sequences held out.{more}",
    )


def _panel(found: Found, length: int) -> CurvePanel:
    kind = found.plan.kind
    curves = [
        _curve(found, "growing", length, label=f"{found.plan.width} a head"),
        _curve(found, "fixed", length, label=f"{found.plan.total} in all", dash=True),
        _curve(found, "growing", length, held=True, label="held out", heads="muted"),
    ]
    if kind in PAPER and PAPER_LENGTH.get(kind, length) == length:
        heads, middle, low, high = PAPER[kind]
        curves.append(
            Curve(heads, middle, label="the paper", low=low, high=high, heads="muted", dash=True, points=True)
        )
    levels = []
    if length in found.baseline:
        levels.append(Level(found.baseline[length][1], "by similarity", kind="chance"))
    elif kind != "passages":
        levels.append(Level(0.1, "chance", kind="chance"))
    return CurvePanel(
        f"{length} {TOKENS[kind]}",
        [curve for curve in curves if curve is not None],
        Axis(domain=(0.0, 1.0), ticks=[0, 0.5, 1.0], format=lambda value: percent(value, 0)),
        levels,
        height=130,
    )


def _curve(
    found: Found,
    family: Family,
    length: int,
    *,
    label: str,
    dash: bool = False,
    held: bool = False,
    heads: str = "ink",
) -> Curve | None:
    measured = [(h, accuracy(found, family, length, h, held=held)) for h in found.heads(family)]
    rows = [(h, each) for h, each in measured if each is not None]
    if not rows:
        return None
    return Curve(
        [h for h, _ in rows],
        [each.value for _, each in rows],
        label=label,
        low=None if held else [each.low for _, each in rows],
        high=None if held else [each.high for _, each in rows],
        heads=heads,
        dash=dash,
        points=not held,
    )


def width_shares(rows: Sequence[Deficit]) -> Figure:
    """The share of the one-head deficit that is width, for each kind of data and length."""
    kinds = list(dict.fromkeys(row.data for row in rows))
    most = max(sum(row.data == kind for row in rows) for kind in kinds)
    table = np.full((len(kinds), most), np.nan)
    for line, kind in enumerate(kinds):
        for column, row in enumerate(sorted((r for r in rows if r.data == kind), key=lambda r: r.length)):
            table[line, column] = row.width.value
    columns = ["shortest", "middle", "longest"] if most == 3 else [f"length {k + 1}" for k in range(most)]
    lengths = {kind: listed(sorted(row.length for row in rows if row.data == kind)) for kind in kinds}
    shares = [row.width.value for row in rows if np.isfinite(row.width.value)]
    return effect_grid(
        table,
        rows=[NAMES[kind] for kind in kinds],
        columns=columns,
        limit=1.0,
        unit="share that is width",
        title="Heads or width",
        description=f"{percent(min(shares, default=0), 0)} to {percent(max(shares, default=0), 0)} of what one head "
        "lacks is width.",
        caption=f"1 minus the ratio of two gaps in training accuracy, both between one head and {rows[0].heads}: with "
        "the total width held fixed, and with a fixed width a head. 1: all of it was width. T = "
        + "; ".join(f"{lengths[kind]} ({kind})" for kind in kinds)
        + ".",
    )
