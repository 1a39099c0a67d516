"""Losses by name, one number per example, so that a mean over examples (or over some of them) is the caller's."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float, Int
from torch import Tensor

from headlab.interp.errors import UnknownName


def cross_entropy(logits: Float[Tensor, "*batch class"], targets: Int[Tensor, ...]) -> Float[Tensor, "*batch"]:
    """-ln p(target), in nats; `targets` broadcasts over leading axes such as the seed's."""
    return -_log_probability(logits, targets)


def generalised_cross_entropy(
    logits: Float[Tensor, "*batch class"], targets: Int[Tensor, ...], q: float = 0.7
) -> Float[Tensor, "*batch"]:
    """(1 - p(target)^q) / q, in [0, 1/q]: cross-entropy as q -> 0, 1 - p at q = 1 (Zhang and Sabuncu 2018).

    Bounded, so an example that cannot be had is given up instead of being traded against those that can.
    """
    return (1 - (q * _log_probability(logits, targets)).exp()) / q


def squared_error(outputs: Float[Tensor, "*batch"], targets: Float[Tensor, ...]) -> Float[Tensor, "*batch"]:
    """(output - target)^2, in the target's units squared."""
    return (outputs - targets).square()


def loss_function(name: str, q: float = 0.7) -> Callable[..., Tensor]:
    """The loss that a recipe names: `cross_entropy`, `gce` (with its q) or `mse`. Raises UnknownName listing these."""
    if name == "cross_entropy":
        return cross_entropy
    if name == "gce":
        return lambda logits, targets: generalised_cross_entropy(logits, targets, q)
    if name == "mse":
        return squared_error
    raise UnknownName(f"unknown loss '{name}': choose cross_entropy, gce or mse")


def _log_probability(logits: Tensor, targets: Tensor) -> Tensor:
    index = targets.expand(logits.shape[:-1]).unsqueeze(-1)
    # torch's log_softmax is several times slower over a few classes than these two steps are
    return logits.gather(-1, index).squeeze(-1) - logits.logsumexp(-1)
