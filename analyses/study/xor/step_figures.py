"""The figures of one large step: how often it finds the targets, how large it must be, which starts part the heads."""

from __future__ import annotations

import numpy as np

from headlab.analyses.study.xor.measure import Results
from headlab.analyses.study.xor.sizes import whole
from headlab.interp.render import Axis, Curve, CurvePanel, Figure, curve_chart, number, percent


def one_step_curves(results: Results) -> Figure:
    """Success of one step against d, for several widths, with the intervals of m = 6 ln d."""
    bars = results.bars
    curves = []
    factors = sorted(results.widths)
    for rank, factor in enumerate(factors):
        cells = results.widths[factor]
        if factor == 6:
            continue
        curves.append(
            Curve(
                [c.bits for c in cells],
                [c.one_to_one.value for c in cells],
                label=f"m = {factor:g} ln d",
                heads="muted",
                dash=True,
                fade=0.5 * (1 - rank / max(1, len(factors) - 1)),
            )
        )
    curves.append(
        Curve(
            [c.bits for c in bars],
            [c.one_to_one.value for c in bars],
            label="m = 6 ln d",
            low=[c.one_to_one.low for c in bars],
            high=[c.one_to_one.high for c in bars],
            points=True,
        )
    )
    lowest = min(
        [c.one_to_one.value for cells in results.widths.values() for c in cells] + [c.one_to_one.low for c in bars]
    )
    seeds = f"{min(c.seeds for c in bars)} to {max(c.seeds for c in bars)} seeds"
    return curve_chart(
        [
            CurvePanel(
                "seeds with each head on a target of its own",
                curves,
                axis=Axis(domain=(max(0.0, np.floor(10 * lowest) / 10), 1.0), format=whole),
                height=260,
            )
        ],
        axis=Axis("bits d", scale="log"),
        title="One step",
        description=f"At m = 6 ln d the share of seeds rises from {percent(bars[0].one_to_one.value, 0)} at d = "
        f"{number(bars[0].bits)} to {percent(bars[-1].one_to_one.value, 0)} at d = {number(bars[-1].bits)}.",
        caption=f"One step on the exact population loss from the antisymmetric start, {seeds} a point at m = 6 ln d "
        "(band: exact 95 % interval). The loss needs no samples: it is a polynomial in power sums of the attention.",
    )


def step_sizes(results: Results) -> Figure:
    """Success and sharpness against the size of the step."""
    cells = results.kappas
    unit = np.sqrt(cells[0].width) * np.log(cells[0].bits)
    x = [c.kappa / unit for c in cells]
    return curve_chart(
        [
            CurvePanel(
                "share of seeds",
                [
                    Curve(
                        x,
                        [c.one_to_one.value for c in cells],
                        label="one to one",
                        low=[c.one_to_one.low for c in cells],
                        high=[c.one_to_one.high for c in cells],
                        points=True,
                    ),
                    Curve(
                        x,
                        [float((c.attention > 0.99).sum()) / c.seeds for c in cells],
                        label="and attention over .99",
                        dash=True,
                        points=True,
                    ),
                ],
                axis=Axis(domain=(0.0, 1.0), format=whole),
            )
        ],
        axis=Axis("step size κ in units of √m ln d (η = κ d² / 2)", scale="log"),
        title="How large a step",
        description="Success does not depend on the step size once it is large; sharpness does.",
        caption=f"d = {cells[0].bits}, m = {cells[0].width}, {cells[0].seeds} seeds a point. There is no upper limit: "
        "a larger step only sharpens what the first gradient chose.",
    )


def starts(results: Results) -> Figure:
    """How often both heads take one target, by start."""
    styles = {"antisymmetric": ("ink", False), "independent": ("muted", False), "orthogonal": ("muted", True)}
    curves = []
    for start, (colour, dash) in styles.items():
        cells = results.starts[start]
        curves.append(
            Curve(
                [c.bits for c in cells],
                [c.together.value for c in cells],
                label=start,
                low=[c.together.low for c in cells] if start != "orthogonal" else None,
                high=[c.together.high for c in cells] if start != "orthogonal" else None,
                heads=colour,
                dash=dash,
                points=True,
            )
        )
    equal = results.starts["equal"]
    return curve_chart(
        [CurvePanel("seeds with both heads on one target", curves, axis=Axis(format=whole))],
        axis=Axis("bits d", scale="log"),
        title="Starts",
        description="Both heads take one target less often the larger d is, from any start with two different queries.",
        caption=f"One step, m = 6 ln d, {equal[0].seeds} seeds a point, the same position vectors for every start; "
        f"bands: exact 95 % intervals. Two equal queries, the control, end on one target in "
        f"{percent(float(np.mean([c.together.value for c in equal])), 1)}.",
    )
