"""The parts of the sparse XOR study that the closed forms alone measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

import numpy as np
import torch

from headlab.analyses.study.frame import Work
from headlab.analyses.study.record import Measured, Table
from headlab.models.attention_maps import ATTENTION_MAPS
from headlab.models.xor import feedforward
from headlab.models.xor.architecture import QUERIES, to_model
from headlab.models.xor.descent import DescentRule, descend, population_objective
from headlab.models.xor.ensemble import Ensemble, default_kappa, draw, step_size
from headlab.models.xor.runs import Method
from headlab.models.xor.task import XorTask

Config = Mapping[str, Any]
MOST_NUMBERS = 8_000_000  # of position vectors held at once: 64 MB in float64
SHARP = 0.99  # attention of a head on its target
SMALL_LOSS = 1e-3


def equality(config: Config, work: Work) -> Measured:
    """Transformer, closed form and brute force over all inputs, each attention map in float64."""
    seeds = range(config["seed"], config["seed"] + config["seeds"])
    rows = [
        _differences(bits, heads, kind, config["width"], seed)
        for bits, heads in config["sizes"]
        for kind in ATTENTION_MAPS
        for seed in seeds
    ]
    return {"equality": Table(rows, dict.fromkeys(("transformer", "loss", "gradient"), "relative difference"))}


def _differences(bits: int, heads: int, kind: str, width: int, seed: int) -> dict[str, Any]:
    targets = tuple(torch.randperm(bits, generator=torch.Generator().manual_seed(seed))[:heads].tolist())
    task = XorTask(bits, targets)
    models = draw(task, width=width, seeds=(seed,), start="independent", kind=kind)
    models = models.with_queries(3 * models.queries)
    model = to_model(models)
    examples = task.examples(count=None)
    queries = dict(model.named_parameters())[QUERIES]
    with torch.enable_grad():
        output = model(examples.inputs)[:, task.cls, 0]
        value = ((output - examples.targets[:, 0]) ** 2).mean()
        (slope,) = torch.autograd.grad(value, queries)
    formula = -(examples.inputs.double() @ models.attention()[0].T).prod(dim=-1)
    loss, gradient = population_objective(models)
    return {
        "bits": bits,
        "heads": heads,
        "map": kind,
        "seed": seed,
        "transformer": _difference(output.detach(), formula),
        "loss": _difference(value.detach(), loss[0]),
        "gradient": _difference(slope, gradient[0]),
    }


def _difference(value: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, in units of the largest value where that is above 1."""
    return float((value - expected).abs().max() / expected.abs().max().clamp(min=1.0))


def steps(config: Config, work: Work) -> Measured:
    """One large step from many seeds in every cell of `cells`."""
    rows = [
        {"group": config["group"], "factor": cell["factor"]}
        | one_step(
            cell["bits"],
            cell["width"],
            range(config["seed"], config["seed"] + cell["seeds"]),
            start=cell.get("start", "antisymmetric"),
            kappa=cell.get("kappa"),
        )
        for cell in config["cells"]
    ]
    units = {"attention_lowest": "share", "attention_median": "share", "loss_largest": "squared error"}
    return {"steps": Table(rows, units | {"start_loss": "squared error"})}


def one_step(
    bits: int, width: int, seeds: Sequence[int], *, start: str = "antisymmetric", kappa: float | None = None
) -> dict[str, Any]:
    """Take one step of size kappa (the default of models.xor) from every seed, a few seeds in memory at a time.

    Returns:
        Counts of seeds: `one_to_one` (each head on a target of its own), `together` (both on one), `on_support`,
        `sharp` (one to one, more than .99 of each head's attention on its target, loss under .001). Attention and
        loss after the step are of the one-to-one seeds.
    """
    task = XorTask(bits)
    kappa = default_kappa(task, width) if kappa is None else kappa
    parts: dict[str, list[np.ndarray]] = {}
    for models in _batches(task, width, seeds, start):
        done = descend(models, DescentRule("plain", step_size(task, width, kappa)), 1)
        placed = done.final.placement()
        measured = {
            "one_to_one": placed.one_to_one,
            "together": placed.together,
            "on_support": placed.on_support,
            "attention": placed.at_targets.amin(dim=-1),
            "loss": done.loss[-1].clamp(min=0),
            "start": done.loss[0],
        }
        for name, value in measured.items():
            parts.setdefault(name, []).append(value.numpy())
    values = {name: np.concatenate(each) for name, each in parts.items()}
    right = values["one_to_one"]
    attention, loss = values["attention"][right], values["loss"][right]
    return {
        "bits": bits,
        "width": width,
        "start": start,
        "kappa": kappa,
        "seeds": len(seeds),
        "one_to_one": int(right.sum()),
        "together": int(values["together"].sum()),
        "on_support": int(values["on_support"].sum()),
        "sharp": int(((attention > SHARP) & (loss < SMALL_LOSS)).sum()),
        "attention_lowest": float(attention.min()) if len(attention) else None,
        "attention_median": float(np.median(attention)) if len(attention) else None,
        "loss_largest": float(loss.max()) if len(loss) else None,
        "start_loss": float(np.median(values["start"])),
    }


def _batches(task: XorTask, width: int, seeds: Sequence[int], start: str) -> Any:
    at_once = max(1, MOST_NUMBERS // (task.bits * width))
    for first in range(0, len(seeds), at_once):
        yield draw(task, width=width, seeds=tuple(seeds[first : first + at_once]), start=start)


def angles(config: Config, work: Work) -> Measured:
    """One step from queries at a stated angle: how often both heads take one target."""
    rows = []
    for cell in config["cells"]:
        task, seeds = XorTask(cell["bits"]), range(config["seed"], config["seed"] + cell["seeds"])
        rule = DescentRule("plain", step_size(task, cell["width"]))
        for angle in config["angles"]:
            together = one_to_one = 0
            for models in _batches(task, cell["width"], seeds, "orthogonal"):
                placed = descend(at_angle(models, angle), rule, 1).final.placement()
                together += int(placed.together.sum())
                one_to_one += int(placed.one_to_one.sum())
            row = {"bits": cell["bits"], "width": cell["width"], "angle": angle, "seeds": len(seeds)}
            rows.append(row | {"together": together, "one_to_one": one_to_one})
    return {"angles": Table(rows, {"angle": "degrees"})}


def at_angle(models: Ensemble, degrees: float) -> Ensemble:
    """The same first query, and a second one at that angle to it, in the plane of two orthogonal queries."""
    first, second = models.queries.unbind(dim=1)
    turn = np.deg2rad(degrees)
    return models.with_queries(torch.stack([first, np.cos(turn) * first + np.sin(turn) * second], dim=1))


def first_gradient(config: Config, work: Work) -> Measured:
    """How far the first gradient moves the scores of the targets, and those of all other positions."""
    rows = []
    for cell in config["cells"]:
        task, seeds = XorTask(cell["bits"]), range(config["seed"], config["seed"] + cell["seeds"])
        models = draw(task, width=cell["width"], seeds=tuple(seeds))
        _, gradient = population_objective(models)
        moved = torch.einsum("shm,sdm->shd", gradient, models.positions).abs().amax(dim=1)  # [seed, position]
        relevant = moved[:, list(task.targets)]
        others = np.delete(moved.numpy(), list(task.targets), axis=1)
        for seed, own, rest in zip(seeds, relevant.numpy(), others, strict=True):
            row = {"bits": cell["bits"], "width": cell["width"], "seed": seed, "relevant": float(own.min())}
            rows.append(row | {"background": float(np.median(rest)), "background_largest": float(rest.max())})
    unit = "score for a unit step"
    return {"first_gradient": Table(rows, dict.fromkeys(("relevant", "background", "background_largest"), unit))}


def parity(config: Config, work: Work) -> Measured:
    """Parity of k bits by every method from every start; antisymmetric starts need an even number of heads."""
    rows = [
        _parity(count, bits, start, method, range(config["seed"], config["seed"] + config["seeds"]))
        for count in config["heads"]
        for bits in config["bits"]
        for start in config["starts"]
        for method in config["methods"]
        if start != "antisymmetric" or count % 2 == 0
    ]
    return {"parity": Table(rows, {"loss_median": "squared error", "loss_largest": "squared error"})}


def _parity(count: int, bits: int, start: str, method: str, seeds: range) -> dict[str, Any]:
    task = XorTask(bits, tuple(range(count)))
    plan = Method(method, start=start).plan(task)  # type: ignore[arg-type]
    models = draw(task, width=plan.width, seeds=tuple(seeds), start=start)
    done = descend(models, plan.rule(task), plan.steps, record=lambda number: False)
    placed, loss = done.final.placement(), done.loss[-1].clamp(min=0)
    return {
        "heads": count,
        "bits": bits,
        "start": start,
        "method": method,
        "seeds": len(seeds),
        "one_to_one": int(placed.one_to_one.sum()),
        "on_support": int(placed.on_support.sum()),
        "loss_median": float(loss.median()),
        "loss_largest": float(loss.max()),
    }


def networks(config: Config, work: Work) -> Measured:
    """Feed-forward networks of one hidden layer; learned: a held-out error under SOLVED."""
    seeds = tuple(range(config["seed"], config["seed"] + config["seeds"]))
    rows = []
    for bits, neurons in config["sizes"]:
        task = XorTask(bits)
        _, run = feedforward.train(task, neurons, seeds, plan=feedforward.recipe(task, steps=config["steps"]))
        learned = sum(solved is not None for solved in run.solved)
        size = feedforward.parameters(task, neurons)
        rows.append({"bits": bits, "neurons": neurons, "parameters": size, "seeds": len(seeds), "learned": learned})
    return {"networks": Table(rows)}


def smallest_attention(config: Config, work: Work) -> Measured:
    """The smallest m, in steps of ln d / 4 from ln d / 2 to 16 ln d, at which one step succeeds in a share of seeds."""
    seeds = range(config["seed"], config["seed"] + config["seeds"])
    rows = []
    for bits in config["bits"]:
        for width in sorted({max(1, round(quarter * log(bits) / 4)) for quarter in range(2, 65)}):
            right = one_step(bits, width, seeds)["one_to_one"]
            if right >= config["level"] * len(seeds):
                rows.append({"bits": bits, "width": width, "seeds": len(seeds), "one_to_one": right})
                break
    return {"smallest_attention": Table(rows)}
