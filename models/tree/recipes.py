"""How tree models are trained: recipes with their stages, architectures and starting points."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from headlab.interp.errors import RequestError
from headlab.models.hooked import Architecture, HookedTransformer, build, initialise
from headlab.models.recipe import Recipe
from headlab.models.tree.architecture import architecture
from headlab.models.tree.constructed import construct, embedding_tables, label_vectors
from headlab.models.tree.learner import Stage, TreeLearner
from headlab.models.tree.task import TreeTask

INIT_SCALE = 0.05
RECIPE = Recipe(
    steps=1200,
    lr=1e-2,
    betas=(0.9, 0.98),
    clip=1.0,
    warmup=30,
    schedule="cosine",
    final_fraction=0.02,
    batch=32,
    init_scale=INIT_SCALE,
    record=100,
)


@dataclass(frozen=True)
class Plan:
    """All that a training needs, but the seeds.

    stages: tasks, steps and batches in turn; the last task is what is learned and evaluated. start: seed -> the
    model to start from, with what trains marked by requires_grad. name, options: what makes an equal plan again.
    """

    task: TreeTask
    architecture: Architecture
    recipe: Recipe
    stages: tuple[Stage, ...]
    start: Callable[[int], HookedTransformer]
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def learner(
        self, seeds: Sequence[int], *, validation: int = 256, follow: int = 0, device: str = "cpu"
    ) -> TreeLearner:
        """The stacked learner of these seeds; `validation` and `follow` as TreeLearner has them."""
        return TreeLearner(
            self.stages,
            self.architecture,
            self.recipe,
            self.start,
            seeds=seeds,
            validation=validation,
            follow=follow,
            device=device,
        )

    def untrained(self, seed: int) -> HookedTransformer:
        """The model that `seed` starts from."""
        return self.start(seed)


def direct(
    task: TreeTask,
    *,
    heads: int,
    layers: int = 1,
    d_model: int = 128,
    d_head: int = 32,
    recipe: Recipe = RECIPE,
    dtype: torch.dtype | str = torch.float32,
) -> Plan:
    """All weights learned with Adam on fresh trees of the task itself.

    One cosine anneal over the whole budget and no early stop: runs that are not annealed sit at 95 to 99 %.
    """
    plan = architecture(task, heads=heads, layers=layers, d_model=d_model, d_head=d_head)
    stages = (Stage(task, recipe.steps, recipe.batch or RECIPE.batch or 32),)
    return Plan(task, plan, recipe, stages, _random_start(plan, recipe, dtype), "direct")


def curriculum(
    tasks: Sequence[TreeTask],
    steps: Sequence[int],
    batches: Sequence[int],
    *,
    heads: int = 2,
    d_model: int = 128,
    d_head: int = 32,
    recipe: Recipe = RECIPE,
    dtype: torch.dtype | str = torch.float32,
) -> Plan:
    """Several tasks in turn, one cosine over all: what is learned on small trees carries over to large ones.

    The tasks share their labels. Raises ValueError where they do not, or the lists differ in length.
    """
    if not len(tasks) == len(steps) == len(batches) or not tasks:
        raise RequestError(
            f"{len(tasks)} tasks, {len(steps)} steps and {len(batches)} batches: give one of each a stage"
        )
    if len({task.trees.labels for task in tasks}) > 1:
        raise RequestError("the stages of a curriculum share one set of labels: give every task the same number")
    plan = architecture(tasks[-1], heads=heads, d_model=d_model, d_head=d_head)
    recipe = replace(recipe, steps=sum(steps), batch=batches[-1])
    stages = tuple(Stage(task, count, batch) for task, count, batch in zip(tasks, steps, batches, strict=True))
    return Plan(tasks[-1], plan, recipe, stages, _random_start(plan, recipe, dtype), "curriculum")


def usual_stages(
    tasks: Sequence[TreeTask], *, steps: int | None = None, batch: int | None = None
) -> tuple[list[int], list[int]]:
    """Steps and batches of a curriculum: 3 000 steps, then 2 000 a stage, or `steps` in that proportion; batches by
    powers of two so that a step holds about 4 096 positions, 8 to 64 trees, or `batch` each.
    """
    share = [3000] + [2000] * (len(tasks) - 1)
    if steps is not None:
        share = [max(1, round(steps * part / sum(share))) for part in share]
    fitting = [2 ** round(math.log2(4096 / task.layout.length)) for task in tasks]
    return share, [max(8, min(64, size)) if batch is None else batch for size in fitting]


def frozen_labels(
    task: TreeTask,
    *,
    heads: int = 2,
    label_width: int | None = None,
    d_head: int = 32,
    recipe: Recipe = RECIPE,
    dtype: torch.dtype | str = torch.float32,
) -> Plan:
    """Embedding and unembedding as the construction has them, attention learned.

    label_width: random labels of that width, the same for every seed, so that unseen labels mean something; one-hot by
    default.
    """
    vectors = label_vectors(task.trees.labels, label_width, 0)
    plan = architecture(
        task, heads=heads, d_model=3 * vectors.shape[1] + 4, d_head=d_head, frozen=("embed.*", "unembed.*")
    )
    tables = embedding_tables(task, vectors)

    def start(seed: int) -> HookedTransformer:
        model = build(plan, dtype=dtype)
        initialise(model, scale=recipe.init_scale or INIT_SCALE, seed=seed)
        _copy(model, tables)
        return model

    stages = (Stage(task, recipe.steps, recipe.batch or 32),)
    return Plan(task, plan, recipe, stages, start, "frozen labels", {"label_width": label_width})


PLAIN = Recipe(
    steps=1500,
    lr=2.0,
    optimiser="sgd",
    clip=None,
    warmup=0,
    schedule="constant",
    batch=64,
    init_scale=0.0,
    record=200,
)


def plain_descent(
    task: TreeTask,
    *,
    output_scale: float | int = 10.0,
    recipe: Recipe = PLAIN,
    dtype: torch.dtype | str = torch.float32,
) -> Plan:
    """The paper's training: gradient descent from zero on one matrix per head, x_q W x_k, all else frozen.

    One-hot labels; W_K is the identity, W_Q (the matrix W) starts at zero, and values and outputs are the
    construction's, with logits `output_scale` for full attention. Heads with one value map start equal and would
    stay so: that of the backward head is a, of the reverse head b.
    """
    variant = "forward" if task.staged else "backward"
    built = construct(task, variant, beta=output_scale, dtype=torch.float64)
    residual = built.model.cfg.d_model
    heads = built.model.cfg.n_heads
    trained = "blocks.0.attn.W_Q"
    names = [name for name, _ in built.model.named_parameters() if name != trained]
    plan = architecture(task, heads=heads, d_model=residual, d_head=residual, scaled=False, frozen=tuple(names))
    fixed: dict[str, torch.Tensor] = {n: value for n, value in built.model.named_parameters() if n in names}
    thin = built.model.cfg.d_head
    fixed["blocks.0.attn.W_K"] = torch.eye(residual).expand(heads, -1, -1)
    fixed["blocks.0.attn.W_V"] = _widen(fixed["blocks.0.attn.W_V"], (heads, residual, residual), thin)
    fixed["blocks.0.attn.W_O"] = _widen(fixed["blocks.0.attn.W_O"], (heads, residual, residual), thin)
    for name in ("b_Q", "b_K", "b_V"):
        fixed[f"blocks.0.attn.{name}"] = torch.zeros(heads, residual)

    def start(seed: int) -> HookedTransformer:
        model = build(plan, dtype=dtype)
        _copy(model, fixed)
        return model

    stages = (Stage(task, recipe.steps, recipe.batch or 64),)
    return Plan(task, plan, recipe, stages, start, "plain descent", {"output_scale": float(output_scale)})


def _widen(weight: torch.Tensor, shape: tuple[int, int, int], thin: int) -> torch.Tensor:
    """The head's own space padded with unused axes up to the width of the residual stream."""
    wide = torch.zeros(shape, dtype=weight.dtype)
    wide[:, : weight.shape[1], : weight.shape[2]] = weight.detach()
    return wide


def _random_start(plan: Architecture, recipe: Recipe, dtype: torch.dtype | str) -> Callable[[int], HookedTransformer]:
    def start(seed: int) -> HookedTransformer:
        model = build(plan, dtype=dtype)
        initialise(model, scale=INIT_SCALE if recipe.init_scale is None else recipe.init_scale, seed=seed)
        return model

    return start


def _copy(model: HookedTransformer, values: Mapping[str, torch.Tensor]) -> None:
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in values.items():
            parameters[name].copy_(value.detach())
