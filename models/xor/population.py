"""The population loss of sparse parity and its gradient, exact and in O(d m): no sampling.

The model is f(x) = -prod_h a_h.x with attention weights a_h = map(V theta_h), the label y = -prod_t x_t, the loss
E (f - y)^2 over x uniform on {-1, 1}^d, as many heads as targets. For two heads it reads
L = |a|^2 |b|^2 + 2 (a.b)^2 - 2 sum a^2 b^2 - 2 (a_i b_j + a_j b_i) + 1 (Han and Ghoshdastidar, arXiv 2502.07553).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.models.attention_maps import attention_map
from headlab.models.xor.moments import expected_parity, expected_square


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
    itself is O(position). Errors as for `loss`.
    """
    with torch.enable_grad():
        leaf = queries.detach().requires_grad_(True)
        value = loss(attention(leaf, positions, kind), targets)
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient
