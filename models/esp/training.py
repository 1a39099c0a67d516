"""Training many seeds of an endpoint selection model by a named method, and what came of each seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.models.checkpoints import Checkpoint, TrainingState
from headlab.models.esp.evaluation import evaluate
from headlab.models.esp.feedback import FeedbackArcSet, minimum_feedback_arc_set
from headlab.models.esp.many import RIGHT, ManySeeds
from headlab.models.esp.recipes import EspPlan, plan
from headlab.models.esp.task import EspTask, margins
from headlab.models.hooked import Architecture, HookedTransformer, build, initialise
from headlab.models.losses import loss_function
from headlab.models.recipe import Recipe
from headlab.models.training import ModelLearner, TrainingRun, fit


@dataclass(frozen=True)
class Trained:
    """One seed's best weights as a HookedTransformer, evaluated on all samples by that model itself.

    step: of those weights (fewest errors, then smallest loss). solved: the first step without an error, None for none.
    """

    seed: int
    errors: int
    accuracy: float
    step: int
    solved: int | None
    model: HookedTransformer


@dataclass(frozen=True)
class TrainedSeeds:
    """All seeds of one training; learner and run hold the history and, where it was kept, earlier weights."""

    task: EspTask
    method: str
    architecture: Architecture
    recipe: Recipe
    models: tuple[Trained, ...]
    learner: ManySeeds | ModelLearner
    run: TrainingRun

    @property
    def best(self) -> Trained:
        """The seed with the fewest errors, the earlier one where several have them."""
        return min(self.models, key=lambda one: (one.errors, one.seed))

    def checkpoint(self, index: int) -> Checkpoint:
        """The seed at `index` as a checkpoint, with its history."""
        one = self.models[index]
        return Checkpoint(
            model=one.model,
            architecture=self.architecture,
            task=self.task.name,
            task_options=self.task.options(),
            recipe=self.recipe.to_json() | {"method": self.method},
            seed=one.seed,
            metrics=evaluate(one.model, self.task).to_json() | {"step": one.step, "solved": one.solved},
            history=self.run.history_of(index),
        )


def train(
    task: EspTask,
    *,
    heads: int,
    method: str,
    seeds: Sequence[int],
    feedback: FeedbackArcSet | None = None,
    steps: int | None = None,
    history: bool = False,
    device: str = "cpu",
    state: TrainingState | None = None,
    progress: Callable[[int, int], None] | None = None,
    on_record: Callable[[int, Callable[[], TrainingState]], None] | None = None,
) -> TrainedSeeds:
    """Train every seed and export the best weights of each: many together by their table, one as the model itself.

    method: see `models.esp.recipes.plan`. feedback: the graph's minimum feedback arc set where it is known, for the
    solver-guided method. history: keep the weights of every seed at every recorded step. state, progress, on_record:
    as for `headlab.models.training.fit`; a training that goes on from a state gives the unbroken one's result.
    Raises as `plan` does, and ValueError for no seeds.
    """
    if not seeds:
        raise RequestError("there is no seed to train: ask for at least one")
    chosen_plan = plan(task, heads=heads, method=method, steps=steps)
    examples = task.examples()
    weights = _guided(task, feedback or minimum_feedback_arc_set(task.graph)) if chosen_plan.guided else None
    learner: ManySeeds | ModelLearner
    if len(seeds) == 1:
        learner = _single(task, chosen_plan, seeds[0], weights, device)
    else:
        learner = ManySeeds(
            chosen_plan.architecture,
            chosen_plan.recipe,
            examples.inputs,
            examples.targets[:, 0],
            seeds=seeds,
            weights=weights,
            device=device,
        )
    run = fit(
        learner,
        chosen_plan.recipe,
        state=state,
        keep=("errors", "loss"),
        done=lambda evaluation: evaluation["errors"] == 0,
        weights_of=range(len(seeds)) if history else (),
        progress=progress,
        on_record=on_record,
    )
    models = []
    for index, seed in enumerate(seeds):
        model = learner.export(index, run.best)
        evaluation = evaluate(model, task)
        models.append(
            Trained(seed, evaluation.errors, evaluation.accuracy, run.best_step[index], run.solved[index], model)
        )
    return TrainedSeeds(task, method, chosen_plan.architecture, chosen_plan.recipe, tuple(models), learner, run)


def _guided(task: EspTask, feedback: FeedbackArcSet) -> Float[Tensor, " sample"]:
    """0 for the sample that asks for the second endpoint of a given-up arc, 1 for every other."""
    given_up = set(feedback.arcs)
    shares = [0.0 if arc in given_up and second else 1.0 for arc in task.graph.arcs for second in (False, True)]
    return torch.tensor(shares)


def _single(
    task: EspTask, chosen_plan: EspPlan, seed: int, weights: Float[Tensor, " sample"] | None, device: str
) -> ModelLearner:
    """The HookedTransformer itself as what trains, on all samples at every step."""
    model = build(chosen_plan.architecture, device=device)
    assert chosen_plan.recipe.init_scale is not None
    initialise(model, scale=chosen_plan.recipe.init_scale, seed=seed)
    examples = task.examples().to(device)
    targets = examples.targets[:, 0]
    share = (torch.ones(len(examples)) if weights is None else weights).to(device)
    share = share / share.sum()
    loss = loss_function(chosen_plan.recipe.loss, chosen_plan.recipe.q)

    def measure(trained: HookedTransformer) -> dict[str, float | int]:
        evaluation = margins(trained(examples.inputs)[:, -1], targets)
        errors = int((evaluation <= RIGHT).sum())
        return {"errors": errors, "accuracy": 1 - errors / len(targets), "min_margin": float(evaluation.min())}

    return ModelLearner(
        model,
        seed=seed,
        draw=lambda generator, step: None,
        loss=lambda trained, batch: loss(trained(examples.inputs)[:, -1], targets) @ share,
        measure=measure,
    )
