"""The two heads of trained sparse XOR models under the instruments: where they look and which bit each carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from headlab.analyses.query_alignment import over_training
from headlab.analyses.study.frame import Work
from headlab.analyses.study.record import Array, Measured, Table
from headlab.interp.ablation import ablate_heads
from headlab.interp.alignment import align_roles
from headlab.interp.comparison import compare
from headlab.interp.interventions import Intervention
from headlab.interp.model import HookedModel, activations, untouched
from headlab.interp.patching import patch_contrast
from headlab.interp.paths import patch_edges
from headlab.interp.recovery import recovery
from headlab.interp.roles import score
from headlab.interp.sites import hook_name
from headlab.models.checkpoints import load
from headlab.models.hooked import HookedTransformer
from headlab.models.task import Contrast
from headlab.models.xor.architecture import from_model, to_model
from headlab.models.xor.constructed import limit
from headlab.models.xor.descent import DescentRule, descend
from headlab.models.xor.ensemble import default_width, draw, step_size
from headlab.models.xor.runs import Method, train
from headlab.models.xor.task import XorTask

ABLATIONS = ("zero", "mean", "resample")
EXAMPLES = 256
LETTERS = ("A", "B")


def heads(config: Mapping[str, Any], work: Work) -> Measured:
    """Train by one step, look at every seed, and keep what the figures show of the seed of median alignment."""
    seed, bits = config["seed"], config["bits"]
    task = XorTask(bits, (5, bits - 9))
    seeds = range(seed, seed + config["seeds"])
    folder = train(task, Method(), seeds, work.folder / "one-step", dtype="float64")
    seen = [
        _look(load(work.folder / "one-step" / run["dir"]).model, task, k)
        for run, k in zip(folder["runs"], seeds, strict=True)
    ]
    trained = [each["trained"][0] for each in seen]
    middle = sorted(range(len(seen)), key=lambda row: trained[row]["alignment"])[(len(seen) - 1) // 2]
    shown = seen[middle]
    order = shown["order"]
    before = draw(task, width=default_width(bits), seeds=(seeds[middle],)).attention()[0].numpy()[order]
    small = Method("plain", size=config["small_size"], steps=config["small_steps"])
    train(task, small, seeds[:1], work.folder / "small-steps", dtype="float64")
    curve = over_training(work.folder / "small-steps", task.roles(count=8)).to_frame()
    spine, needles = _spine(config["spine_bits"], seed)
    units = {"patched": {"restored": "share of the gap"}, "ablated": {"loss_added": "squared error"}}
    return {
        **{
            name: Table([row for each in seen for row in each[name]], units.get(name, {}))
            for name in ("trained", "patched", "ablated")
        },
        "untrained": Table([{"specialisation": value} for value in _untrained(task, config["untrained"], seed)]),
        "shown": Table(
            [{"bits": bits, "target_A": task.targets[0], "target_B": task.targets[1], "seed": seeds[middle]}]
        ),
        "alignment": Table(curve.to_dict("records"), {"score": "0 to 1", "alignment": "0 to 1", "step": "steps"}),
        "needles": Table(needles, {"attention": "share"}),
        "attention": Array(np.stack([before, shown["attention"]]), ("step", "head", "position"), "share"),
        "usage": Array(shown["usage"], ("head", "role"), "share of a head's movement"),
        "spine": Array(spine, ("step", "head", "position"), "share"),
    }


def _look(model: HookedTransformer, task: XorTask, seed: int) -> dict[str, Any]:
    """One two-head model under the instruments; heads A, B are those of targets 0, 1."""
    examples = task.examples(seed=seed, count=EXAMPLES)
    alignment = align_roles(model, task.roles(seed=seed), seed=seed)
    ranks = {name: index for index, name in enumerate(task.role_names)}
    matched = [len(ranks) if name is None else ranks[name] for name in alignment.matched]
    order = [int(head) for head in np.argsort(matched, kind="stable")]
    pattern = hook_name("pattern", 0)
    with untouched(model):
        _, cache = activations(model, examples.inputs[:1], [pattern])
    metric_name, metric = next(iter(task.metrics(examples).items()))
    ablated = []
    for kind in ABLATIONS:
        reference = None if kind == "zero" else examples.inputs
        result = ablate_heads(
            model, examples.inputs, metric, kind=kind, reference=reference, seed=seed, name=metric_name
        )
        ablated += [
            {"seed": seed, "head": letter, "kind": kind, "loss_added": float(value)}
            for letter, value in zip(LETTERS, result.mean[order], strict=True)
        ]
    contrasts = task.contrasts(seed=seed)
    patched = [
        {"seed": seed, "head": letter, "contrast": name, "restored": float(value)}
        for name, contrast in contrasts.items()
        for letter, value in zip(LETTERS, _restored(model, contrast)[order], strict=True)
    ]
    limit_model = limit(task, positions=from_model(model, task).positions[0])
    queries = torch.zeros(len(examples), task.bits + 1, dtype=torch.bool)
    queries[:, task.cls] = True
    likeness = compare(model, limit_model.model, examples.inputs, queries, regression=True)
    specialised = score(model, task.roles(seed=seed))
    source = contrasts["target-0"].source
    edges = patch_edges(
        limit_model.model,
        source,
        contrasts["target-0"].metrics["agreement"],
        Intervention("resample", source, seed),
        read=(task.cls,),
    )
    row = {
        "seed": seed,
        "specialisation": specialised.specialisation or 0.0,
        "alignment": float(alignment.alignment),
        "qk": likeness.qk,
        "ov": likeness.ov,
        "in_use": likeness.in_use,
        "limit_auroc": recovery(edges, limit_model.circuit("resample"), seed=seed).auroc,
    }
    attention = cache[pattern][0, order, task.cls, : task.bits].abs().double().numpy()
    usage = np.asarray(specialised.usage)[order]
    return {
        "order": order,
        "trained": [row],
        "ablated": ablated,
        "patched": patched,
        "attention": attention,
        "usage": usage,
    }


def _untrained(task: XorTask, count: int, seed: int) -> list[float]:
    models = draw(task, width=default_width(task.bits), seeds=range(seed + 10_000, seed + 10_000 + count))
    roles = task.roles(seed=seed, count=8)
    return [float(score(to_model(models, row), roles).specialisation or 0.0) for row in range(count)]


def _spine(bits: int, seed: int) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """Attention on every position before and after one step, of the first seed in which each head has its target."""
    task = XorTask(bits, (bits // 5, bits - bits // 3))
    width = default_width(bits)
    models = draw(task, width=width, seeds=range(seed, seed + 16))
    after = descend(models, DescentRule("plain", step_size(task, width)), 1).final
    row = int(after.placement().one_to_one.int().argmax())
    weights = after.attention()[row].numpy()
    order = np.argsort([weights[head].argmax() for head in (0, 1)])  # head A has the first target
    needles = [
        {"head": letter, "position": int(weights[head].argmax()), "attention": float(weights[head].max())}
        for letter, head in zip(LETTERS, order, strict=True)
    ]
    return np.stack([models.attention()[row].numpy()[order], weights[order]]), needles


def _restored(model: HookedModel, contrast: Contrast) -> Float[np.ndarray, " head"]:
    """What each head's output at the CLS restores of the gap, 0 for a background flip, which has none."""
    result = patch_contrast(model, contrast, component="z", by=("layer", "head"))
    share = result.normalised()
    return np.asarray(result.effect() if share is None else share, dtype=float).reshape(-1)
