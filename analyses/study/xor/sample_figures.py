"""The figures of training on finite samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headlab.analyses.study.xor.measure import Samples
from headlab.analyses.study.xor.samples import SampleCurve
from headlab.analyses.study.xor.sizes import scientific, whole
from headlab.interp.render import Axis, Curve, CurvePanel, Figure, Level, curve_chart


def _share_curves(curves: Sequence[SampleCurve]) -> list[Curve]:
    drawn = []
    for rank, curve in enumerate(curves):
        drawn.append(
            Curve(
                np.asarray(curve.counts) / curve.bits**2,
                curve.one_to_one.mean(axis=0),
                label=f"d = {curve.bits}",
                fade=0.6 * (1 - rank / max(1, len(curves) - 1)),
            )
        )
    return drawn


def sample_success(samples: Samples) -> Figure:
    """One step on n samples: success against n / d^2."""
    return curve_chart(
        [
            CurvePanel(
                "seeds with each head on a target of its own",
                _share_curves(samples.once),
                axis=Axis(domain=(0.0, 1.0), format=whole),
                levels=[Level(0.5, "one half", kind="chance")],
            )
        ],
        axis=Axis("samples n / d²", scale="log"),
        title="One step on samples",
        description="The curves of all d fall on each other once n is counted in d².",
        caption=f"One large step on the first n of a stream of samples, {min(len(c.one_to_one) for c in samples.once)} "
        f"to {max(len(c.one_to_one) for c in samples.once)} seeds a curve.",
    )


def samples_needed(samples: Samples) -> Figure:
    """Samples for one half of the seeds against d, with the fitted exponents."""
    named = (
        (samples.once_exponent, "one step", "ink", False),
        (samples.many_exponent, "many steps", "muted", False),
        (samples.wide_exponent, "many steps, m = d", "muted", True),
    )
    curves = [
        Curve(
            list(each.needed),
            list(each.needed.values()),
            label=label,
            note=f"n ~ d^{each.value:.2f} [{each.low:.2f}, {each.high:.2f}]",
            heads=colour,
            dash=dash,
            points=True,
        )
        for each, label, colour, dash in named
    ]
    once, many = samples.once_exponent, samples.many_exponent
    return curve_chart(
        [CurvePanel("samples for half of the seeds", curves, axis=Axis(scale="log", format=scientific), height=260)],
        axis=Axis("bits d", scale="log"),
        title="Samples needed",
        description=f"One step needs samples as d to the {once.value:.2f}, many steps as d to the {many.value:.2f}.",
        caption="n at which half of the seeds have each head on a target of its own. Many steps: 150 normalised steps "
        "of length 1/2 on fixed samples. Exponents with 95 % bootstrap intervals over seeds.",
    )
