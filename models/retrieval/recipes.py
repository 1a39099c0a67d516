"""How retrieval is trained: recipes by name, many seeds together where possible, and which of them were stuck."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import RequestError, UnknownName
from headlab.interp.statistics import Share, share
from headlab.models import runs as runs_module
from headlab.models.hooked import Architecture, HookedTransformer
from headlab.models.learner import Learner, ModelLearner
from headlab.models.recipe import Recipe
from headlab.models.retrieval.architecture import start
from headlab.models.retrieval.family import Family
from headlab.models.retrieval.learner import RetrievalData, RetrievalLearner, draw_data, prefixes, rescale
from headlab.models.training import TrainingRun, fit

SOLVED = 1e-3  # NMSE: between the plateau of a model with enough heads and the error of one head too few
# name -> steps, learning rate
RECIPES: dict[str, tuple[int, float]] = {
    "quick": (1500, 2e-2),
    "standard": (3000, 5e-3),
    "long": (6000, 1e-2),
}
PAUSE = 250  # steps after which the state may be kept
QUERY_LR = 4.0  # the CLS and what makes its attention learn faster than the rest: else heads share coordinates for long


def recipe(name: str = "standard", *, steps: int | None = None, lr: float | None = None, batch: int = 128) -> Recipe:
    """The recipe `name` (`quick`, `standard`, `long`), with its steps or learning rate replaced where given.

    Adam with beta2 = .99, 5 % warm-up, then a cosine to 0; c0, W_Q and W_K learn at 4 times the rate. Raises KeyError,
    listing the names there are.
    """
    if name not in RECIPES:
        raise UnknownName(f"no recipe '{name}' for retrieval: there are {', '.join(RECIPES)}")
    own_steps, own_lr = RECIPES[name]
    steps = own_steps if steps is None else steps
    return Recipe(
        loss="mse",
        steps=steps,
        lr=own_lr if lr is None else lr,
        betas=(0.9, 0.99),
        clip=None,
        warmup=max(1, round(0.05 * steps)),
        schedule="cosine",
        final_fraction=0.0,
        batch=batch,
        lr_scales={"embed.c0": QUERY_LR, "*.attn.W_[QK]": QUERY_LR},
        record=20,
    )


@dataclass(frozen=True, eq=False)
class TrainedModels:
    """What came of a training: one model per seed, in the target's own units, at its best recorded step.

    nmse: of each model on the validation sequences. runs: the training runs (one for all seeds, or one a seed).
    """

    architecture: Architecture
    data: RetrievalData
    recipe: Recipe
    seeds: tuple[int, ...]
    models: tuple[HookedTransformer, ...]
    nmse: tuple[float, ...]
    runs: tuple[TrainingRun, ...]

    @property
    def best(self) -> int:
        """The index of the seed with the smallest error."""
        return min(range(len(self.nmse)), key=lambda index: self.nmse[index])

    @property
    def stuck(self) -> tuple[int, ...]:
        """The seeds whose error stayed at 1e-3 or above; with fewer heads than coordinates that is every seed."""
        return tuple(seed for seed, error in zip(self.seeds, self.nmse, strict=True) if error >= SOLVED)

    @property
    def stuck_share(self) -> Share:
        """The share of stuck seeds with its exact 95 % interval."""
        return share(len(self.stuck), len(self.seeds))


def train(
    family: Family,
    architecture: Architecture,
    plan: Recipe,
    seeds: Sequence[int],
    *,
    data: RetrievalData | None = None,
    grow: bool = False,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
    folder: runs_module.RunFolder | None = None,
) -> TrainedModels:
    """Train `seeds`, together where one layer without positions is trained, else one after the other.

    data: 8000 sequences and 2000 to validate on, drawn with seed 0, unless given. grow: begin on the first tokens of
    each sequence (learner.prefixes). progress(step, steps) counts the steps of all trainings. folder: where
    the training state is kept now and then, and from whose state training goes on, to the result of an unbroken one.
    Raises ValueError for no seeds, for growing sequences where seeds cannot train together, and as models.training.fit.
    """
    require_trainable(family, architecture, seeds, grow=grow)
    data = draw_data(family) if data is None else data
    batch = plan.batch or len(data.train)
    if _together(family, architecture):
        shorter = prefixes(family, data, plan.steps) if grow else ()
        learner = RetrievalLearner(architecture, data, seeds=seeds, batch=batch, shorter=shorter, device=device)
        run = _fit(learner, plan, folder, "together", progress=progress)
        models = tuple(learner.export(index, run.best) for index in range(len(seeds)))
        return TrainedModels(architecture, data, plan, tuple(seeds), models, tuple(run.best_measures["nmse"]), (run,))
    models, errors, runs = [], [], []
    for index, seed in enumerate(seeds):
        learner = one_at_a_time(architecture, data, seed=seed, batch=batch, device=device)
        report = partial(_later, progress, index, len(seeds)) if progress else None
        run = _fit(learner, plan, folder, f"seed-{seed}", progress=report)
        model = learner.export(0, run.best)
        rescale(model, data)
        models.append(model)
        errors.append(run.best_measures["nmse"][0])
        runs.append(run)
    return TrainedModels(architecture, data, plan, tuple(seeds), tuple(models), tuple(errors), tuple(runs))


def require_trainable(family: Family, architecture: Architecture, seeds: Sequence[int], *, grow: bool = False) -> None:
    """Raise ValueError for no seeds, and for growing sequences where seeds cannot train together."""
    if not seeds:
        raise RequestError("no seeds: train at least 1")
    if grow and not _together(family, architecture):
        raise RequestError("growing sequences are for one layer without positions only: leave out grow")


def _together(family: Family, architecture: Architecture) -> bool:
    return architecture.config["n_layers"] == 1 and family.is_whole


def _fit(
    learner: Learner,
    plan: Recipe,
    folder: runs_module.RunFolder | None,
    name: str,
    *,
    progress: Callable[[int, int], None] | None,
) -> TrainingRun:
    """Train to the end, keeping the state `name` in `folder` where one is given."""
    if folder is None:
        return fit(learner, plan, keep=("nmse",), progress=progress)
    state = folder.state(name)
    saved = time.monotonic()
    while True:
        until = PAUSE * ((state.step if state else 0) // PAUSE + 1)
        run = fit(learner, plan, state=state, until=until, keep=("nmse",), progress=progress)
        state = run.state
        if run.finished or time.monotonic() - saved > runs_module.SAVE_EVERY:
            folder.save_state(state, name)
            saved = time.monotonic()
        if run.finished:
            return run


def _later(progress: Callable[[int, int], None], index: int, count: int, step: int, steps: int) -> None:
    progress(index * steps + step, count * steps)


def one_at_a_time(
    architecture: Architecture, data: RetrievalData, *, seed: int, batch: int = 128, device: str = "cpu"
) -> ModelLearner:
    """One HookedTransformer as a learner, for any architecture; it answers in standard deviations of the targets.

    Starts and draws as that seed of a RetrievalLearner does, and differs from it by rounding.
    """
    tokens = data.train.to(device)
    targets = ((data.targets - data.mean) / data.sd).to(device)
    held = data.validation.to(device)
    held_targets = ((data.validation_targets - data.mean) / data.sd).to(device)
    return ModelLearner(
        start(architecture, seed=seed, device=device),
        seed=seed,
        draw=partial(_draw, count=len(tokens), batch=batch),
        loss=partial(_loss, tokens=tokens, targets=targets),
        measure=partial(_measure, tokens=held, targets=held_targets),
    )


def _draw(generator: torch.Generator, step: int, *, count: int, batch: int) -> Tensor:
    return torch.randint(count, (batch,), generator=generator)


def _loss(
    model: HookedTransformer, rows: Tensor, *, tokens: Float[Tensor, "example position feature"], targets: Tensor
) -> Float[Tensor, ""]:
    rows = rows.to(tokens.device)
    return (model(tokens[rows])[:, -1, 0] - targets[rows]).square().mean()


def _measure(
    model: HookedTransformer, *, tokens: Float[Tensor, "example position feature"], targets: Tensor
) -> Mapping[str, float]:
    with torch.no_grad():
        answers = torch.cat([model(part)[:, -1, 0] for part in tokens.split(250)])
    errors = (answers - targets).double().square().mean()
    return {"nmse": float(errors / targets.double().var(correction=0))}
