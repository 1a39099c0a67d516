"""The population gradient of two softmax heads as an expert would write it by hand, in NumPy."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def loss_and_gradient(
    queries: Float[np.ndarray, "*seed 2 width"], positions: Float[np.ndarray, "*seed position width"], i: int, j: int
) -> tuple[Float[np.ndarray, "*seed"], Float[np.ndarray, "*seed 2 width"]]:
    """The loss of each seed and its gradient in the queries, from the published formula; targets i and j."""
    weights = queries @ positions.swapaxes(-1, -2)
    weights -= weights.max(-1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(-1, keepdims=True)
    a, b = weights[..., 0, :], weights[..., 1, :]
    aa, bb, ab = (a * a).sum(-1), (b * b).sum(-1), (a * b).sum(-1)
    both = a * b
    right = a[..., i] * b[..., j] + a[..., j] * b[..., i]
    loss = aa * bb + 2 * ab**2 - 2 * (both * both).sum(-1) - 2 * right + 1
    slope = np.empty_like(weights)
    slope[..., 0, :] = 2 * bb[..., None] * a + 4 * (ab[..., None] - both) * b
    slope[..., 1, :] = 2 * aa[..., None] * b + 4 * (ab[..., None] - both) * a
    for head, other in ((0, b), (1, a)):
        slope[..., head, i] -= 2 * other[..., j]
        slope[..., head, j] -= 2 * other[..., i]
    slope -= (slope * weights).sum(-1, keepdims=True)
    slope *= weights
    return np.asarray(loss), slope @ positions
