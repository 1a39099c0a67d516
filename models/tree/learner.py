"""Many seeds of one tree model that train together, each on an endless stream of trees of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.interp.roles import Role, score
from headlab.models.checkpoints import load_weights, weights_of
from headlab.models.hooked import Architecture, HookedTransformer, build
from headlab.models.losses import loss_function
from headlab.models.recipe import Recipe
from headlab.models.tree.metrics import margins
from headlab.models.tree.parallel import logits_at
from headlab.models.tree.task import TreeTask
from headlab.models.tree.tokens import Sequences

_CHUNK = 4096  # positions' worth of trees are drawn together: drawing tree by tree would cost more than a step


@dataclass(frozen=True)
class Stage:
    """So many steps on one task, `batch` fresh trees a step; a curriculum is several of them."""

    task: TreeTask
    steps: int
    batch: int


class TreeLearner:
    """Stacked seeds of one architecture, as headlab.models.training.fit takes them.

    start: seed -> the model to start from; which of its parameters require a gradient is what trains. The trees of
    step t depend on seed and t alone, so a seed learns the same alone and in company (up to rounding), and nothing
    need be kept to resume. Measures, on `validation` held-out trees of the last stage's task: `path` and `token`,
    the shares of right paths and predictions, and `backward` and `reverse`, that of predictions in one stage.
    """

    stacked = True

    def __init__(
        self,
        stages: Sequence[Stage],
        architecture: Architecture,
        recipe: Recipe,
        start: Callable[[int], HookedTransformer],
        *,
        seeds: Sequence[int],
        validation: int = 256,
        follow: int = 0,
        device: str = "cpu",
    ) -> None:
        if recipe.steps > sum(stage.steps for stage in stages):
            raise RequestError(f"{recipe.steps} steps are more than the stages' {sum(stage.steps for stage in stages)}")
        self.seeds = tuple(seeds)
        self.stages, self.architecture, self.device = tuple(stages), architecture, device
        models = [start(seed) for seed in self.seeds]
        self._dtype = models[0].cfg.dtype
        stacked = {
            name: torch.stack([dict(model.named_parameters())[name].detach() for model in models]).to(device)
            for name, _ in models[0].named_parameters()
        }
        trains = {name for name, leaf in models[0].named_parameters() if leaf.requires_grad}
        self._leaves = {name: value.requires_grad_(name in trains) for name, value in stacked.items()}
        self._loss = loss_function(recipe.loss, recipe.q)
        self._chunk: tuple[int, int, list[Sequences]] = (-1, -1, [])
        self._held_out, self._followed = validation, follow
        self._roles: tuple[Role, ...] = ()
        self._validation: tuple[Tensor, Tensor, Tensor, dict[str, Tensor]] | None = None

    def parameters(self) -> dict[str, Tensor]:
        """The leaves that train, [seed, ...]."""
        return {name: leaf for name, leaf in self._leaves.items() if leaf.requires_grad}

    def losses(self, step: int) -> Float[Tensor, " seed"]:
        """Each seed's mean loss over the predictions of its own batch of this step."""
        tokens, read, targets = self._batch(step)
        logits = logits_at(self._leaves, self.architecture.config, tokens, read)
        used = (read >= 0).to(logits.dtype)
        return (self._loss(logits, targets) * used).sum((1, 2)) / used.sum((1, 2))

    def measure(self) -> dict[str, Float[Tensor, " seed"]]:
        """Shares of right answers on held-out trees; see the class."""
        if self._validation is None:
            self._validation = self._held_out_trees()
        tokens, read, targets, stages = self._validation
        kept: list[Tensor] = []
        with torch.no_grad():
            for rows in torch.arange(len(tokens)).split(64):
                shared = [part[rows].expand(len(self.seeds), *part[rows].shape) for part in (tokens, read)]
                logits = logits_at(self._leaves, self.architecture.config, *shared)
                wanted = targets[rows].expand(len(self.seeds), -1, -1)
                kept.append(margins(logits.flatten(0, 1), wanted.flatten(0, 1)).unflatten(0, wanted.shape[:2]) > 0)
        right = torch.cat(kept, dim=1)
        shares = {name: _share(right, where) for name, where in (("token", read >= 0), *stages.items())}
        return {"path": (right | (read < 0)).all(-1).double().mean(1), **shares, **self._specialisation()}

    def _specialisation(self) -> dict[str, Float[Tensor, " seed"]]:
        if not self._followed:
            return {}
        if not self._roles:
            self._roles = self.stages[-1].task.roles(seed=_VALIDATION, count=self._followed)
        rows = []
        for index in range(len(self.seeds)):
            found = score(self.export(index), self._roles)
            usage = {f"usage {role}": float(top) for role, top in zip(found.roles, found.usage.max(0), strict=True)}
            whole = found.coverage if found.specialisation is None else found.specialisation
            rows.append({**usage, "specialisation": whole})
        return {name: torch.tensor([row[name] for row in rows], dtype=torch.float64) for name in rows[0]}

    def state(self) -> dict[str, Tensor]:
        """Nothing: what a step draws depends on the seed and the step."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Nothing to take up; see `state`."""

    def export(self, seed_index: int, weights: Mapping[str, Tensor] | None = None) -> HookedTransformer:
        """One seed as a HookedTransformer, with `weights` (stacked, as in a run's `best`) where given."""
        model = build(self.architecture, device=self.device, dtype=self._dtype)
        own = {name: value for name, value in weights_of(model).items() if name not in self._leaves}
        taken = {name: leaf.detach()[seed_index] for name, leaf in self._leaves.items()}
        taken |= {name: value[seed_index] for name, value in (weights or {}).items()}
        load_weights(model, {**own, **taken})
        return model

    def _batch(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        done, number = 0, 0
        while number < len(self.stages) - 1 and step >= done + self.stages[number].steps:
            done += self.stages[number].steps
            number += 1
        stage = self.stages[number]
        per_chunk = max(1, _CHUNK // (stage.batch * stage.task.layout.length) * 8)
        index, place = divmod(step - done, per_chunk)
        if self._chunk[:2] != (number, index):
            drawn = [
                stage.task.training_batch(per_chunk * stage.batch, seed=seed, index=1000 * number + index)
                for seed in self.seeds
            ]
            self._chunk = (number, index, drawn)
        rows = slice(place * stage.batch, (place + 1) * stage.batch)
        return self._stack([(part.tokens[rows], part.read[rows], part.targets[rows]) for part in self._chunk[2]])

    def _stack(self, parts: list[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
        """Seeds stacked; those whose longest tree is shorter are padded on the right."""
        size = [max(part[k].shape[1] for part in parts) for k in range(3)]
        stacked = []
        for k, blank in enumerate((0, -1, 0)):
            padded = [_pad(part[k], size[k], blank) for part in parts]
            stacked.append(torch.stack(padded).to(self.device))
        return stacked[0], stacked[1], stacked[2]

    def _held_out_trees(self) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
        task = self.stages[-1].task
        examples = task.examples(seed=_VALIDATION, count=self._held_out).to(self.device)
        return examples.inputs, examples.read, examples.targets, dict(task.stages(examples.read))


_VALIDATION = 10**6  # a seed of its own: what is looked at while training is not what is reported in the end


def _pad(values: Int[Tensor, "example size *pair"], size: int, blank: int) -> Int[Tensor, "example size *pair"]:
    if values.shape[1] == size:
        return values
    shape = (values.shape[0], size - values.shape[1], *values.shape[2:])
    return torch.cat([values, values.new_full(shape, blank)], dim=1)


def _share(right: Bool[Tensor, "seed example read"], where: Bool[Tensor, "example read"]) -> Float[Tensor, " seed"]:
    return (right & where).sum((1, 2)).double() / where.sum()
