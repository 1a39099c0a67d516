"""Numbers as a reader of the sparse parity report reads them."""

from __future__ import annotations

import numpy as np

from headlab.interp.render import percent


def scientific(value: float) -> str:
    """`0.01`, `30`, `3.2 × 10⁵`: a size for a reader."""
    if 0.001 <= value < 1000:
        return f"{value:.3g}"
    exponent = int(np.floor(np.log10(value) + 1e-9))
    digits = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    mantissa = value / 10.0**exponent
    return f"10{digits}" if abs(mantissa - 1) < 0.05 else f"{mantissa:.1f} × 10{digits}"


def whole(value: float) -> str:
    """A share in whole per cents."""
    return percent(value, 0)
