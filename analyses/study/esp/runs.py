"""Making the study's models: constructed ones, and many seeds of each training method together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from headlab.analyses.options.common import Common
from headlab.analyses.progress import Report
from headlab.analyses.study.esp.records import Curves, Method, Run
from headlab.analyses.systems.esp import checkpoint_of
from headlab.interp.roles import chance, score
from headlab.models.checkpoints import save
from headlab.models.esp.certificate import Certificate, certify
from headlab.models.esp.constructed import construct
from headlab.models.esp.evaluation import evaluate, read_logits
from headlab.models.esp.feedback import FeedbackArcSet, minimum_feedback_arc_set
from headlab.models.esp.graphs import Digraph, read_graph
from headlab.models.esp.task import EspTask
from headlab.models.esp.training import TrainedSeeds, train
from headlab.models.hooked import HookedTransformer, build, initialise

# key -> (label, note, heads, training method)
LEARNED = {
    "cross-entropy": ("One head, cross-entropy", "usual loss", 1, "cross-entropy"),
    "bounded-loss": ("One head, bounded loss", "GCE q = {q:g}", 1, "gce"),
    "solver-guided": ("One head, told which arcs to drop", "solver-guided", 1, "solver-guided"),
    "two-heads": ("Two heads, trained", "usual loss", 2, "cross-entropy"),
}
CHANCE_SEEDS = 64


class Runs:
    """Makes what the study needs, and keeps the checkpoints of its own graph's models in `folder`."""

    def __init__(self, common: Common, seeds: int, folder: Path, report: Report | None = None) -> None:
        self.common, self.folder, self.report = common, folder, report
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
            "two-head-narrow": ("Two narrow heads, built", 2),
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
                variant,
                label,
                "construction, no training",
                heads,
                (run,),
                constructed=True,
                architecture=made.architecture,
            )
        return methods

    def _certificate(self, model: HookedTransformer, task: EspTask) -> Certificate:
        return certify(model, task, feedback=self.mfas(task.graph))

    def trained(self, task: EspTask, mfas: FeedbackArcSet, *, keep: bool = True) -> dict[str, Method]:
        """Every learned method at every seed; checkpoints are saved where `keep`."""
        self._mfas[task.graph] = mfas
        methods = {}
        for key, (label, note, heads, how) in LEARNED.items():
            if how == "solver-guided" and mfas.lower == 0:
                continue  # an acyclic graph has no arc to leave out
            result = train(
                task,
                heads=heads,
                method=how,
                seeds=self.seeds,
                feedback=mfas,
                device=self.common.device,
                history=heads == 2,
                progress=self._progress(f"training: {label.lower()}, {task.graph.name}"),
            )
            runs = []
            for index, one in enumerate(result.models):
                where = self.folder / key / f"seed-{one.seed}"
                directory = save(where, result.checkpoint(index)) if keep else Path()
                certificate = self._certificate(one.model, task) if heads == 1 else None
                runs.append(
                    Run(one.seed, one.errors, one.accuracy, one.step, one.solved, one.model, directory, certificate)
                )
            methods[key] = Method(
                key,
                label,
                f"{note.format(q=result.recipe.q)}, {len(runs)} seeds",
                heads,
                tuple(runs),
                self._curves(task, result),
                recipe=result.recipe.to_json(),
                architecture=result.architecture,
            )
        return methods

    def _progress(self, what: str) -> Callable[[int, int], None] | None:
        report = self.report
        return None if report is None else lambda done, total: report(what, done, total)

    def _curves(self, task: EspTask, result: TrainedSeeds) -> Curves:
        """Accuracy of every seed at the recorded steps; endpoint answers and specialisation where weights were kept."""
        steps = [row["step"] for row in result.run.history]
        accuracy = np.array([row["accuracy"] for row in result.run.history], dtype=float).T
        if not result.run.weights:
            return Curves(steps, accuracy)
        roles = task.roles(seed=self.common.seed, count=64)
        shares, scores = np.zeros_like(accuracy), np.zeros_like(accuracy)
        for k, step in enumerate(steps):
            for i in range(len(self.seeds)):
                model = result.learner.export(i, result.run.weights[step])
                shares[i, k] = _endpoint_share(model, task)
                scores[i, k] = score(model, roles).specialisation or 0.0
        return Curves(steps, accuracy, shares, scores)

    def chance(self, method: Method, task: EspTask) -> list[float]:
        """Specialisation of untrained models of the method's architecture."""
        assert method.architecture is not None
        architecture = method.architecture

        def untrained(seed: int) -> HookedTransformer:
            model = build(architecture, device=self.common.device)
            initialise(model, scale=method.recipe["init_scale"], seed=seed)
            return model

        return list(chance(untrained, task.roles(seed=self.common.seed), seeds=CHANCE_SEEDS).values)

    def side(self, spec: str, heads: int, how: str, seeds: int) -> Sequence[Run]:
        """Runs on a named graph, for the claims that name one; nothing is saved."""
        task = EspTask(read_graph(spec))
        seeds_used = range(self.common.seed, self.common.seed + seeds)
        found = train(
            task, heads=heads, method=how, seeds=seeds_used, feedback=self.mfas(task.graph), device=self.common.device
        )
        return [
            Run(
                one.seed,
                one.errors,
                one.accuracy,
                one.step,
                one.solved,
                one.model,
                Path(),
                self._certificate(one.model, task) if heads == 1 else None,
            )
            for one in found.models
        ]


def _endpoint_share(model: HookedTransformer, task: EspTask) -> float:
    """The share of questions whose largest logit is one of the two endpoints, right or wrong."""
    examples = task.examples()
    u, v = task.endpoints(examples)
    said = read_logits(model, task).argmax(-1)
    return float(((said == u) | (said == v)).double().mean())
