"""How a sweep trains seeds of one configuration together, through each task's own training, and what it measures.

Every run has `error` (the figure that sweeps are about, lower is better), `success` and `steps_done`, and what its task
measures besides: esp error is the share of samples answered wrongly, success none of them; retrieval error is the
NMSE, success below 1e-3; tree error is 1 - path accuracy, success at .99; xor error is the loss, success below 1e-3,
for attention with each head on a target of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headlab.analyses.sweep.configuration import Configuration
from headlab.interp.errors import RequestError

Measured = dict[str, Any]
PATHS_RIGHT = 0.99
LEARNED = 1e-3


Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Training:
    """A training that is ready to start: run(seeds, steps, progress) gives one row a seed.

    steps: its full number; None where steps cannot be cut short (a pilot then takes fewer seeds). work: nominal
    operations per seed, comparable within a task. stops: whether it ends once every seed is solved. records: how many
    of its steps measure as well.
    """

    steps: int | None
    work: float
    run: Callable[[Sequence[int], int | None, Progress | None], list[Measured]]
    stops: bool = False
    records: int = 0


def prepare(configuration: Configuration, device: str = "cpu") -> Training:
    """The training of a configuration. Raises what the task raises for options that do not go together."""
    options = configuration.train_options()
    make = {"esp": _esp, "retrieval": _retrieval, "tree": _tree, "xor": _xor}[configuration.task]
    return make(options, device)


def _esp(options: Any, device: str) -> Training:
    from headlab.models.esp.graphs import read_graph
    from headlab.models.esp.recipes import automatic, plan
    from headlab.models.esp.task import EspTask
    from headlab.models.esp.training import train

    task = EspTask(read_graph(options.graph), options.induction)
    method = options.method
    if method == "auto":
        method = automatic(options.heads, task.graph.cycle() is not None)
    made = plan(task, heads=options.heads, method=method, steps=options.steps)

    def run(seeds: Sequence[int], steps: int | None, progress: Progress | None) -> list[Measured]:
        found = train(
            task,
            heads=options.heads,
            method=method,
            seeds=seeds,
            steps=steps or options.steps,
            device=device,
            progress=progress,
        )
        return [
            {
                "error": one.errors / (2 * task.m),
                "success": one.errors == 0,
                "steps_done": found.run.step,
                "errors": one.errors,
                "accuracy": one.accuracy,
                "best_step": one.step,
                "solved": one.solved,
            }
            for one in found.models
        ]

    width = made.architecture.config["d_model"]
    per_step = 2 * task.m * (3 * options.heads + task.n) * width + (2 * task.n + 3) * 4 * width * width
    return Training(made.recipe.steps, float(made.recipe.steps * per_step), run, stops=made.recipe.stop)


def _retrieval(options: Any, device: str) -> Training:
    from headlab.analyses.systems.retrieval import read_target
    from headlab.models.retrieval.architecture import architecture
    from headlab.models.retrieval.family import sum_of_maxima
    from headlab.models.retrieval.learner import draw_data
    from headlab.models.retrieval.recipes import recipe, train

    if options.target is not None:
        family = read_target(options.target)
    else:
        family = sum_of_maxima(options.coordinates, options.length, size=options.size, seed=0, vectors=options.vectors)
    heads = family.coordinates if options.heads is None else options.heads
    design = architecture(
        family,
        heads,
        encoder=options.encoder,
        width=options.width,
        total_width=options.total_width,
        layers=options.layers,
    )
    full = recipe(options.recipe, steps=options.steps, lr=options.lr)

    def run(seeds: Sequence[int], steps: int | None, progress: Progress | None) -> list[Measured]:
        plan = full if steps is None else recipe(options.recipe, steps=steps, lr=options.lr)
        data = draw_data(family, train=options.examples)
        found = train(family, design, plan, seeds, data=data, device=device, progress=progress)
        done = [step for each in found.runs for step in each.best_step]
        return [
            {
                "error": error,
                "success": error < LEARNED,
                "steps_done": plan.steps,
                "nmse": error,
                "best_step": step,
            }
            for error, step in zip(found.nmse, done, strict=True)
        ]

    inner = 32 if options.encoder == "mlp" else family.size
    per_token = inner * (2 * heads + family.size) * (1 if options.layers == 1 else family.length * options.layers)
    work = float(full.steps * 128 * (family.length * per_token + 32 * 8 * heads))
    return Training(full.steps, work, run, records=full.record)


def _tree(options: Any, device: str) -> Training:
    from headlab.analyses.systems.tree import plan
    from headlab.models.training import fit
    from headlab.models.tree.evaluation import evaluate

    full = plan(options)

    def run(seeds: Sequence[int], steps: int | None, progress: Progress | None) -> list[Measured]:
        chosen = full if steps is None else plan(replace(options, steps=steps))
        learner = chosen.learner(seeds, device=device)
        found = fit(learner, chosen.recipe, progress=progress)
        rows = []
        for index, seed in enumerate(seeds):
            batch = max(1, 8192 // chosen.task.layout.length)
            measured = evaluate(learner.export(index), chosen.task, seed=seed, count=options.paths, batch=batch)
            rows.append(
                {
                    "error": 1 - measured.path_accuracy,
                    "success": measured.path_accuracy >= PATHS_RIGHT,
                    "steps_done": found.step,
                    "path_accuracy": measured.path_accuracy,
                    "token_accuracy": measured.token_accuracy,
                    "loss": measured.loss,
                }
            )
        return rows

    config = full.architecture.config
    wide = config["n_layers"] * config["n_heads"] * config["d_head"]
    work = sum(
        stage.steps * stage.batch * stage.task.layout.length * wide * (4 * config["d_model"] + stage.task.layout.length)
        for stage in full.stages
    )
    return Training(full.recipe.steps, float(work), run, records=full.recipe.record)


def _xor(options: Any, device: str) -> Training:
    from headlab.models.xor.method import Method
    from headlab.models.xor.method import run as descend
    from headlab.models.xor.task import XorTask

    heads = options.heads if options.heads is not None else len(options.targets or (0, 1))
    targets = options.targets if options.targets is not None else tuple(range(heads))
    if heads != len(targets) or heads < 1:
        raise RequestError(f"{heads} heads for {len(targets)} targets: the model takes one head per target")
    task = XorTask(options.bits, targets)
    if options.method == "feed-forward":
        return _network(task, options, device)
    auto = "one-step" if heads == 2 else "normalised"
    method = Method(
        name=auto if options.method == "auto" else options.method,
        size=options.size,
        steps=options.steps,
        start=options.start,
        kind=options.attention,
        width=options.width,
        samples=options.samples,
    )
    own = method.plan(task)

    def run(seeds: Sequence[int], steps: int | None, progress: Progress | None) -> list[Measured]:
        found = descend(task, method, seeds, device=device).final
        losses, placed = found.loss().tolist(), found.placement()
        return [
            {
                "error": max(0.0, loss),
                "success": one_to_one and loss < LEARNED,
                "steps_done": own.steps,
                "one_to_one": one_to_one,
                "same_target": together,
            }
            for loss, one_to_one, together in zip(
                losses, placed.one_to_one.tolist(), placed.together.tolist(), strict=True
            )
        ]

    samples = 1 if own.samples is None else own.samples
    return Training(None, float((own.steps + 1) * task.bits * heads * (own.width + 3**heads + samples)), run)


def _network(task: Any, options: Any, device: str) -> Training:
    from headlab.models.training import fit
    from headlab.models.xor import feedforward

    full = feedforward.recipe(task) if options.steps is None else feedforward.recipe(task, steps=options.steps)

    def run(seeds: Sequence[int], steps: int | None, progress: Progress | None) -> list[Measured]:
        plan = full if steps is None else feedforward.recipe(task, steps=steps)
        batch = plan.batch or 16 * task.bits
        learner = feedforward.FeedForwardLearner(task, options.neurons, seeds, batch=batch, device=device)
        solved_at = feedforward.SOLVED
        found = fit(learner, plan, keep=("error",), done=lambda now: now["error"] < solved_at, progress=progress)
        return [
            {
                "error": error,
                "success": error < LEARNED,
                "steps_done": found.step,
                "best_step": best,
                "solved": solved,
            }
            for error, best, solved in zip(found.best_measures["error"], found.best_step, found.solved, strict=True)
        ]

    work = float(full.steps * task.bits**2 * options.neurons)
    return Training(full.steps, work, run, stops=full.stop, records=full.record)
