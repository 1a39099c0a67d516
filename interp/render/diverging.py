"""The diverging scale: numbers in, one of thirteen colours with zero in the middle out."""

from __future__ import annotations

from typing import Any, SupportsFloat

import numpy as np

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
        raise ValueError(f"numbers of one rectangular shape are needed: {problem}") from problem


def symmetric_limit(values: Any) -> float:
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
