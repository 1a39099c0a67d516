"""Trainings on the graphs that the claims name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from headlab.analyses.study.frame import Work
from headlab.analyses.study.record import Measured, Table
from headlab.models.esp.certificate import certify
from headlab.models.esp.evaluation import evaluate
from headlab.models.esp.feedback import FeedbackArcSet, minimum_feedback_arc_set
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask
from headlab.models.esp.training import Trained, train

UNITS = {"errors": "questions", "given_up": "arcs", "mfas": "arcs", "accuracy": "share", "step": "steps"}


def trainings(config: Mapping[str, Any], work: Work) -> Measured:
    """Every job of `jobs`: one row a seed."""
    rows, known = [], {}
    for job in config["jobs"]:
        task = EspTask(read_graph(job["graph"]), job["induction"])
        feedback = known.setdefault(job["graph"], minimum_feedback_arc_set(task.graph))
        for one in _trained(task, job, config["seed"], feedback, work):
            rows.append(
                {**{key: job[key] for key in ("claim", "graph", "induction")}, **row_of(one, task, job, feedback)}
            )
    return {"trainings": Table(rows, UNITS)}


def _trained(
    task: EspTask, job: Mapping[str, Any], seed: int, feedback: FeedbackArcSet, work: Work
) -> tuple[Trained, ...]:
    seeds = range(seed, seed + job["seeds"])
    result = train(task, heads=job["heads"], method=job["method"], seeds=seeds, feedback=feedback, device=work.device)
    return result.models


def row_of(one: Trained, task: EspTask, job: Mapping[str, Any], feedback: FeedbackArcSet) -> dict[str, Any]:
    """What the record holds of a trained model, with the certificate of a one-head model."""
    certificate = certify(one.model, task, feedback=feedback) if job["heads"] == 1 else None
    given_up = certificate.given_up if certificate else None
    return {
        "heads": job["heads"],
        "method": job["method"],
        "vertices": task.n,
        "mfas": feedback.lower,
        "width": one.model.cfg.d_model,
        "parameters": sum(each.numel() for each in one.model.parameters() if each.requires_grad),
        "seed": one.seed,
        "errors": one.errors,
        "accuracy": one.accuracy,
        "step": one.step,
        "solved": one.solved,
        "in_class": certificate.in_class if certificate else None,
        "certified": certificate.holds if certificate else None,
        "given_up": None if given_up is None else len(given_up),
    }


def layer_norm(config: Mapping[str, Any], work: Work) -> Measured:
    """One-head models with a trained final LayerNorm, with its bias and without."""
    task = EspTask(read_graph(config["graph"]))
    job = {"heads": 1, "method": "layer-norm", "seeds": config["seeds"]}
    feedback = minimum_feedback_arc_set(task.graph)
    rows = []
    for one in _trained(task, job, config["seed"], feedback, work):
        rows.append({**row_of(one, task, job, feedback), "accuracy_without_bias": _without_bias(one, task)})
    return {"layer_norm": Table(rows, {**UNITS, "accuracy_without_bias": "share"})}


def _without_bias(one: Trained, task: EspTask) -> float:
    bias: Tensor = one.model.ln_final.b  # type: ignore[assignment]
    value = bias.detach().clone()
    with torch.no_grad():
        bias.zero_()
        accuracy = evaluate(one.model, task).accuracy
        bias.copy_(value)
    return accuracy
