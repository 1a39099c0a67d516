"""The population loss of sparse parity and its gradient, exact and in O(d m): no sampling.

The model is f(x) = -prod_h a_h.x with attention weights a_h = map(V theta_h), the label y = -prod_t x_t, the loss
E (f - y)^2 over x uniform on {-1, 1}^d, as many heads as targets. For two heads it reads
L = |a|^2 |b|^2 + 2 (a.b)^2 - 2 sum a^2 b^2 - 2 (a_i b_j + a_j b_i) + 1 (Han and Ghoshdastidar, arXiv 2502.07553).
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.models.attention_maps import attention_map
from headlab.models.xor.moments import expected_parity, expected_square

Array = TypeVar("Array", Tensor, np.ndarray)
SMALL = 1 << 17  # numbers in the positions below which NumPy's cheaper calls outweigh torch's faster loops


def attention(
    queries: Float[Tensor, "*seed head width"], positions: Float[Tensor, "*seed position width"], kind: str = "softmax"
) -> Float[Tensor, "*seed head position"]:
    """What each head gives each position: `attention_map` of the scores theta_h . v_i."""
    return attention_map(queries @ positions.mT, kind)


def loss(weights: Float[Tensor, "*seed head position"], targets: tuple[int, ...]) -> Float[Tensor, "*seed"]:
    """E (f - y)^2 over all 2^d inputs, from the attention weights alone. Differentiable.

    Raises ValueError where there are not as many heads as targets, or more than six of them.
    """
    if weights.shape[-2] != len(targets):
        raise RequestError(f"{weights.shape[-2]} heads for {len(targets)} targets: the model takes one head per target")
    return expected_square(weights) - 2 * expected_parity(weights, targets) + 1


def loss_and_gradient(
    queries: Float[Tensor, "*seed head width"],
    positions: Float[Tensor, "*seed position width"],
    targets: tuple[int, ...],
    kind: str = "softmax",
) -> tuple[Float[Tensor, "*seed"], Float[Tensor, "*seed head width"]]:
    """The population loss and its gradient in the queries; one seed does not see another.

    Time and memory are O(position * width) a seed for a fixed number of heads, of which the memory beyond `positions`
    itself is O(position). Two softmax heads take a closed form, other models automatic differentiation. Errors as for
    `loss`.
    """
    if kind == "softmax" and queries.shape[-2] == len(targets) == 2:
        if positions.device.type == "cpu" and positions.numel() < SMALL:
            value, gradient = _two_heads_numpy(queries.numpy(force=True), positions.numpy(force=True), targets)
            return torch.from_numpy(np.asarray(value)), torch.from_numpy(gradient)
        with torch.no_grad():
            return _two_heads(attention(queries, positions), positions, targets, [1, 0])
    with torch.enable_grad():
        leaf = queries.detach().requires_grad_(True)
        value = loss(attention(leaf, positions, kind), targets)
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient


def _two_heads_numpy(queries: np.ndarray, positions: np.ndarray, targets: tuple[int, ...]) -> tuple[Any, np.ndarray]:
    alone = queries.ndim == 3 and len(queries) == 1
    if alone:  # a product of matrices is cheaper to call than one of stacks
        queries, positions = queries[0], positions[0]
    if queries.ndim == 2:
        scores = queries @ positions.T
    else:  # a stack of small products is fastest with both factors laid out row by row
        scores = np.ascontiguousarray((positions @ np.ascontiguousarray(queries.swapaxes(-1, -2))).swapaxes(-1, -2))
    scores -= np.maximum.reduce(scores, -1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= np.add.reduce(scores, -1, keepdims=True)
    value, gradient = _two_heads(scores, positions, targets, slice(None, None, -1))
    return (np.asarray(value)[None], gradient[None]) if alone else (value, gradient)


def _two_heads(weights: Array, positions: Array, targets: tuple[int, ...], swapped: Any) -> tuple[Any, Array]:
    """The formula at the top of this module and its gradient, without a graph; arrays of torch or of NumPy.

    With products of vectors entry by entry, g = dL/da = 2 |b|^2 a + 4 (a.b - a b) b - 2 (b_j e_i + b_i e_j), which
    softmax turns into a (g - a.g), and the positions into dL/dtheta. a.g = 2 (L - 1) + 2 (a_i b_j + a_j b_i) would need
    no sum, but the difference g_i - a.g of a head that is saturated on i must be an exact 0: steps of a fixed length
    follow whatever rounding leaves there. swapped: an index that swaps two entries.
    """
    i, j = targets
    a, b = weights[..., 0, :], weights[..., 1, :]
    gram = weights @ weights.swapaxes(-1, -2)
    overlap, both, other = gram[..., 0, 1], a * b, weights[..., swapped, :]
    right = 2 * (a[..., i] * b[..., j] + a[..., j] * b[..., i])
    squares = (both[..., None, :] @ both[..., None])[..., 0, 0]
    excess = gram[..., 0, 0] * gram[..., 1, 1] + 2 * overlap * overlap - 2 * squares - right  # L - 1
    slope = cast("Any", (4 * (overlap[..., None] - both))[..., None, :] * other)
    slope += 2 * gram.diagonal(0, -2, -1)[..., swapped][..., None] * weights
    slope[..., i] -= 2 * other[..., j]
    slope[..., j] -= 2 * other[..., i]
    return excess + 1, (weights * (slope - (weights * slope).sum(-1)[..., None])) @ positions
