"""The feed-forward baseline: one hidden ReLU layer that reads all bits, so that every neuron pays for every bit.

With n neurons n d + 2 n + 1 numbers touch the answer, 4 d + 9 for four. Two neurons can hold the sparse XOR, since
-x_i x_j = 1 - relu(x_i + x_j) - relu(-x_i - x_j). Training draws fresh samples at every step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.models.hooked import HookedTransformer, build
from headlab.models.learner import Measures
from headlab.models.recipe import Recipe
from headlab.models.training import fit
from headlab.models.training_log import TrainingRun
from headlab.models.xor.architecture import feedforward_architecture
from headlab.models.xor.task import XorTask

HELD_OUT = 2048
SOLVED = 0.05  # mean squared error; a constant answer has 1


def recipe(task: XorTask, *, steps: int = 600) -> Recipe:
    """Adam at .05 on 16 d fresh samples a step, until every seed's held-out error is under .05."""
    return Recipe(
        loss="mse",
        steps=steps,
        lr=0.05,
        betas=(0.9, 0.999),
        clip=None,
        warmup=0,
        batch=16 * task.bits,
        check=10,
        record=12,
        stop=True,
    )


def parameters(task: XorTask, neurons: int) -> int:
    """How many numbers touch the answer: n d + 2 n + 1."""
    return neurons * task.bits + 2 * neurons + 1


class FeedForwardLearner:
    """Many seeds of the network side by side; each draws its own samples. Implements models.learner.Learner.

    The first d rows of W_in and the last column of W_out are the leaves; what else the HookedTransformer's layer has
    is 0 and never read.
    """

    stacked = True

    def __init__(
        self, task: XorTask, neurons: int, seeds: Sequence[int], *, batch: int, device: str = "cpu", held_out: int = 0
    ) -> None:
        self.task, self.neurons, self.seeds = task, neurons, tuple(seeds)
        self.architecture = feedforward_architecture(task, neurons)
        self.batch, self.device = batch, device
        self.generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        starts = [self._start(generator) for generator in self.generators]
        self.leaves = {
            name: torch.stack([start[name] for start in starts]).to(device).requires_grad_(True) for name in starts[0]
        }
        self.held_out = task.examples(seed=held_out, count=HELD_OUT).to(device)

    def _start(self, generator: torch.Generator) -> dict[str, Tensor]:
        bits, neurons = self.task.bits, self.neurons
        return {
            "W_in": torch.randn(bits, neurons, generator=generator) / bits**0.5,
            "b_in": torch.zeros(neurons),
            "W_out": torch.randn(neurons, generator=generator) / neurons**0.5,
            "b_out": torch.zeros(()),
        }

    def parameters(self) -> dict[str, Tensor]:
        return dict(self.leaves)

    def outputs(self, inputs: Float[Tensor, "#seed sample bit"]) -> Float[Tensor, "seed sample"]:
        """What the networks answer."""
        hidden = torch.relu(inputs @ self.leaves["W_in"] + self.leaves["b_in"][:, None])
        return (hidden @ self.leaves["W_out"][..., None])[..., 0] + self.leaves["b_out"][:, None]

    def losses(self, step: int) -> Float[Tensor, " seed"]:
        shape = (self.batch, self.task.bits)
        drawn = [torch.randint(0, 2, shape, generator=generator, dtype=torch.int8) for generator in self.generators]
        inputs = 2.0 * torch.stack(drawn).to(self.device, torch.float32) - 1.0
        return (self.outputs(inputs) - self.task.labels(inputs)).square().mean(dim=-1)

    def measure(self) -> Measures:
        """error: the mean squared error on 2048 held-out samples, the same for every seed."""
        with torch.no_grad():
            found = self.outputs(self.held_out.inputs[None])
            return {"error": (found - self.held_out.targets[:, 0]).square().mean(dim=-1)}

    def state(self) -> dict[str, Tensor]:
        return {f"generator {seed}": g.get_state() for seed, g in zip(self.seeds, self.generators, strict=True)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        for seed, generator in zip(self.seeds, self.generators, strict=True):
            generator.set_state(state[f"generator {seed}"])

    def export(self, seed_index: int, weights: Mapping[str, Tensor] | None = None) -> HookedTransformer:
        """One seed as a HookedTransformer, with `weights` (stacked, as `parameters`) where given."""
        leaves = {name: leaf.detach()[seed_index] for name, leaf in (weights or self.leaves).items()}
        model = build(self.architecture, device=self.device)
        mlp: Any = model.blocks[0].mlp
        bits = self.task.bits
        with torch.no_grad():
            mlp.W_in[:bits] = leaves["W_in"]
            mlp.b_in.copy_(leaves["b_in"])
            mlp.W_out[:, bits] = leaves["W_out"]
            mlp.b_out[bits] = leaves["b_out"]
        return model


def train(
    task: XorTask, neurons: int, seeds: Sequence[int], *, plan: Recipe | None = None, device: str = "cpu"
) -> tuple[FeedForwardLearner, TrainingRun]:
    """Train the seeds together; the learner then holds the last weights. Errors as for headlab.models.training.fit."""
    plan = plan or recipe(task)
    learner = FeedForwardLearner(task, neurons, seeds, batch=plan.batch or 16 * task.bits, device=device)
    run = fit(learner, plan, keep=("error",), done=lambda found: found["error"] < SOLVED)
    return learner, run
