"""What the sparse XOR study measures, part by part: in full, and quickly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil, log, sqrt
from typing import Any

from headlab.analyses.options.xor import StudyOptions
from headlab.analyses.study.frame import Part
from headlab.interp.errors import RequestError

MODULE = "headlab.analyses.study.xor"
STARTS = ("antisymmetric", "independent", "orthogonal", "equal")
ANGLES = (0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 13.0, 23.0, 45.0, 90.0, 120.0, 150.0, 180.0)  # degrees between the queries
SMALL = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)  # samples in units of d²
MANY = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # samples in units of d


def width_of(bits: int, factor: float = 6.0) -> int:
    """m = factor ln d; 6 ln d, rounded up, is enough for one step at every d that was measured."""
    return ceil(6 * log(bits)) if factor == 6.0 else max(1, round(factor * log(bits)))


def plan(options: StudyOptions) -> list[Part]:
    """The parts, in order. Raises ValueError for a device other than the CPU, on which the closed forms run."""
    if options.common.device != "cpu":
        raise RequestError(f"the sparse XOR study runs on the CPU, not on {options.common.device}: leave out --device")
    sizes: Mapping[str, Mapping[str, Any]] = QUICK if options.quick else FULL
    return parts(sizes, options.common.seed)


def parts(sizes: Mapping[str, Mapping[str, Any]], seed: int) -> list[Part]:
    """A part for each entry of `sizes`, with the seed as part of its configuration."""
    return [
        Part(name, f"{MODULE}.{MEASURES[name]}", {**config, "seed": seed}, VERSIONS.get(name, 1))
        for name, config in sizes.items()
    ]


def _cells(bits: Iterable[int], seeds: int, *, factor: float = 6.0, **more: Any) -> list[dict[str, Any]]:
    return [{"bits": b, "width": width_of(b, factor), "factor": factor, "seeds": seeds, **more} for b in bits]


def _kappas(bits: int, seeds: int, factors: Iterable[float]) -> list[dict[str, Any]]:
    unit = sqrt(width_of(bits)) * log(bits)
    return [cell | {"kappa": factor * unit} for factor in factors for cell in _cells([bits], seeds)]


def _curve(method: str, bits: int, seeds: int, factors: Iterable[float], *, width: int | None = None) -> dict[str, Any]:
    unit = bits**2 if method == "one step" else bits
    counts = [max(1, round(factor * unit)) for factor in factors]
    return {"method": method, "bits": bits, "width": width or width_of(bits), "seeds": seeds, "counts": counts}


def _powers(low: float, high: float, step: float) -> list[float]:
    return [10.0 ** (low + index * step) for index in range(round((high - low) / step) + 1)]


MEASURES = {
    "equality": "measure:equality",
    "one-step": "measure:steps",
    "widths": "measure:steps",
    "step-sizes": "measure:steps",
    "starts": "measure:steps",
    "angles": "measure:angles",
    "first-gradient": "measure:first_gradient",
    "scale": "scale:scales",
    "maps": "maps:maps",
    "samples-one-step": "samples:samples",
    "samples-many-steps": "samples:samples",
    "samples-wide": "samples:samples",
    "samples-by-width": "samples:samples",
    "parity": "measure:parity",
    "networks": "measure:networks",
    "smallest-attention": "measure:smallest_attention",
    "heads": "heads:heads",
}
VERSIONS: dict[str, int] = {}

FULL: dict[str, dict[str, Any]] = {
    "equality": {"sizes": [[8, 2], [10, 2], [12, 2], [8, 3], [10, 3], [8, 4], [10, 4]], "width": 6, "seeds": 2},
    "one-step": {
        "group": "size",
        "cells": [
            *_cells((32, 64, 100, 128, 256, 316), 400),
            *_cells((1000, 1024, 3162), 200),
            *_cells((10_000, 31_623), 100),
            *_cells((100_000,), 60),
            *_cells((316_228, 1_000_000), 24),
        ],
    },
    "widths": {
        "group": "width",
        "cells": [
            cell
            for factor in (2.0, 3.0, 4.0, 10.0, 16.0)
            for cell in _cells((32, 64, 256, 1024, 4096), 200, factor=factor)
        ],
    },
    "step-sizes": {"group": "kappa", "cells": _kappas(256, 200, (1 / 64, 1 / 16, 1 / 4, 1.0, 4.0, 32.0, 1024.0))},
    "starts": {
        "group": "start",
        "cells": [cell for start in STARTS for cell in _cells((32, 64, 128, 256, 512, 1024), 400, start=start)],
    },
    "angles": {"cells": _cells((64, 256, 1024), 500), "angles": ANGLES},
    "first-gradient": {"cells": _cells((64, 256, 1024, 4096), 100)},
    "scale": {"sizes": [[100_000, 96], [1_000_000, 96]]},
    "maps": {
        "bits": 64,
        "width": 32,
        "seeds": 40,
        "few": 8,
        "sizes": _powers(-6.0, 10.0, 0.5),
        "coarse": _powers(-4.0, 6.0, 1.0),
        "steps": 500,
    },
    "samples-one-step": {
        "curves": [
            _curve("one step", 32, 200, (*SMALL, 4.0)),
            *(_curve("one step", bits, 100, SMALL) for bits in (64, 128, 256)),
            _curve("one step", 512, 60, SMALL),
        ],
        "exponents": [["one_to_one", "bits"], ["on_support", "bits"]],
    },
    "samples-many-steps": {
        "curves": [
            _curve("many steps", 32, 100, (0.25, *MANY)),
            _curve("many steps", 64, 100, MANY),
            *(_curve("many steps", bits, 60, MANY) for bits in (128, 256)),
            _curve("many steps", 512, 40, MANY[1:]),
        ],
        "exponents": [["one_to_one", "bits"]],
    },
    "samples-wide": {
        "curves": [
            _curve("many steps, m = d", 32, 60, (0.25, *MANY), width=32),
            _curve("many steps, m = d", 64, 60, MANY, width=64),
            _curve("many steps, m = d", 128, 40, MANY, width=128),
            _curve("many steps, m = d", 256, 40, MANY[:-1], width=256),
        ],
        "exponents": [["one_to_one", "bits"]],
    },
    "samples-by-width": {
        "curves": [
            _curve("one step", 128, 100, (1 / 64, *(2.0**power for power in range(-5, 3))), width=width)
            for width in (16, 32, 64, 128)
        ],
        "exponents": [["on_support", "width"], ["one_to_one", "width"]],
    },
    "parity": {
        "heads": [3, 4, 5, 6],
        "bits": [64, 256],
        "seeds": 20,
        "starts": STARTS[:3],
        "methods": ["one-step", "normalised", "in-turn"],
    },
    "networks": {
        "sizes": [[bits, n] for bits in (32, 64, 128, 256) for n in (2, 4, 8)] + [[512, 4]],
        "seeds": 8,
        "steps": 250,
    },
    "smallest-attention": {"bits": [32, 64, 128, 256, 512, 1024, 4096, 16_384], "seeds": 100, "level": 0.75},
    "heads": {"bits": 32, "seeds": 16, "untrained": 64, "small_size": 0.5, "small_steps": 32, "spine_bits": 256},
}

QUICK: dict[str, dict[str, Any]] = {
    "equality": {"sizes": [[8, 2], [8, 3], [8, 4]], "width": 6, "seeds": 2},
    "one-step": {"group": "size", "cells": [*_cells((32, 64, 256, 1024), 100), *_cells((10_000,), 40)]},
    "widths": {
        "group": "width",
        "cells": [cell for factor in (2.0, 4.0) for cell in _cells((64, 256, 1024), 60, factor=factor)],
    },
    "step-sizes": {"group": "kappa", "cells": _kappas(64, 60, (1 / 16, 1.0, 32.0, 1024.0))},
    "starts": {
        "group": "start",
        "cells": [cell for start in STARTS for cell in _cells((64, 256, 1024), 120, start=start)],
    },
    "angles": {"cells": _cells((64, 256), 200), "angles": (1.0, 8.0, 23.0, 90.0, 180.0)},
    "first-gradient": {"cells": _cells((64, 256), 40)},
    "maps": {
        "bits": 64,
        "width": 32,
        "seeds": 12,
        "few": 4,
        "sizes": _powers(-4.0, 8.0, 1.0),
        "coarse": _powers(-3.0, 5.0, 1.0),
        "steps": 100,
    },
    "parity": {
        "heads": [3, 4],
        "bits": [64],
        "seeds": 20,
        "starts": STARTS[:3],
        "methods": ["one-step", "normalised"],
    },
    "networks": {"sizes": [[32, 4], [64, 4], [128, 4]], "seeds": 4, "steps": 250},
    "smallest-attention": {"bits": [32, 64, 128, 256, 1024], "seeds": 40, "level": 0.75},
    "heads": {"bits": 32, "seeds": 4, "untrained": 64, "small_size": 0.5, "small_steps": 32, "spine_bits": 256},
}
