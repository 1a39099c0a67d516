"""The parts of the tree study: each trains or constructs models and looks at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from headlab.analyses.progress import steps_of
from headlab.analyses.study.frame import Work
from headlab.analyses.study.record import Array, Measured, Table
from headlab.analyses.study.tree.circuits import RIGHT, block_cosines, label_circuits
from headlab.analyses.study.tree.heads import TreeHeads, detect, formation
from headlab.interp.errors import RequestError
from headlab.interp.model import activations, untouched
from headlab.interp.patching import patch_contrast
from headlab.interp.roles import chance, score
from headlab.models.checkpoints import Checkpoint, load, load_runs
from headlab.models.hooked import HookedTransformer, build, initialise
from headlab.models.tree.constructed import construct
from headlab.models.tree.evaluation import evaluate
from headlab.models.tree.generation import agreement
from headlab.models.tree.recipes import INIT_SCALE, RECIPE, Plan, curriculum, direct, frozen_labels, plain_descent
from headlab.models.tree.runs import train
from headlab.models.tree.source import TreeSource, stream
from headlab.models.tree.task import TreeTask

Config = Mapping[str, Any]
CONTRAST_ROLE = {"goal": "backward", "edge": "backward", "predecessor": "reverse"}
LETTER_ROLES = ("backward", "reverse")  # the roles in the order of the letters A and B
REACHED = (0.5, 0.95, 0.99)  # path accuracies whose first step is recorded
SHOWN_LABELS = 12


def make_plan(job: Config) -> Plan:
    """The training that a job's settings describe."""
    own = {key: job[key] for key in ("labels", "shape") if key in job}
    tasks = [
        TreeTask(
            TreeSource(depths=(depth,), **own, **({} if "shape" in own else {"split": job.get("split", "shape")})),
            job["direction"],
            **{key: job[key] for key in ("form", "chain_of_thought") if key in job},
        )
        for depth in job.get("depths", (job["depth"],))
    ]
    recipe = replace(RECIPE, steps=2000, warmup=100, record=40) if job.get("recipe") == "without chain" else RECIPE
    recipe = replace(recipe, **{key: job[key] for key in ("steps", "batch") if key in job})
    if job["method"] == "plain descent":
        return plain_descent(tasks[0])
    if job["method"] == "frozen labels":
        return frozen_labels(tasks[0], d_head=job["d_head"], label_width=job.get("label_width"), recipe=recipe)
    if job["method"] == "curriculum":
        return curriculum(tasks, tuple(job["stage_steps"]), tuple(job["batches"]))
    return direct(tasks[0], heads=job["heads"], layers=job["layers"], recipe=recipe)


def training(config: Config, work: Work) -> Measured:
    """Train the seeds of one job, resuming where it was interrupted, and look at its models."""
    plan, seeds = make_plan(config), list(range(config["seed"], config["seed"] + config["seeds"]))
    name = name_of(config)
    folder = work.folder / name
    runs = train(
        plan,
        seeds,
        folder,
        resume=True,
        follow=config["follow"],
        device=work.device,
        progress=steps_of(work.report, name),
    )["runs"]
    models = {row["seed"]: load(folder / row["dir"]) for row in runs}
    about = {key: config[key] for key in ("kind", "direction", "heads", "layers", "depth")}
    tables = {"models": [{"job": name, **about, **_trained(row, models[row["seed"]])} for row in runs]}
    if config["look"]:
        tables |= _looks(name, about, models, **config["look"], seed=config["seed"])
    if config["lengths"]:
        tables["lengths"] = _lengths(name, models, config["lengths"], config["trees"], config["seed"])
    if config["unseen"]:
        tables["unseen"] = [_unseen(config["unseen"], models, config["trees"], config["seed"])]
    if config["kind"] == "plain-descent":
        tables["cosines"] = [row for seed, model in models.items() for row in _cosines(name, seed, model)]
    tables["other_depths"] = [
        {"job": name, "stage": None, "depth": depth, **row}
        for depth in config.get("other_depths", ())
        for row in other_depth(models, depth, count=1000, seed=config["seed"])
    ]
    if config.get("before_last"):
        tables["other_depths"] += _before_last(name, folder, config)
    arrays = {}
    if config["shown"]:
        shown, arrays = _shown(name, models, tables["instruments"])
        tables |= shown
    units = {"path_accuracy": "share", "token_accuracy": "share", "loss": "nats"}
    return {
        **{key: Table(rows, units if key == "models" else {}) for key, rows in tables.items() if rows},
        **arrays,
    }


def name_of(config: Config) -> str:
    """The folder of a job, from its settings."""
    depth = config["depth"]
    names = {
        "control": "control-one-hot-wide",
        "unseen-labels": "unseen-labels",
        "without-chain": f"without-chain-l{config['layers']}-d{depth}",
        "plain-tokens": f"plain-tokens-l{config['layers']}-d{depth}",
    }
    with_heads = f"{config['kind']}-h{config['heads']}-d{depth}"
    plain = f"{config['kind']}-d{depth}"
    return names.get(config["kind"], with_heads if config["kind"] in ("forward", "backward") else plain)


def _trained(row: Mapping[str, Any], model: Checkpoint) -> dict[str, Any]:
    columns = ("seed", "steps", "paths", "errors", "path_accuracy", "token_accuracy", "loss")
    history = [(each["step"], each["path"]) for each in model.history if each.get("path") is not None]
    first = {f"steps_to_{level:g}": next((step for step, path in history if path >= level), None) for level in REACHED}
    return {**{key: row[key] for key in columns}, **first}


# ---- instruments on trained models ----------------------------------------------------------------------------


def _looks(
    name: str, about: Mapping[str, Any], models: Mapping[int, Checkpoint], *, count: int, pairs: int, seed: int
) -> dict[str, list[dict[str, Any]]]:
    """Roles, group ablation, phases, patching and circuits between labels, for every seed."""
    tables: dict[str, list[dict[str, Any]]] = {"instruments": [], "heads": [], "usage": [], "recovery": []}
    for number, checkpoint in models.items():
        key = {"job": name, "seed": number}
        task = TreeTask.from_options(checkpoint.task_options)
        heads = detect(checkpoint.model, task, seed=seed, count=count)
        recovery, off_query = recovered(checkpoint.model, task, heads, pairs=pairs, seed=seed)
        tables["recovery"] += [{**key, "contrast": each, "right": own, "other": other}
                               for each, (own, other) in recovery.items()]  # fmt: skip
        tables["heads"] += [{**key, **row} for row in heads.to_frame().to_dict("records")]
        tables["usage"] += [
            {**key, "head": head, "role": role, "usage": float(heads.assignment.score.usage[head, column])}
            for column, role in enumerate(heads.assignment.score.roles)
            for head in range(len(heads.assignment.score.usage))
        ]
        tables["instruments"].append({**key, **about, **_figures_of(checkpoint, task, heads), "off_query": off_query})
    return tables


def _figures_of(checkpoint: Checkpoint, task: TreeTask, heads: TreeHeads) -> dict[str, Any]:
    """One model's row: its score, what is left of roles without heads, its circuits' diagonals, and its phases."""
    found, formed = heads.assignment.score, formation(checkpoint.history)
    between = label_circuits(checkpoint.model, task)
    diagonal = {
        name: min((between.diagonal_share(role, head)[name] for _, head in heads.group(role)), default=0.0)
        for role in found.roles
        for name in RIGHT[role]
    }
    left = {f"{role} without {gone}": heads.left(gone, role) for role in found.roles for gone in found.roles}
    spans = {
        f"{curve} {end}": step
        for curve in formed.phases
        for end, step in zip(("from", "to"), formed.span(curve), strict=True)
    }
    return {
        "specialisation": found.coverage if found.specialisation is None else found.specialisation,
        "first": formed.first,
        "path_lost_without_other_heads": heads.path_lost.get(None),
        "acting_backward": _acting(heads, "backward", 0),
        "acting_reverse": _acting(heads, "reverse", 1),
        **{f"diagonal {key}": value for key, value in diagonal.items()},
        **left,
        **spans,
    }


def _acting(heads: TreeHeads, role: str, column: int) -> int:
    """The head of the role that is used most; the construction's where none plays it."""
    usage = heads.assignment.score.usage
    return max((head for _, head in heads.group(role)), key=lambda head: usage[head, column], default=column)


def recovered(
    model: HookedTransformer, task: TreeTask, heads: TreeHeads, *, pairs: int, seed: int
) -> tuple[dict[str, tuple[float, float]], float]:
    """What a patch of single heads restores, at the query and elsewhere.

    Returns:
        contrast -> (share of the gap that its role's heads restore at the query, added up; the most any other head
        does), and the largest |share| that a patch of one head anywhere else restores.
    """
    shares, elsewhere = {}, 0.0
    for name, contrast in task.contrasts(seed=seed, count=pairs).items():
        result = patch_contrast(model, contrast, component="z", metric="logit_difference")
        share = result.normalised()
        if share is None:
            raise RequestError(f"the contrast '{name}' has nothing to recover: {result.why_not()}")
        cells = share[0].double().cpu().numpy()  # [head, position]
        here = cells[:, contrast.read[0]]
        right = [head for _, head in heads.group(CONTRAST_ROLE[name])]
        others = np.delete(here, right)
        shares[name] = (float(here[right].sum()), float(np.abs(others).max(initial=0.0)))
        elsewhere = max(elsewhere, float(np.abs(np.delete(cells, contrast.read[0], axis=1)).max()))
    return shares, elsewhere


def _lengths(
    name: str, models: Mapping[int, Checkpoint], depths: Sequence[int], count: int, seed: int
) -> list[dict[str, Any]]:
    """The same models on trees of other depths, those for which there are labels enough."""
    own = TreeTask.from_options(next(iter(models.values())).task_options)
    rows = []
    for depth in (each for each in depths if each < own.trees.labels):
        task = replace(own, trees=replace(own.trees, depths=(depth,), nodes=None, split="none"))
        examples = task.examples(seed=seed, count=count)
        for number, checkpoint in models.items():
            measured = evaluate(checkpoint.model, task, examples=examples)
            rows.append({"job": name, "seed": number, "depth": depth, "paths": count, "nodes": task.trees.most_nodes})
            rows[-1] |= {"errors": measured.errors, "path_accuracy": measured.path_accuracy}
    return rows


def _unseen(kind: str, models: Mapping[int, Checkpoint], count: int, seed: int) -> dict[str, Any]:
    """Path accuracy on either side of the split that the models were trained under, mean over seeds."""
    seen, held = [], []
    for checkpoint in models.values():
        task = TreeTask.from_options(checkpoint.task_options)
        drawn = task.as_examples(task.training_batch(count, seed=10**7 + seed, index=0))
        seen.append(evaluate(checkpoint.model, task, examples=drawn).path_accuracy)
        held.append(evaluate(checkpoint.model, task, seed=seed, count=count).path_accuracy)
    return {"kind": kind, "seen": float(np.mean(seen)), "unseen": float(np.mean(held)), "trees": count * len(models)}


def _cosines(name: str, seed: int, checkpoint: Checkpoint) -> list[dict[str, Any]]:
    cosines = block_cosines(checkpoint.model, TreeTask.from_options(checkpoint.task_options))
    return [{"job": name, "seed": seed, "role": role, **each} for role, each in cosines.items()]


def other_depth(models: Mapping[int, Checkpoint], depth: int, *, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Path accuracy of each seed on the task's trees of another depth."""
    rows = []
    for number, checkpoint in models.items():
        task = TreeTask.from_options(checkpoint.task_options)
        task = replace(task, trees=replace(task.trees, depths=(depth,)))
        measured = evaluate(checkpoint.model, task, seed=seed, count=count, batch=16)
        rows.append({"seed": number, "paths": count, "path_accuracy": measured.path_accuracy})
    return rows


def _before_last(name: str, folder: Path, config: Config) -> list[dict[str, Any]]:
    """The last depth of a curriculum, with the weights from the end of each stage before it was trained on."""
    rows = []
    for stage in range(1, len(config["depths"])):
        between = folder / f"after-stage-{stage}"
        models = {row["seed"]: load(between / row["dir"]) for row in load_runs(between)["runs"]}
        depth = config["depths"][-1]
        rows += [
            {"job": name, "stage": stage, "depth": depth, **row}
            for row in other_depth(models, depth, count=400, seed=config["seed"])
        ]
    return rows


def _shown(
    name: str, models: Mapping[int, Checkpoint], instruments: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, Array]]:
    """The seed of median specialisation, the lower one of two: its attention, its circuits and its curves."""
    ordered = sorted(instruments, key=lambda row: (row["specialisation"], row["seed"]))
    row = ordered[(len(ordered) - 1) // 2]
    checkpoint = models[row["seed"]]
    task = TreeTask.from_options(checkpoint.task_options)
    heads = [row["acting_backward"], row["acting_reverse"]]
    labels, pattern = _attention(checkpoint.model, task, heads)
    curves = formation(checkpoint.history).curves
    tables = {
        "shown": [{"job": name, "seed": row["seed"], "labels": task.trees.labels, "depth": task.layout.depth}],
        "tokens": [{"job": name, "position": place, "token": token} for place, token in enumerate(labels)],
        "curves": [
            {"job": name, "seed": row["seed"], "curve": curve, "step": float(step), "value": float(value)}
            for curve, (steps, values) in curves.items()
            for step, value in zip(steps, values, strict=True)
        ],
    }
    arrays = {
        "pattern": Array(pattern, ("head", "read", "key"), "attention"),
        "circuits": Array(_circuits(checkpoint.model, task, heads), ("circuit", "model", "row", "column"), "share"),
    }
    return tables, arrays


def _attention(model: HookedTransformer, task: TreeTask, heads: Sequence[int]) -> tuple[list[str], np.ndarray]:
    """The attention of `heads` on one unseen tree, from the positions that predict."""
    example, hook = task.examples(seed=7, count=1), "blocks.0.attn.hook_pattern"
    with untouched(model):
        _, held = activations(model, example.inputs, [hook])
    pattern = held[hook][0, list(heads), int(example.read[0, 0]) :].clamp(0, 1)
    return list(task.token_labels(example.inputs[0])), pattern.cpu().numpy()


def _circuits(model: HookedTransformer, task: TreeTask, heads: Sequence[int]) -> np.ndarray:
    """The four right circuits, learned and constructed, for the first labels: row means removed, over the largest."""
    learned, built = label_circuits(model, task), label_circuits(construct(task, "forward").model, task)
    matrices, size = [], min(SHOWN_LABELS, task.trees.labels)
    for role, own, theirs in zip(LETTER_ROLES, heads, (0, 1), strict=True):
        for name in RIGHT[role]:
            pair = []
            for circuits, head in ((learned, own), (built, theirs)):
                matrix = circuits.of(role, head)[name]
                matrix = matrix - matrix.mean(1, keepdims=True)
                pair.append(matrix[:size, :size] / np.abs(matrix).max())
            matrices.append(pair)
    return np.array(matrices)


# ---- constructions and controls ----------------------------------------------------------------------------


def constructed(config: Config, work: Work) -> Measured:
    """The constructions on unseen trees, written token by token and teacher-forced."""
    rows = [_constructed(case, config["seed"]) for case in config["cases"]]
    task = TreeTask(TreeSource(depths=(5,)))
    own = score(construct(task, "forward").model, task.roles(count=64)).specialisation
    units = {"margin": "logits"}
    return {"constructed": Table(rows, units), "constructed_score": Table([{"depth": 5, "specialisation": own}])}


def _constructed(case: Config, seed: int) -> dict[str, Any]:
    source = {key: case[key] for key in ("labels", "shape") if key in case}
    trees = TreeSource(depths=(case["depth"],), split=case.get("split", "none"), **source)
    task = TreeTask(trees, case["direction"])
    built = construct(task, case["direction"], label_width=case.get("label_width"))
    written = agreement(built.model, task, task.examples(seed=seed, count=case["paths"]))
    margin = evaluate(built.model, task, seed=seed, count=min(case["paths"], 50)).min_margin
    return {
        "direction": case["direction"],
        "shape": trees.shape,
        "unseen_labels": trees.split == "labels",
        "depth": trees.deepest,
        "labels": trees.labels,
        "width": (built.model.cfg.d_model - 4) // 3,
        "paths": written.paths,
        "generated": written.generated,
        "teacher_forced": written.teacher_forced,
        "margin": margin,
    }


def untrained(config: Config, work: Work) -> Measured:
    """The specialisation of untrained two-head models, as the recipe initialises them."""
    plan = make_plan({"direction": "forward", "depth": config["depth"], "heads": 2, "layers": 1, "method": "direct"})

    def fresh(seed: int) -> HookedTransformer:
        model = build(plan.architecture)
        initialise(model, scale=INIT_SCALE, seed=seed)
        return model

    values = chance(fresh, plan.task.roles(count=64), seeds=config["models"]).values
    return {"untrained": Table([{"seed": k, "specialisation": float(value)} for k, value in enumerate(values)])}


def guesses(config: Config, work: Work) -> Measured:
    """The chance of the right path where one of the tree's deepest nodes is guessed evenly."""
    rows = [{"depth": d, "share": guess_rate(d, trees=config["trees"], seed=config["seed"])} for d in config["depths"]]
    return {"guesses": Table(rows)}


def guess_rate(depth: int, *, trees: int = 2000, seed: int = 0) -> float:
    """The mean over random trees of one over the number of deepest nodes."""
    forest, _ = TreeSource(depths=(depth,)).draw(trees, stream(seed, 9), test=True)
    deepest = (forest.depth() == depth).sum(1).double()
    return float((1 / deepest).mean())


def generation(config: Config, work: Work) -> Measured:
    """CPU time of writing a path with kept keys and values, beside a full forward pass a token."""
    from headlab.analyses.bench.generation import measure

    case = measure(config["depth"], config["trees"], pairs=1)
    row = {"depth": config["depth"], "ratio": case["ratio"]["median"], "different_tokens": case["max_difference"]}
    return {"generation": Table([row], {"ratio": "peer's CPU time / ours"})}
