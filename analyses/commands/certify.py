"""`headlab certify`: is a one-head ESP model in the theorem's class, which order does it hold, what is its bound."""

from __future__ import annotations

from typing import Any

from headlab.analyses.commands.tables import print_facts
from headlab.analyses.options.instruments import Certify
from headlab.analyses.systems import system
from headlab.interp.errors import RequestError
from headlab.models.checkpoints import load
from headlab.models.esp.certificate import certify
from headlab.models.esp.feedback import minimum_feedback_arc_set


def run(options: Certify) -> dict[str, Any]:
    """The JSON of `headlab certify`. Raises RequestError for another task, or another number of heads."""
    checkpoint = load(options.dir, device=options.common.device)
    if checkpoint.task != "esp":
        raise RequestError(f"'{checkpoint.directory}' is of the task {checkpoint.task}: only esp models are certified")
    task = system("esp").task(checkpoint)
    mfas = minimum_feedback_arc_set(task.graph, nodes=options.nodes)
    return {"dir": str(checkpoint.directory), **certify(checkpoint.model, task, feedback=mfas).to_json()}


def show(result: dict[str, Any]) -> None:
    """Print it for a reader, the order as one line."""
    shown = dict(result)
    if shown["order"] is not None:
        shown["order"] = " > ".join(shown["order"])
        shown["feedback_arcs"] = ", ".join(f"{u} -> {v}" for u, v in shown["feedback_arcs"]) or "none"
    shown.pop("potential")
    print_facts(shown)
