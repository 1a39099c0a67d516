"""Making the study's models: constructed ones, and many seeds of each training method together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from analyses.options.common import Common
from analyses.study.esp.records import Curves, Method, Run
from analyses.systems.esp import checkpoint_of
from interp.roles import chance, score
from models.checkpoints import save
from models.esp.certificate import Certificate, certify
from models.esp.constructed import construct
from models.esp.evaluation import evaluate, read_logits
from models.esp.feedback import FeedbackArcSet, minimum_feedback_arc_set
from models.esp.graphs import Digraph, read_graph
from models.esp.task import EspTask
from models.hooked import HookedTransformer, build, initialise

# key -> (label, note, heads, training method)
LEARNED = {
    "cross-entropy": ("One head, cross-entropy", "usual loss", 1, "cross-entropy"),
    "bounded-loss": ("One head, bounded loss", "GCE q = 0.7", 1, "gce"),
    "solver-guided": ("One head, told which arcs to drop", "solver-guided", 1, "solver-guided"),
    "two-heads": ("Two heads, trained", "usual loss", 2, "cross-entropy"),
}
CHANCE_SEEDS = 64


class Runs:
    """Makes what the study needs, and keeps the checkpoints of its own graph's models in `folder`."""

    def __init__(self, common: Common, seeds: int, folder: Path) -> None:
        self.common, self.folder = common, folder
        self.seeds = range(common.seed, common.seed + seeds)
        self._mfas: dict[Digraph, FeedbackArcSet] = {}

    def mfas(self, graph: Digraph) -> FeedbackArcSet:
        """The minimum feedback arc set of a graph, solved once."""
        if graph not in self._mfas:
            self._mfas[graph] = minimum_feedback_arc_set(graph)
        return self._mfas[graph]

    def constructed(self, task: EspTask, mfas: FeedbackArcSet) -> dict[str, Method]:
        """The construction of one head (acyclic where the graph is) and both of two heads, evaluated and saved."""
        self._mfas[task.graph] = mfas
        named = {
            "one-head-dag" if mfas.lower == 0 else "one-head": ("One head, built by hand", 1),
            "two-head": ("Two heads, built by hand", 2),
            "two-head-narrow": ("Two heads of width 2, built by hand", 2),
        }
        methods = {}
        for variant, (label, heads) in named.items():
            made = construct(task, variant, tied=True, device=self.common.device)
            checkpoint = checkpoint_of(made, task)
            directory = save(self.folder / variant, checkpoint)
            found = evaluate(made.model, task)
            certificate = self._certificate(made.model, task) if heads == 1 else None
            run = Run(0, found.errors, found.accuracy, 0, None, made.model, directory, certificate)
            methods[variant] = Method(
                variant, label, "construction, no training", heads, (run,), constructed=True,
                architecture=made.architecture,
            )
        return methods

    def _certificate(self, model: HookedTransformer, task: EspTask) -> Certificate:
        return certify(model, task, feedback=self.mfas(task.graph))
