"""What is remembered of a training: its history, when each seed was solved, the best weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headlab.interp.errors import UnknownName
from headlab.models.checkpoints import TrainingState
from headlab.models.learner import Measures
from headlab.models.recipe import Recipe, learning_rate


@dataclass(frozen=True)
class TrainingRun:
    """What came of a training. Steps count updates done; values per seed are in the order of `seeds`.

    solved: the first checked step at which a seed was done, None where it never was.
    best: the weights at `best_step`, where the kept measures were smallest (the last weights where none were kept).
    best_measures: name -> value per seed at `best_step`. weights: recorded step -> weights of the seeds asked for.
    """

    seeds: tuple[int, ...]
    recipe: Recipe
    step: int
    finished: bool
    history: list[dict[str, Any]]
    solved: list[int | None]
    best_step: list[int]
    best_measures: dict[str, list[float]]
    best: dict[str, Tensor]
    weights: dict[int, dict[str, Tensor]]
    state: TrainingState

    def history_of(self, seed_index: int) -> list[dict[str, Any]]:
        """One seed's history: a dict per recorded step with `step`, `lr`, `loss` and the learner's measures."""
        return [
            {name: value[seed_index] if isinstance(value, list) else value for name, value in row.items()}
            for row in self.history
        ]


class Log:
    """What is remembered while training: history, first solved steps, best weights, weights at recorded steps."""

    def __init__(self, seeds: Sequence[int], stacked: bool, recipe: Recipe, keep: tuple[str, ...], weights_of: tuple):
        self.seeds, self.stacked, self.recipe, self.keep, self.weights_of = (
            tuple(seeds),
            stacked,
            recipe,
            keep,
            weights_of,
        )
        self.history: list[dict[str, Any]] = []
        self.solved: list[int | None] = [None] * len(seeds)
        self.best_step: list[int] = [0] * len(seeds)
        self.best_measures: dict[str, Tensor] = {}  # name -> [seed]
        self.best: dict[str, Tensor] = {}
        self.weights: dict[int, dict[str, Tensor]] = {}

    def compare(self, step: int, leaves: Mapping[str, Tensor], measures: Measures, done: Any) -> None:
        """Note which seeds are solved for the first time, and which are better than ever."""
        if done is not None:
            for index, solved in enumerate(done(measures).tolist()):
                if solved and self.solved[index] is None:
                    self.solved[index] = step
        if not self.keep:
            return
        for name in self.keep:
            if name not in measures:
                raise UnknownName(f"the learner does not measure '{name}'; it measures {', '.join(measures)}")
        if not self.best:
            self.best = {name: leaf.detach().clone() for name, leaf in leaves.items()}
            self.best_measures = {name: value.clone() for name, value in measures.items()}
            self.best_step = [step] * len(self.seeds)
            return
        better = torch.zeros(len(self.seeds), dtype=torch.bool)
        level = ~better
        for name in self.keep:  # lexicographic: a later measure counts where the earlier ones are level
            better |= level & (measures[name] < self.best_measures[name])
            level &= measures[name] == self.best_measures[name]
        if not better.any():
            return
        rows = better.nonzero().squeeze(1)
        self.best_step = [step if new else old for new, old in zip(better.tolist(), self.best_step, strict=True)]
        for name, value in measures.items():
            self.best_measures[name][rows] = value[rows]
        for name, leaf in leaves.items():
            if self.stacked:
                self.best[name][rows] = leaf.detach()[rows]
            else:
                self.best[name].copy_(leaf.detach())

    def record(self, step: int, leaves: Mapping[str, Tensor], measures: Measures) -> None:
        """Add a row to the history; a step that a resumed run does again takes the place of its row."""
        row = {"step": step, "lr": learning_rate(self.recipe, step)}
        row |= {name: value.tolist() for name, value in measures.items()}
        if self.history and self.history[-1]["step"] == step:
            self.history.pop()
        self.history.append(row)
        if self.weights_of:
            chosen = list(self.weights_of)
            self.weights[step] = {
                name: leaf.detach()[chosen].clone() if self.stacked else leaf.detach().clone()
                for name, leaf in leaves.items()
            }

    def settled(self, step: int) -> bool:
        """Whether every seed is solved, and the last of them for `settle` steps."""
        steps = [solved for solved in self.solved if solved is not None]
        return len(steps) == len(self.solved) and step >= max(steps) + self.recipe.settle

    def result(self, step: int, finished: bool, leaves: Mapping[str, Tensor], state: TrainingState) -> TrainingRun:
        """The run so far, as data."""
        best = self.best or {name: leaf.detach().clone() for name, leaf in leaves.items()}
        measures = {name: value.tolist() for name, value in self.best_measures.items()}
        if not self.best and self.history:
            measures = {name: value for name, value in self.history[-1].items() if isinstance(value, list)}
        return TrainingRun(
            seeds=self.seeds,
            recipe=self.recipe,
            step=step,
            finished=finished,
            history=list(self.history),
            solved=list(self.solved),
            best_step=list(self.best_step) if self.best else [step] * len(self.seeds),
            best_measures=measures,
            best=best,
            weights=dict(self.weights),
            state=state,
        )
