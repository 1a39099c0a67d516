"""How fast this machine multiplies, and how far a measured time is from the least that its operations could take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

SIZE = 768  # a product of this size stays in cache and is bound by arithmetic
SPENT = 0.3  # CPU seconds for one rate


def multiply_adds_per_second(dtype: torch.dtype = torch.float32) -> float:
    """The best rate of a large matrix product on one thread, in multiply-adds per CPU second."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(SIZE, SIZE, generator=generator).to(dtype) for _ in range(2))
    out = torch.empty(SIZE, SIZE, dtype=dtype)
    best, begun = float("inf"), time.process_time()
    while time.process_time() - begun < SPENT or best == float("inf"):
        start = time.process_time()
        torch.mm(left, right, out=out)
        best = min(best, max(time.process_time() - start, 1e-9))
    return SIZE**3 / best


def beside_floor(cases: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Add `floor` to every case that has `work` and `seconds` (ours, CPU): the seconds that its least operations take
    at this machine's rate, and how many times that ours took. Returns the rates by dtype.
    """
    rates: dict[str, float] = {}
    for case in cases:
        work, seconds = case.get("work"), case.get("seconds")
        if not work or not seconds or not work.get("floor"):
            case["floor"] = None
            continue
        dtype = case.get("dtype", "float32")
        if dtype not in rates:
            rates[dtype] = multiply_adds_per_second(getattr(torch, dtype))
        least = work["floor"] / rates[dtype]
        case["floor"] = {"seconds": least, "times": seconds / least}
    return rates
