"""Two sequences that a given model can hardly tell apart, although their targets differ: its bottleneck, shown.

What the read-out gets of a sequence is the residual stream at the CLS. Where two sequences with targets H1, H2 give
nearly the same one, the answers f1, f2 are nearly equal too, so that on one of the two the model errs by at least
(|H1 - H2| - |f1 - f2|) / 2, whatever its read-out is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.interp.model import HookedModel, run, untouched
from headlab.models.retrieval.family import Family
from headlab.models.retrieval.task import RetrievalTask

READ = "unembed.hook_in"
APART = 2.0  # standard deviations of the target by which the two targets are asked to differ
BOX = 3.5  # Gaussian tokens are searched up to this many standard deviations
SAMPLE = 1024
SMALLEST = 1e-10  # of the largest variance: below it a direction of the read-out's input is constant


@dataclass(frozen=True)
class Witness:
    """Two sequences, what the model makes of them, and the error that they force.

    targets, outputs: H and f of each, in the target's units; sigma: the standard deviation of the target there.
    distance: how far apart the read-out's inputs are, whitened, relative to two random sequences (1). forced:
    (|H1 - H2| - |f1 - f2|) / 2 / sigma, at least which the model errs by on one of the two; negative where it tells
    them further apart than it should. attempts: that figure for every start.
    """

    sequences: Float[Tensor, "2 position feature"]
    targets: tuple[float, float]
    outputs: tuple[float, float]
    sigma: float
    distance: float
    forced: float
    attempts: tuple[float, ...]

    @property
    def errors(self) -> tuple[float, float]:
        """|f - H| of each sequence, in standard deviations of the target; the larger is at least `forced`."""
        first, second = (abs(f - y) / self.sigma for f, y in zip(self.outputs, self.targets, strict=True))
        return first, second


def find_witness(
    model: HookedModel,
    task: RetrievalTask,
    *,
    seed: int = 0,
    starts: int = 8,
    steps: int = 400,
    lr: float = 0.05,
) -> Witness:
    """Search for the pair that forces the largest error: Adam on `starts` pairs together, in the model's dtype.

    Minimised is |w(r1 - r2)|^2 + 10 relu(2 - |H1 - H2| / sigma)^2, r the read-out's input and w its whitening over a
    sample; tokens stay where the task's distribution is, |x| <= 3.5 for Gaussian ones and [0, 1] for uniform ones. Of
    each start the pair with the smallest value is kept, of the starts the one that forces the largest error. Half of
    the starts are one sequence and a disturbed copy, half are two sequences. The model is left as it was.
    Raises ValueError for no starts or steps.
    """
    if starts < 1 or steps < 1:
        raise RequestError(f"{starts} starts of {steps} steps: there must be at least 1 of each")
    family = task.family
    generator = torch.Generator().manual_seed(seed)
    device, dtype = _place(model)
    sample = family.draw(SAMPLE, generator).to(device, dtype)
    with untouched(model):
        received = _received(model, sample)[1]
    white, size = _whitening(received)
    sigma = float(family.target(sample).double().std())
    with untouched(model, gradients=True):
        pairs = _starting_pairs(family, starts, generator).to(device, dtype).requires_grad_(True)
        optimiser = torch.optim.Adam([pairs], lr=lr)
        best: tuple[Tensor, ...] | None = None
        for _ in range(steps + 1):
            outputs, received = _received(model, pairs.flatten(0, 1))
            targets = family.target(pairs)  # [start, 2]
            apart = (targets[:, 0] - targets[:, 1]).abs() / sigma
            inputs = received.unflatten(0, (starts, 2))
            between = ((inputs[:, 0] - inputs[:, 1]) @ white).square().sum(dim=1)
            answers = outputs.unflatten(0, (starts, 2))
            told = (answers[:, 0] - answers[:, 1]).abs() / sigma
            losses = between + 10 * (APART - apart).relu().square()
            best = _better(best, pairs, targets, answers, between, (apart - told) / 2, losses)
            (pairs.grad,) = torch.autograd.grad(losses.sum(), [pairs])
            optimiser.step()
            with torch.no_grad():
                low, high = (-BOX, BOX) if family.kind == "projection" else (0.0, 1.0)
                pairs.clamp_(low, high)
    assert best is not None
    sequences, targets, answers, between, forced, _ = best
    row = int(forced.argmax())
    return Witness(
        sequences=sequences[row].cpu(),
        targets=(float(targets[row, 0]), float(targets[row, 1])),
        outputs=(float(answers[row, 0]), float(answers[row, 1])),
        sigma=sigma,
        distance=float((between[row] / (2 * size)).sqrt()),
        forced=float(forced[row]),
        attempts=tuple(forced.tolist()),
    )


def _place(model: Any) -> tuple[torch.device, torch.dtype]:
    parameter = next(iter(model.parameters()))
    return parameter.device, parameter.dtype


def _received(model: HookedModel, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The answers [example] and what the read-out gets [example, model], both with gradients where those are on."""
    kept: list[Tensor] = []
    answers = run(model, tokens, {READ: partial(_keep, kept=kept)})[:, -1, 0]
    return answers, kept[0]


def _keep(residual: Tensor, hook: Any, *, kept: list[Tensor]) -> None:
    kept.append(residual[:, -1])


def _whitening(received: Float[Tensor, "example model"]) -> tuple[Float[Tensor, "model direction"], int]:
    """The map to uncorrelated directions of variance 1, and how many there are; constant directions are left out."""
    centred = (received - received.mean(dim=0)).double()
    variance, directions = torch.linalg.eigh(centred.T @ centred / len(centred))
    kept = variance > SMALLEST * variance.max()
    return (directions[:, kept] / variance[kept].sqrt()).to(received), int(kept.sum())


def _starting_pairs(
    family: Family, starts: int, generator: torch.Generator
) -> Float[Tensor, "start 2 position feature"]:
    pairs = family.draw(2 * starts, generator).unflatten(0, (starts, 2)).clone()
    spread = 1.0 if family.kind == "projection" else 0.3
    copies = starts // 2
    pairs[:copies, 1] = pairs[:copies, 0]
    return pairs + 0.1 * spread * torch.randn(pairs.shape, generator=generator)


def _better(best: tuple[Tensor, ...] | None, *now: Tensor) -> tuple[Tensor, ...]:
    """Per start, the pair of the smaller loss, which is the last of `now`."""
    fresh = tuple(value.detach().clone() for value in now)
    if best is None:
        return fresh
    less = fresh[-1] < best[-1]
    return tuple(
        torch.where(less.view(-1, *[1] * (new.ndim - 1)), new, old) for new, old in zip(fresh, best, strict=True)
    )
