"""What the tree study measures, one function a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headlab.analyses.study.tree.records import Built, Look, Row, Run, Trained
from headlab.analyses.study.tree.circuits import RIGHT, label_circuits
from headlab.analyses.study.tree.heads import TreeHeads, detect, formation
from headlab.interp.errors import RequestError
from headlab.interp.patching import patch_contrast
from headlab.interp.roles import chance, score
from headlab.models.hooked import HookedTransformer, build, initialise
from headlab.models.tree.constructed import construct
from headlab.models.tree.evaluation import evaluate
from headlab.models.tree.generation import agreement
from headlab.models.tree.recipes import INIT_SCALE
from headlab.models.tree.source import TreeSource, stream
from headlab.models.tree.task import TreeTask

CONTRAST_ROLE = {"goal": "backward", "edge": "backward", "predecessor": "reverse"}


def constructed_table(*, quick: bool, seed: int) -> list[Built]:
    """The constructions on unseen trees, random and perfect binary, written token by token and teacher-forced.

    One-hot labels up to depth 10; 512 or 1024 near-orthogonal labels in 64 dimensions for the deep ones.
    """
    cases: list[tuple[TreeTask, str, int | None, int]] = []
    for depth in (3, 5, 7, 10):
        trees = TreeSource(depths=(depth,), split="none")
        cases += [(TreeTask(trees, direction), direction, None, 200 if quick else 500) for direction in DIRECTIONS]
    for depth, paths in ((50, 100), (200, 50)):
        trees = TreeSource(depths=(depth,), labels=512, split="none")
        cases.append((TreeTask(trees), "forward", 66, paths // 10 if quick else paths))
    for depth in range(3, 10):
        trees = TreeSource(depths=(depth,), shape="binary", labels=1024, split="none")
        cases.append((TreeTask(trees), "forward", 66, 20 if quick else 100))
    held = TreeSource(depths=(5,), labels=512, split="labels")
    cases.append((TreeTask(held), "forward", 66, 100 if quick else 500))
    return [_built(*case, seed=seed) for case in cases]


DIRECTIONS = ("backward", "forward")


def _built(task: TreeTask, variant: str, width: int | None, paths: int, *, seed: int) -> Built:
    made = construct(task, variant, label_width=width)
    found = agreement(made.model, task, task.examples(seed=seed, count=paths))
    trees = task.trees
    shape = f"{variant}, {trees.shape}" + (", unseen labels" if trees.split == "labels" else "")
    margin = evaluate(made.model, task, seed=seed, count=min(paths, 50)).min_margin
    return Built(
        shape=shape,
        depth=trees.deepest,
        labels=trees.labels,
        width=(made.model.cfg.d_model - 4) // 3,
        paths=found.paths,
        generated=found.generated,
        teacher_forced=found.teacher_forced,
        margin=margin,
    )


def constructed_score(count: int = 64) -> float:
    """The specialisation of the two-head construction at depth 5."""
    task = TreeTask(TreeSource(depths=(5,)))
    return score(construct(task, "forward").model, task.roles(count=count)).specialisation or 0.0


def look(job: str, run: Run, *, count: int = 256, pairs: int = 64, seed: int = 0) -> Look:
    """A trained model under every instrument: roles, group ablation, phases, patching, circuits between labels."""
    checkpoint = run.load()
    task = TreeTask.from_options(checkpoint.task_options)
    heads = detect(checkpoint.model, task, seed=seed, count=count)
    recovery, off_query = recovered(checkpoint.model, task, heads, pairs=pairs, seed=seed)
    between = label_circuits(checkpoint.model, task)
    diagonal = {
        name: min((between.diagonal_share(role, head)[name] for _, head in heads.group(role)), default=0.0)
        for role in heads.assignment.score.roles
        for name in RIGHT[role]
    }
    return Look(job, run.seed, heads, formation(checkpoint.history), recovery, off_query, diagonal)


def recovered(
    model: HookedTransformer, task: TreeTask, heads: TreeHeads, *, pairs: int, seed: int
) -> tuple[dict[str, tuple[float, float]], float]:
    """contrast -> the share of the gap that its role's heads recover at the query, and the most any other head does;
    and the largest |share| that a patch of one head anywhere else recovers. Heads of one role are added up.
    """
    found, elsewhere = {}, 0.0
    for name, contrast in task.contrasts(seed=seed, count=pairs).items():
        result = patch_contrast(model, contrast, component="z", metric="logit_difference")
        share = result.normalised()
        if share is None:
            raise RequestError(f"the contrast '{name}' has nothing to recover: {result.why_not()}")
        cells = share[0].double().cpu().numpy()  # [head, position]
        here = cells[:, contrast.read[0]]
        right = [head for _, head in heads.group(CONTRAST_ROLE[name])]
        others = np.delete(here, right)
        found[name] = (float(here[right].sum()), float(np.abs(others).max(initial=0.0)))
        elsewhere = max(elsewhere, float(np.abs(np.delete(cells, contrast.read[0], axis=1)).max()))
    return found, elsewhere


def untrained_scores(run: Run, *, models: int, count: int = 64) -> list[float]:
    """The specialisation of untrained models of a run's architecture, as the recipe initialises them."""
    checkpoint = run.load()
    task = TreeTask.from_options(checkpoint.task_options)

    def fresh(seed: int) -> HookedTransformer:
        model = build(checkpoint.architecture)
        initialise(model, scale=INIT_SCALE, seed=seed)
        return model

    return list(chance(fresh, task.roles(count=count), seeds=models).values)


def by_depth(trained: Trained, depths: Sequence[int], *, count: int, seed: int = 0) -> list[Row]:
    """Path accuracy of a job's models on trees of other depths, those for which there are labels enough."""
    checkpoints = [run.load() for run in trained.runs]
    rows = []
    for depth in depths:
        task = TreeTask.from_options(checkpoints[0].task_options)
        if depth >= task.trees.labels:
            continue
        task = replace(task, trees=replace(task.trees, depths=(depth,), nodes=None, split="none"))
        examples = task.examples(seed=seed, count=count)
        values = [evaluate(checkpoint.model, task, examples=examples).path_accuracy for checkpoint in checkpoints]
        rows.append(Row(depth, values, f"{len(examples)} trees of {task.trees.most_nodes} nodes"))
    return rows


@dataclass(frozen=True)
class Unseen:
    """Path accuracy of the same models on training's own kind of trees, and on what training never saw."""

    kind: str
    seen: float
    unseen: float
    trees: int


def unseen(trained: Trained, kind: str, *, count: int, seed: int = 0) -> Unseen:
    """Mean over seeds on trees of either side of the split that the models were trained under."""
    seen, held, number = [], [], 0
    for run in trained.runs:
        checkpoint = run.load()
        task = TreeTask.from_options(checkpoint.task_options)
        drawn = task.as_examples(task.training_batch(count, seed=10**7 + seed, index=0))
        seen.append(evaluate(checkpoint.model, task, examples=drawn).path_accuracy)
        held.append(evaluate(checkpoint.model, task, seed=seed, count=count).path_accuracy)
        number += count
    return Unseen(kind, float(np.mean(seen)), float(np.mean(held)), number)


def other_depth(trained: Trained, depth: int, *, count: int, seed: int = 0) -> list[float]:
    """Path accuracy per seed on binary trees of a depth that training never showed."""
    found = []
    for run in trained.runs:
        checkpoint = run.load()
        task = TreeTask.from_options(checkpoint.task_options)
        task = replace(task, trees=replace(task.trees, depths=(depth,)))
        found.append(evaluate(checkpoint.model, task, seed=seed, count=count, batch=16).path_accuracy)
    return found


def guess_rate(depth: int, *, trees: int = 2000, seed: int = 0) -> float:
    """The chance of the right path where one of the tree's deepest nodes is guessed evenly."""
    source = TreeSource(depths=(depth,))
    forest, _ = source.draw(trees, stream(seed, 9), test=True)
    deepest = (forest.depth() == depth).sum(1).double()
    return float((1 / deepest).mean())
