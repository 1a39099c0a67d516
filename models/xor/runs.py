"""Train many seeds of sparse parity and keep them: one checkpoint a seed, with its queries at the recorded steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from models import bundle
from models.checkpoints import RUNS, Checkpoint, load_runs, save, save_runs, weights_of
from models.xor import feedforward
from models.xor.architecture import architecture, to_model
from models.xor.descent import Descent, Rule, descend, population_objective
from models.xor.ensemble import default_kappa, default_width, draw, step_size
from models.xor.evaluation import evaluate
from models.xor.samples import draw_samples, sample_objective
from models.xor.task import XorTask

METHODS = ("one-step", "plain", "normalised", "in-turn")


@dataclass(frozen=True)
class Method:
    """How the queries are trained, as plain data.

    name: `one-step`, one large population step; `plain`, small ones; `normalised`, steps of one length, all heads at
    once; `in-turn`, the same one head a step. size: kappa, by how much a step first moves a target's score (one-step,
    plain), or the length of a step; None for the method's own. start: as `draw` has it, or `auto`, antisymmetric for
    two heads and independent for others. samples: how many fixed samples, None for the population itself.
    """

    name: str = "one-step"
    size: float | None = None
    steps: int | None = None
    start: str = "auto"
    kind: str = "softmax"
    width: int | None = None
    samples: int | None = None

    def __post_init__(self) -> None:
        if self.name not in METHODS:
            raise KeyError(f"unknown method '{self.name}': choose one of {', '.join(METHODS)}")
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"{self.steps} steps: take at least 1")
        if self.name == "one-step" and self.steps not in (None, 1):
            raise ValueError(f"one-step takes 1 step, not {self.steps}: use plain for more")

    def plan(self, task: XorTask) -> Plan:
        """The same with every choice made that was left to the method."""
        heads = len(task.targets)
        width = default_width(task.bits) if self.width is None else self.width
        sizes = {"one-step": default_kappa(task, width), "plain": 0.5, "normalised": 0.5, "in-turn": 100.0}
        steps = {"one-step": 1, "plain": 200, "normalised": 150, "in-turn": 4 * heads}
        auto = "antisymmetric" if heads == 2 else "independent"
        return Plan(
            name=self.name,
            size=sizes[self.name] if self.size is None else self.size,
            steps=steps[self.name] if self.steps is None else self.steps,
            start=auto if self.start == "auto" else self.start,
            kind=self.kind,
            width=width,
            samples=self.samples,
        )


@dataclass(frozen=True)
class Plan:
    """A method with every choice made; the fields are those of `Method`."""

    name: str
    size: float
    steps: int
    start: str
    kind: str
    width: int
    samples: int | None

    def rule(self, task: XorTask) -> Rule:
        """The rule of descent; kappa becomes a step size."""
        if self.name in ("one-step", "plain"):
            return Rule("plain", step_size(task, self.width, self.size))
        return Rule("in-turn" if self.name == "in-turn" else "normalised", self.size)


def recorded(step: int) -> bool:
    """Which steps are kept beside the first and the last: powers of two."""
    return step & (step - 1) == 0


def run(task: XorTask, method: Method, seeds: Sequence[int], *, data_seed: int = 0, device: str = "cpu") -> Descent:
    """Train `seeds` together in float64. Errors as for `draw`, `draw_samples` and `descend`."""
    own = method.plan(task)
    models = draw(task, width=own.width, seeds=tuple(seeds), start=own.start, kind=own.kind, device=device)
    objective = population_objective
    if own.samples is not None:
        objective = sample_objective(draw_samples(models, own.samples, seed=data_seed))
    return descend(models, own.rule(task), own.steps, objective=objective, record=recorded)


def train(
    task: XorTask,
    method: Method,
    seeds: Sequence[int],
    out: str | Path,
    *,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
    device: str = "cpu",
    dtype: str = "float32",
) -> dict[str, Any]:
    """Train `seeds` and write `out`, a checkpoint a seed and `runs.json`, which is returned.

    resume: a folder that already holds these runs is returned as it is. Best is the run that is one to one, then the
    one with the smallest population loss. Raises ValueError where the folder cannot be written or the task is too long
    for a transformer.
    """
    out = Path(out)
    own = method.plan(task)
    request = {"task_options": task.options(), **asdict(own), "seeds": list(seeds), "dtype": dtype}
    if resume and (out / RUNS).is_file():
        return _finished(out, request)
    design = architecture(task, own.width, own.kind)
    bundle.require_writable(out / f"seed-{seeds[0]}")
    descent = run(task, method, seeds, device=device)
    rule = own.rule(task)
    rows = []
    for index, seed in enumerate(seeds):
        model = to_model(descent.final, index, device=device, dtype=dtype)
        measured = evaluate(model, task, seed=seed)
        history = _history(descent, index)
        earlier = {
            step: weights_of(to_model(descent.at(record), index, dtype=dtype))
            for record, step in enumerate(descent.steps)
        }
        checkpoint = Checkpoint(
            model=model,
            architecture=design,
            task=task.name,
            task_options=task.options(),
            recipe={**asdict(own), "rule": rule.kind, "step_size": rule.size},
            seed=seed,
            metrics=measured.to_json(),
            history=history,
        )
        save(out / f"seed-{seed}", checkpoint, weights=earlier)
        solved = next((row["step"] for row in history if row["loss"] < 1e-3), None)
        rows.append(
            {
                "seed": seed,
                "dir": f"seed-{seed}",
                "steps": own.steps,
                "loss": measured.loss,
                "population_loss": measured.population_loss,
                "one_to_one": measured.one_to_one,
                "solved": solved,
            }
        )
        if progress:
            progress(index + 1, len(seeds))
    best = min(rows, key=lambda row: (not row["one_to_one"], row["population_loss"], row["seed"]))
    save_runs(out, rows, best["dir"], task=task.name, heads=len(task.targets), request=request)
    return load_runs(out)


def _history(descent: Descent, index: int) -> list[dict[str, Any]]:
    rows = []
    for record, step in enumerate(descent.steps):
        models = descent.at(record).select([index])
        rows.append(
            {
                "step": step,
                "loss": max(0.0, float(models.loss())),
                "training_loss": float(descent.loss[record, index]),
                "one_to_one": bool(models.placement().one_to_one),
            }
        )
    return rows


def train_feedforward(
    task: XorTask,
    neurons: int,
    seeds: Sequence[int],
    out: str | Path,
    *,
    steps: int | None = None,
    resume: bool = False,
    device: str = "cpu",
) -> dict[str, Any]:
    """The same for the feed-forward baseline; best is the smallest error on held-out samples."""
    out = Path(out)
    request = {"task_options": task.options(), "neurons": neurons, "steps": steps, "seeds": list(seeds)}
    if resume and (out / RUNS).is_file():
        return _finished(out, request)
    bundle.require_writable(out / f"seed-{seeds[0]}")
    plan = feedforward.recipe(task) if steps is None else feedforward.recipe(task, steps=steps)
    learner, trained = feedforward.train(task, neurons, seeds, plan=plan, device=device)
    rows = []
    for index, seed in enumerate(seeds):
        model = learner.export(index, trained.best)
        measured = evaluate(model, task, seed=seed)
        checkpoint = Checkpoint(
            model=model,
            architecture=learner.architecture,
            task=task.name,
            task_options=task.options(),
            recipe={**plan.to_json(), "name": "feed-forward", "neurons": neurons},
            seed=seed,
            metrics=measured.to_json() | {"parameters": feedforward.parameters(task, neurons)},
            history=trained.history_of(index),
        )
        save(out / f"seed-{seed}", checkpoint)
        rows.append(
            {
                "seed": seed,
                "dir": f"seed-{seed}",
                "steps": trained.best_step[index],
                "loss": measured.loss,
                "one_to_one": None,
                "solved": trained.solved[index],
            }
        )
    best = min(rows, key=lambda row: (row["loss"], row["seed"]))
    save_runs(out, rows, best["dir"], task=task.name, heads=0, request=request)
    return load_runs(out)


def _finished(out: Path, request: dict[str, Any]) -> dict[str, Any]:
    found = load_runs(out)
    if found.get("request") != request:
        raise ValueError(f"'{out}' holds the runs of another request: choose another folder, or train without resume")
    return found
