"""The diverging scale: numbers in, one of thirteen colours with zero in the middle out."""

from __future__ import annotations

from typing import Any, SupportsFloat

import numpy as np

from headlab.interp.errors import RequestError
from headlab.interp.render.svg import Element, group, n, path
from headlab.interp.render.text import Real

STEPS = 6


def array(values: Any) -> np.ndarray:
    """Numbers from a list, numpy or torch, on any device, as float64. Raises ValueError for what holds no numbers."""
    if hasattr(values, "detach"):
        values = values.detach().to("cpu").double().numpy()
    elif not isinstance(values, np.ndarray) and hasattr(values, "__iter__"):
        values = [array(value) if hasattr(value, "__iter__") else float(value) for value in values]
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise RequestError(f"numbers of one rectangular shape are needed: {problem}") from problem


def symmetric_limit(values: Any) -> Real:
    """Where the diverging scale ends, on both sides: the 99th percentile of |value|, the largest where that is 0.

    NaN is left out; 1.0 where there is nothing, or nothing but zeros.
    """
    size = np.abs(array(values))
    size = size[np.isfinite(size)]
    if size.size == 0 or size.max() == 0:
        return 1.0
    limit = float(np.percentile(size, 99))
    return limit if limit > 0 else float(size.max())


def diverging_step(value: SupportsFloat, limit: SupportsFloat) -> int:
    """Which colour a value takes: -6 .. 6. Within 10 % of the limit it is 0; the rest is six equal steps a side."""
    share = abs(float(value)) / float(limit)
    if not share >= 0.1:
        return 0
    step = min(1 + int((share - 0.1) / (0.9 / STEPS)), STEPS)
    return step if float(value) > 0 else -step


def step_colour(step: int) -> str:
    """The palette's name of a step -6 .. 6 of the diverging scale."""
    if step == 0:
        return "zero"
    return f"{'pos' if step > 0 else 'neg'}-{abs(step)}"


def heat(values: Any, limit: SupportsFloat, x: Real, y: Real, width: Real, height: Real | None = None) -> Element:
    """Signed values [row, column] as cells of `width` by `height` px, a path for each colour; cells that are zero or
    NaN are left to what lies below. Cells of 5 px and more stand a pixel apart."""
    height = width if height is None else height
    table = array(values)
    steps = np.zeros(table.shape, dtype=int)
    for index, value in np.ndenumerate(table):
        steps[index] = diverging_step(value, limit)
    gap = 1.0 if min(width, height) >= 5 else 0.0
    whole = group(transform=f"translate({n(x)} {n(y)})")
    shape = f"h{n(width - gap)}v{n(height - gap)}h{n(gap - width)}z"
    for step in sorted(set(steps.flat) - {0}):
        d = "".join(f"M{n(width * column)} {n(height * row)}{shape}" for row, column in zip(*np.nonzero(steps == step)))
        whole.add(path(d, fill=step_colour(int(step))))
    return whole


def dashes(values: Any, limit: SupportsFloat, x: Real, y: Real, width: Real, height: Real) -> Element:
    """A dash in each cell that is negative, so that the sign can be told without the colour."""
    whole = group(transform=f"translate({n(x)} {n(y)})", fill="none", stroke_width=1.2)
    half = min(width, height) * 0.2
    by_step: dict[int, list[str]] = {}
    for (row, column), value in np.ndenumerate(array(values)):
        step = diverging_step(value, limit)
        if step < 0:
            place = f"M{n(width * (column + 0.5) - half - 0.5)} {n(height * (row + 0.5) - 0.5)}h{n(2 * half)}"
            by_step.setdefault(step, []).append(place)
    for step, places in sorted(by_step.items()):
        whole.add(path("".join(places), stroke=f"on-{step_colour(step)}" if step <= -4 else "neg-5"))
    return whole
