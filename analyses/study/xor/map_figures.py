"""The figures of softmax attention beside linear and erf attention."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headlab.analyses.study.xor.maps import MapResult
from headlab.analyses.study.xor.measure import Results
from headlab.analyses.study.xor.sizes import scientific
from headlab.interp.render import Axis, Figure, StripRow, strip_chart

LETTERS = ("A", "B")
SHOWN_SEEDS = 16  # dots a row of a strip; more of them make it a tower
NAMES = {
    "softmax": "softmax",
    "linear": "linear",
    "erf": "erf",
    "normalised-linear": "linear, normalised",
    "normalised-erf": "erf, normalised",
}


def _rows(found: Sequence[MapResult], many: bool) -> list[StripRow]:
    rows = []
    for each in found:
        values = each.many if many else each.once
        loss = float(np.median(each.many_loss if many else each.once_loss))
        rows.append(
            StripRow(
                NAMES[each.kind],
                values[:SHOWN_SEEDS],
                note=f"η = {scientific(each.many_size if many else each.once_size)}",
                heads=LETTERS,
                result=f"{np.median(values):.3f}",
                result_note=f"loss {loss:.2f}" if loss < 10 else f"loss {scientific(float(round(loss)))}",
            )
        )
    return rows


def attention_maps(results: Results) -> list[Figure]:
    """Alignment with each attention map: after one step, and after many from either start."""
    paired = [each for each in results.maps if each.start == "antisymmetric"]
    independent = [each for each in results.maps if each.start == "independent"]
    best = max(float(np.median(each.once)) for each in paired if each.kind != "softmax")
    axis = Axis("alignment, one dot per seed", domain=(0.0, 1.0), ticks=[0, 0.25, 0.5, 0.75, 1.0])
    once = strip_chart(
        _rows(paired, many=False),
        axis=axis,
        result_heading="median",
        title="One step with each attention map",
        description=f"Softmax aligns to {np.median(paired[0].once):.2f}, every other map to at most {best:.2f}.",
        caption=f"One step, for each map the best of the same step sizes. {len(paired[0].once)} seeds, of which "
        f"{min(SHOWN_SEEDS, len(paired[0].once))} are drawn, antisymmetric start.",
    )
    figures = [once]
    if independent:
        figures.append(
            strip_chart(
                _rows(independent, many=True),
                axis=axis,
                result_heading="median",
                title="Many steps with each attention map",
                description="Only softmax concentrates on its targets, also after many steps from independent starts.",
                caption=f"{max(independent[0].steps)} steps at the size of the smallest loss, independent starts, "
                f"{len(independent[0].many)} seeds. Linear and erf attention have the right largest position and "
                "spread the rest of their weight over all others.",
            )
        )
    return figures
