"""Sparse parity from finitely many samples: the empirical loss, and one gradient at every sample size at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.models.attention_maps import attention_map
from headlab.models.xor.descent import Gradient
from headlab.models.xor.ensemble import Ensemble

CHUNK = 8192


def signs(
    count: int, bits: int, generator: np.random.Generator, dtype: torch.dtype = torch.float64
) -> Float[Tensor, "sample bit"]:
    """`count` inputs uniform on {-1, 1}^bits, eight bits from each random byte."""
    size = count * bits
    raw = np.frombuffer(generator.bytes((size + 7) // 8), dtype=np.uint8)
    drawn = torch.from_numpy(np.unpackbits(raw, count=size)).to(dtype).mul_(2).sub_(1)
    return drawn.view(count, bits)


def draw_samples(models: Ensemble, count: int, *, seed: int = 0) -> Float[Tensor, "seed sample bit"]:
    """A data set for each model. Row r's stream depends on `seed` and on the model's own seed only.

    The first n samples of a longer draw are not the n samples of a shorter one. ValueError for fewer than one sample.
    """
    if count < 1:
        raise RequestError(f"{count} samples: ask for at least one")
    return torch.stack(
        [
            signs(count, models.task.bits, np.random.default_rng((seed, own)), models.queries.dtype)
            for own in models.seeds
        ]
    ).to(models.queries.device)


def sample_objective(inputs: Float[Tensor, "seed sample bit"]) -> Gradient:
    """The mean squared error on fixed samples, one data set per model, and its gradient: full batch, exact."""

    def objective(models: Ensemble) -> tuple[Float[Tensor, " seed"], Float[Tensor, "seed head width"]]:
        labels = models.task.labels(inputs)
        with torch.enable_grad():
            leaf = models.queries.detach().requires_grad_(True)
            weights = attention_map(leaf @ models.positions.mT, models.kind)
            outputs = -(inputs @ weights.mT).prod(dim=-1)
            value = ((outputs - labels) ** 2).mean(dim=-1)
            (gradient,) = torch.autograd.grad(value.sum(), leaf)
        return value.detach(), gradient

    return objective


def gradients_by_sample_count(
    models: Ensemble, counts: Sequence[int], *, seed: int = 0
) -> Iterator[tuple[int, Float[Tensor, "seed head width"]]]:
    """(n, gradient of the mean squared error on the first n samples) for each n in `counts`, ascending, in one pass.

    Samples are drawn in pieces and summed, so that memory does not grow with n: a gradient costs n * d however many
    counts are asked for. Each model has a stream of its own. ValueError where `counts` do not ascend from at least 1.
    """
    if not counts or counts[0] < 1 or any(b <= a for a, b in pairwise(counts)):
        raise RequestError(f"sample counts must ascend from at least 1, got {list(counts)}")
    generators = [np.random.default_rng((seed, own)) for own in models.seeds]
    weights = models.attention()
    total = torch.zeros_like(weights)
    seen = 0
    for count in counts:
        while seen < count:
            piece = min(CHUNK, count - seen)
            for row, generator in enumerate(generators):
                inputs = signs(piece, models.task.bits, generator, weights.dtype).to(weights.device)
                total[row] += _attention_gradient(weights[row], inputs, models)
            seen += piece
        yield count, _through_attention(models, total / count)


def _attention_gradient(
    weights: Float[Tensor, "head position"], inputs: Float[Tensor, "sample bit"], models: Ensemble
) -> Float[Tensor, "head position"]:
    """d sum (f - y)^2 / d weights over the samples."""
    reads = inputs @ weights.T
    heads = reads.shape[-1]
    others = torch.stack([reads[:, [h for h in range(heads) if h != head]].prod(dim=-1) for head in range(heads)])
    residual = -reads.prod(dim=-1) - models.task.labels(inputs)
    return (-2 * residual * others) @ inputs


def _through_attention(
    models: Ensemble, gradient: Float[Tensor, "seed head position"]
) -> Float[Tensor, "seed head width"]:
    with torch.enable_grad():
        leaf = models.queries.detach().requires_grad_(True)
        weights = attention_map(leaf @ models.positions.mT, models.kind)
        (pulled,) = torch.autograd.grad(weights, leaf, grad_outputs=gradient)
    return pulled
