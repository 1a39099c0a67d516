"""The closed form, the transformer and brute force: how far apart are they?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from headlab.models.attention_maps import ATTENTION_MAPS
from headlab.models.xor.architecture import QUERIES, to_model
from headlab.models.xor.descent import population_objective
from headlab.models.xor.ensemble import draw
from headlab.models.xor.task import XorTask

BAR = 1e-12


@dataclass(frozen=True)
class Equality:
    """One model in float64: largest differences, in units of the largest value where that is above 1.

    transformer: HookedTransformer against the formula, outputs. loss, gradient: population against the mean over all
    inputs, the gradient by autograd through the transformer.
    """

    bits: int
    heads: int
    kind: str
    transformer: float
    loss: float
    gradient: float

    @property
    def worst(self) -> float:
        """The largest of the three."""
        return max(self.transformer, self.loss, self.gradient)


def equality(sizes: Sequence[tuple[int, int]], *, width: int = 6, seeds: Sequence[int] = (0,)) -> list[Equality]:
    """Every (bits, heads) of `sizes` with every attention map, over all 2^bits inputs."""
    return [_one(bits, heads, kind, width, seed) for bits, heads in sizes for kind in ATTENTION_MAPS for seed in seeds]


def _one(bits: int, heads: int, kind: str, width: int, seed: int) -> Equality:
    targets = tuple(torch.randperm(bits, generator=torch.Generator().manual_seed(seed))[:heads].tolist())
    task = XorTask(bits, targets)
    models = draw(task, width=width, seeds=(seed,), start="independent", kind=kind)
    models = models.with_queries(3 * models.queries)
    model = to_model(models)
    examples = task.examples(count=None)
    queries = dict(model.named_parameters())[QUERIES]
    with torch.enable_grad():
        output = model(examples.inputs)[:, task.cls, 0]
        value = ((output - examples.targets[:, 0]) ** 2).mean()
        (slope,) = torch.autograd.grad(value, queries)
    formula = -(examples.inputs.double() @ models.attention()[0].T).prod(dim=-1)
    loss, gradient = population_objective(models)
    return Equality(
        bits=bits,
        heads=heads,
        kind=kind,
        transformer=_apart(output.detach(), formula),
        loss=_apart(value.detach(), loss[0]),
        gradient=_apart(slope, gradient[0]),
    )


def _apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1.0))
