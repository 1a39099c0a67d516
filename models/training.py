"""One recipe, one training loop: a single HookedTransformer or many seeds at once, resumable bit for bit.

    recipe = Recipe(lr=1e-2, steps=300, schedule="constant")
    model = build(architecture); initialise(model, scale=0.05, seed=0)
    learner = ModelLearner(model, seed=0, draw=draw, loss=loss, measure=measure)
    run = fit(learner, recipe, keep=("errors", "loss"), done=lambda found: found["errors"] == 0)
    best = learner.export(0, run.best)                 # a HookedTransformer with the best weights
    save(folder, Checkpoint(best, architecture, ...), training=run.state)
    run = fit(learner, recipe, state=load_training(folder))    # goes on where it stopped

`draw(generator, step)` gives a batch, `loss(model, batch)` one number, `measure(model)` a dict of numbers. A learner
that trains many seeds at once has leaves with a leading seed axis and gives one loss per seed; `fit` is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

import torch
from jaxtyping import Bool
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.models.checkpoints import TrainingState
from headlab.models.learner import Learner, Measures, ModelLearner
from headlab.models.recipe import Recipe, learning_rate, recorded_steps
from headlab.models.training_log import Log, TrainingRun

_MAY_CHANGE = ("steps", "record", "stop", "settle")  # what a resumed run may change of its recipe

__all__ = ["Learner", "ModelLearner", "Recipe", "TrainingRun", "clip_gradients", "fit", "learning_rate"]


def fit(
    learner: Learner,
    recipe: Recipe,
    *,
    state: TrainingState | None = None,
    until: int | None = None,
    keep: Sequence[str] = (),
    done: Callable[[Measures], Bool[Tensor, " seed"]] | None = None,
    weights_of: Sequence[int] = (),
    progress: Callable[[int, int], None] | None = None,
    on_record: Callable[[int, Callable[[], TrainingState]], None] | None = None,
) -> TrainingRun:
    """Train `learner` by `recipe` and return what came of it; the learner is left with its last weights.

    state: where to go on from; the result is then the unbroken run's, bit for bit. until: pause before this step.
    keep: names of measures (`loss`, the training loss, is always one); each seed's weights are kept where they are
    smallest, compared in this order. done: which seeds are solved. weights_of: positions in `seeds` whose weights are
    kept at every recorded step. progress(step, steps) is called at every step; on_record(step, state) at every recorded
    one, where `state()` makes the state to save.
    Raises RequestError where a loss is not finite (naming seed and step), or a pattern of lr_scales matches nothing.
    """
    leaves = learner.parameters()
    optimiser = _optimiser(leaves, recipe)
    log = Log(learner.seeds, learner.stacked, recipe, tuple(keep), tuple(weights_of))
    step, finished = 0, False
    if state:
        _restore(state, learner, leaves, optimiser, log)
        step = state.step
        finished = state.data["finished"] and (step >= recipe.steps or (recipe.stop and log.settled(step)))
    recorded = set(recorded_steps(recipe))
    generators = learner.state()

    def now() -> TrainingState:
        return _state(step, finished, leaves, optimiser, generators, log)

    while not finished and step != until:
        losses = learner.losses(step)  # [seed], of the weights after `step` updates
        _require_finite(losses, learner.seeds, step, recipe)
        last = step >= recipe.steps
        if last or step in recorded or (recipe.check and step % recipe.check == 0):
            measures = _measured(learner, losses)
            log.compare(step, leaves, measures, done)
            last = last or (recipe.stop and log.settled(step))
            if last or step in recorded:
                log.record(step, leaves, measures)
                if on_record:
                    on_record(step, now)  # `generators` are those from before the draw: a resumed run draws it again
        if progress:
            progress(step, recipe.steps)
        if last:
            finished = True
            break
        optimiser.zero_grad(set_to_none=True)
        losses.sum().backward()
        if recipe.clip is not None:
            clip_gradients(leaves, recipe.clip, stacked=learner.stacked)
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(recipe, step) * group["scale"]
        optimiser.step()
        step += 1
        generators = learner.state()
    return log.result(step, finished, leaves, now())


def clip_gradients(leaves: Mapping[str, Tensor], largest: float, *, stacked: bool) -> None:
    """Scale the gradients so that their norm over all leaves is at most `largest`: per seed where `stacked`."""
    grads = [leaf.grad for leaf in leaves.values() if leaf.grad is not None]
    squares = [
        grad.reshape(len(grad), -1).square().sum(1) if stacked else grad.square().sum().reshape(1) for grad in grads
    ]
    norm = torch.stack(squares).sum(0).sqrt()  # [seed]
    factor = (largest / (norm + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(factor.view(-1, *[1] * (grad.ndim - 1)) if stacked else factor[0])


def _optimiser(leaves: Mapping[str, Tensor], recipe: Recipe) -> torch.optim.Optimizer:
    groups: dict[float, list[Tensor]] = {}
    matched = set()
    for name, leaf in leaves.items():
        pattern = next((pattern for pattern in recipe.lr_scales if fnmatchcase(name, pattern)), None)
        matched.add(pattern)
        groups.setdefault(recipe.lr_scales[pattern] if pattern else 1.0, []).append(leaf)
    for pattern in recipe.lr_scales:
        if pattern not in matched:
            raise RequestError(f"lr_scales: '{pattern}' matches no parameter; there are {', '.join(leaves)}")
    sets = [{"params": params, "scale": scale} for scale, params in groups.items()]
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(sets, recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
    adam = torch.optim.AdamW if recipe.weight_decay else torch.optim.Adam
    return adam(sets, recipe.lr, betas=recipe.betas, weight_decay=recipe.weight_decay)


def _measured(learner: Learner, losses: Tensor) -> dict[str, Tensor]:
    with torch.no_grad():
        measures = {"loss": losses.detach(), **learner.measure()}
    return {name: value.to("cpu", torch.float64) for name, value in measures.items()}


def _require_finite(losses: Tensor, seeds: Sequence[int], step: int, recipe: Recipe) -> None:
    losses = losses.detach()
    finite = torch.isfinite(losses)
    if finite.all():
        return
    position = int((~finite).nonzero()[0])
    raise RequestError(
        f"training diverged: the loss of seed {seeds[position]} is {float(losses[position])} at step {step}; "
        f"use a smaller learning rate than {recipe.lr} or a smaller clip"
    )


def _state(
    step: int,
    finished: bool,
    leaves: Mapping[str, Tensor],
    optimiser: torch.optim.Optimizer,
    generators: Mapping[str, Tensor],
    log: Log,
) -> TrainingState:
    tensors = {f"learner/{name}": value.clone() for name, value in generators.items()}
    for name, leaf in leaves.items():
        tensors[f"parameter/{name}"] = leaf.detach().clone()
        for key, value in optimiser.state[leaf].items():
            if isinstance(value, Tensor):
                tensors[f"optimiser/{key}/{name}"] = value.clone()
    tensors |= {f"best/{name}": value.clone() for name, value in log.best.items()}
    for recorded, named in log.weights.items():
        tensors |= {f"weights/{recorded}/{name}": value for name, value in named.items()}
    data = {
        "seeds": list(log.seeds),
        "recipe": log.recipe.to_json(),
        "finished": finished,
        "history": list(log.history),
        "solved": list(log.solved),
        "best_step": list(log.best_step),
        "best_measures": {name: value.tolist() for name, value in log.best_measures.items()},
    }
    return TrainingState(step, tensors, data)


def _restore(
    state: TrainingState, learner: Learner, leaves: Mapping[str, Tensor], optimiser: torch.optim.Optimizer, log: Log
) -> None:
    if tuple(state.data["seeds"]) != log.seeds:
        raise RequestError(f"the training state is of the seeds {state.data['seeds']}, not of {list(log.seeds)}")
    own, other = log.recipe.to_json(), state.data["recipe"]
    changed = [name for name in own if name not in _MAY_CHANGE and own[name] != other.get(name)]
    if changed:
        was, now = other.get(changed[0]), own[changed[0]]
        raise RequestError(f"the training state was made with another recipe: {changed[0]} was {was}, not {now}")
    named: dict[str, dict[str, Tensor]] = {}
    for name, value in state.tensors.items():
        kind, rest = name.split("/", 1)
        named.setdefault(kind, {})[rest] = value
    if set(named["parameter"]) != set(leaves):
        odd = min(set(named["parameter"]) ^ set(leaves))
        raise RequestError(f"the training state does not fit the model: only one of them has '{odd}'")
    with torch.no_grad():
        for name, leaf in leaves.items():
            leaf.copy_(named["parameter"][name])
    for name, value in named.get("optimiser", {}).items():
        key, leaf_name = name.split("/", 1)
        leaf = leaves[leaf_name]
        optimiser.state[leaf][key] = value.clone() if key == "step" else value.to(leaf, copy=True)
    learner.load_state(named.get("learner", {}))
    log.history = [dict(row) for row in state.data["history"]]
    log.solved = list(state.data["solved"])
    log.best_step = list(state.data["best_step"])
    log.best_measures = {
        name: torch.tensor(value, dtype=torch.float64) for name, value in state.data["best_measures"].items()
    }
    log.best = {name: value.to(leaves[name], copy=True) for name, value in named.get("best", {}).items()}
    for name, value in named.get("weights", {}).items():
        recorded, leaf_name = name.split("/", 1)
        log.weights.setdefault(int(recorded), {})[leaf_name] = value.clone()
