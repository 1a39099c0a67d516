"""The figures of what grows with the input: parameters, and more bits than two."""

from __future__ import annotations

import numpy as np

from headlab.analyses.study.xor.measure import Results
from headlab.analyses.study.xor.networks import smallest_networks
from headlab.analyses.study.xor.parity import STARTS
from headlab.interp.render import Axis, Curve, CurvePanel, Figure, curve_chart, effect_grid


def parameters(results: Results) -> Figure:
    """Trainable parameters against d: the smallest networks and attention models that learn."""
    nets, attention = smallest_networks(results.networks), results.attention
    four = {n.bits: n.parameters for n in results.networks if n.neurons == 4 and n.learned.value >= 0.5}
    sizes = np.geomspace(min(attention), max(attention), 24)
    return curve_chart(
        [
            CurvePanel(
                "trainable parameters",
                [
                    Curve(sorted(four), [four[b] for b in sorted(four)], label="four neurons, 4d + 9", points=True),
                    Curve(
                        sorted(nets),
                        [nets[b].parameters for b in sorted(nets)],
                        label="smallest network",
                        heads="muted",
                        dash=True,
                        points=True,
                    ),
                    Curve(
                        sorted(attention),
                        [2 * attention[b].width for b in sorted(attention)],
                        label="smallest attention, 2m",
                        points=True,
                    ),
                    Curve(sizes, 12 * np.log(sizes), label="m = 6 ln d", heads="muted", dash=True),
                ],
                axis=Axis(scale="log"),
                height=260,
            )
        ],
        axis=Axis("bits d", scale="log"),
        title="Parameters",
        description="Networks that learn have parameters in proportion to d; the queries of attention grow as ln d.",
        caption="Smallest sizes that learn: networks by Adam on fresh samples within 250 steps (90 % of the seeds), "
        "attention by one population step (75 % of the seeds). The position vectors of attention, d m numbers, are "
        "frozen and not counted. No network is claimed to fail.",
    )


def more_bits(results: Results) -> Figure:
    """Share of one-to-one seeds for k > 2, by method, start, k and d."""
    cells = results.parity
    methods = list(dict.fromkeys(c.method for c in cells))
    starting = [start for start in STARTS if any(c.start == start for c in cells)]
    columns = list(dict.fromkeys((c.heads, c.bits) for c in cells))
    table = np.full((len(methods), len(starting), len(columns)), np.nan)
    for c in cells:
        place = methods.index(c.method), starting.index(c.start), columns.index((c.heads, c.bits))
        table[place] = c.one_to_one.value
    return effect_grid(
        table,
        rows=starting,
        columns=[f"k={heads} d={bits}" for heads, bits in columns],
        panels=[
            {"one-step": "one step", "normalised": "normalised steps", "in-turn": "heads in turn"}[m] for m in methods
        ],
        limit=1.0,
        missing="an odd number of heads has no antisymmetric start",
        unit="share of seeds",
        title="More than two bits",
        description="One step is near chance for k > 2; 150 normalised steps are right from every start.",
        caption=f"Share of {cells[0].one_to_one.trials} seeds with each head on a target of its own, m = 6 ln d. "
        "Normalised: 150 steps of length 1/2, all heads at once. In turn: 4k steps of length 100, one head each.",
    )
