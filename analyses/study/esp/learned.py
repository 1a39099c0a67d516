"""The claims that trained weights decide: on the study's own graph, and on the graphs that the claims name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headlab.analyses import head_importance
from headlab.analyses.claims import Measurement, judge_bound, judge_figure, judge_statement, load_claims
from headlab.analyses.study.esp.records import Method, Run, best_one_head
from headlab.interp.statistics import median, share
from headlab.models.esp.evaluation import evaluate
from headlab.models.esp.feedback import FeedbackArcSet, minimum_feedback_arc_set
from headlab.models.esp.graphs import Digraph, read_graph
from headlab.models.esp.task import EspTask

# graph, heads, method, how many seeds -> its runs, with certificates for one-head models
Trainer = Callable[[str, int, str, int], Sequence[Run]]
FIGURES = {name: claim.figures for name, claim in load_claims().items()}


@dataclass(frozen=True)
class Study:
    """What the claims look at: the study's graph and its methods."""

    graph: Digraph
    mfas: FeedbackArcSet
    methods: Mapping[str, Method]
    seeds: int
    command: str

    def one_head_runs(self) -> list[Run]:
        """Every trained one-head run on the study's graph."""
        return [r for m in self.methods.values() if m.heads == 1 and not m.constructed for r in m.runs]


def on_the_graph(study: Study) -> list[Measurement]:
    """E2 and B3: what the study's own models decide."""
    return [_no_one_head(study), _learned_order(study)]


def on_named_graphs(study: Study, train: Trainer) -> list[Measurement]:
    """E7 to E13, B1 and B2: trainings on the graphs that the claims name."""
    seeds = min(study.seeds, 8)
    return [
        _tournaments("E7", 1, train, seeds, study.command),
        _tournaments("E8", 2, train, seeds, study.command),
        *_complete_one_head(train, seeds, study.command),
        _complete_two_heads(train, seeds, study.command),
        _growing(train, seeds, study.command),
        _feed_forward(train, seeds, study.command),
        _one_at_a_time(train, seeds, study.command),
        _outside(train, study.command),
    ]


def _no_one_head(study: Study) -> Measurement:
    runs = study.one_head_runs()
    certificates = [run.certificate for run in runs if run.certificate is not None]
    inside = [each for each in certificates if each.in_class]
    broken = sum(each.errors < each.feedback.lower or not each.holds for each in inside)
    best = min((each.errors for each in inside), default=0)
    cyclic = study.mfas.lower > 0
    return Measurement(
        "E2",
        judge_bound(broken, len(inside) if cyclic else 0),
        f"{study.graph.name}: the best of {len(inside)} trained one-head models makes {best} errors, at least "
        f"{study.mfas.lower} are forced; {broken} models below their certificate. A lower bound is tested by this "
        "consequence."
        if cyclic
        else f"{study.graph.name} has no cycle: the statement says nothing about it.",
        {
            "models": len(inside),
            "violations": broken,
            "fewest_errors": best,
            "mfas": study.mfas.lower,
            "interval_of": "violations, as a share of models",
        },
        study.command,
        paper="theorem, any width and precision",
        interval=share(broken, len(inside)).interval if inside else None,
        seeds=study.seeds,
    )


def _learned_order(study: Study) -> Measurement:
    method, best = best_one_head(study.methods)
    runs = [run for run in method.runs if run.certificate is not None and run.certificate.in_class]
    slack = [run.certificate.errors - len(run.certificate.given_up or ()) for run in runs]  # type: ignore[union-attr]
    middle = median(slack)
    given_up = len(best.certificate.given_up or ())  # type: ignore[union-attr]
    few = max(1.0, 0.02 * 2 * study.graph.m)
    return Measurement(
        "B3",
        judge_statement(0 <= middle.value <= few, contradicted=min(slack) < 0),
        f"The best seed's order gives up {given_up} arcs and the model makes {best.errors} errors; over "
        f"{len(runs)} seeds of that method errors exceed given-up arcs by a median of {middle.value:g}.",
        {"given_up": given_up, "errors": best.errors, "median_excess": middle.value, "few": few},
        study.command,
        interval=middle.interval,
        seeds=len(runs),
    )


def _tournaments(claim: str, heads: int, train: Trainer, seeds: int, command: str) -> Measurement:
    sizes = (5, 10, 15, 20)
    accuracy = [run.accuracy for n in sizes for run in train(f"tournament:{n}", heads, "cross-entropy", seeds)]
    middle = median(accuracy)
    return Measurement(
        claim,
        judge_figure(min(accuracy), FIGURES[claim]["accuracy"], tolerance=0.0),
        f"{sum(a == 1 for a in accuracy)} of {len(accuracy)} runs at 100 % (n = 5, 10, 15, 20; {seeds} seeds each); "
        f"lowest {100 * min(accuracy):.2f} %.",
        {"runs": len(accuracy), "perfect": sum(a == 1 for a in accuracy), "lowest": min(accuracy)},
        command,
        paper="99 to 100 %",
        interval=middle.interval,
        seeds=seeds,
    )


def _complete_one_head(train: Trainer, seeds: int, command: str) -> list[Measurement]:
    bounded = train("complete:10", 1, "gce", seeds)
    plain = train("complete:10", 1, "cross-entropy", seeds)
    best, usual = max(r.accuracy for r in bounded), max(r.accuracy for r in plain)
    reached = share(sum(r.accuracy == 0.75 for r in bounded), len(bounded))
    tied = median([r.accuracy for r in plain])
    over = sum(r.accuracy > 0.75 for r in (*bounded, *plain))
    return [
        Measurement(
            "E9",
            judge_figure(best, FIGURES["E9"]["best_accuracy"]) if not over else "fails",
            f"n = 10: best {100 * best:.2f} % with the bounded loss, {100 * usual:.2f} % with cross-entropy; the "
            f"ceiling is 75 %, {over} models above it. Gradient descent does reach what is reachable.",
            {
                "best_bounded": best,
                "best_cross_entropy": usual,
                "above_ceiling": over,
                "interval_of": "median accuracy with the bounded loss",
            },
            command,
            paper="best 64.55 to 72.40 %",
            interval=median([r.accuracy for r in bounded]).interval,
            seeds=seeds,
        ),
        Measurement(
            "B2",
            judge_statement(best == 0.75 and tied.high < 0.75, contradicted=best < 0.75),
            f"{reached.successes} of {reached.trials} seeds end at exactly 75 % with the bounded loss; "
            f"cross-entropy has median {100 * tied.value:.1f} %.",
            {"at_optimum": reached.value, "cross_entropy_median": tied.value},
            command,
            interval=reached.interval,
            seeds=seeds,
        ),
    ]


def _complete_two_heads(train: Trainer, seeds: int, command: str) -> Measurement:
    sizes = (5, 10, 15, 20)
    accuracy = [run.accuracy for n in sizes for run in train(f"complete:{n}", 2, "cross-entropy", seeds)]
    return Measurement(
        "E10",
        judge_figure(min(accuracy), FIGURES["E10"]["accuracy"]),
        f"{sum(a == 1 for a in accuracy)} of {len(accuracy)} runs at 100 % (n = 5, 10, 15, 20; {seeds} seeds each).",
        {"runs": len(accuracy), "perfect": sum(a == 1 for a in accuracy), "lowest": min(accuracy)},
        command,
        paper="100 %",
        interval=median(accuracy).interval,
        seeds=seeds,
    )


def _growing(train: Trainer, seeds: int, command: str) -> Measurement:
    rows, off, excess = [], [], []
    for back in (0, 1, 2, 4, 6, 8):
        spec = f"tournament:8:{back}:1"
        graph = read_graph(spec)
        lowest = minimum_feedback_arc_set(graph).upper
        runs = [*train(spec, 1, "gce", seeds), *train(spec, 1, "cross-entropy", seeds)]
        best = min(run.errors for run in runs)
        rows.append(f"{lowest}: {best}")
        off.append(best - lowest)
        excess += [run.errors - lowest for run in runs]
    middle = median(excess)
    return Measurement(
        "E11",
        judge_statement(max(off) <= 1, contradicted=min(off) < 0),
        f"Errors of the best seed by |MFAS| (tournament of 8, arcs reversed): {', '.join(rows)}; over all seeds and "
        f"both losses a median of {middle.value:g} more than |MFAS|.",
        {"excess": off, "median_excess": middle.value},
        command,
        paper="accuracy follows 1 − |MFAS| / 2m",
        interval=middle.interval,
        seeds=2 * seeds,
    )


def _feed_forward(train: Trainer, seeds: int, command: str) -> Measurement:
    wide, two = train("complete:10", 1, "feed-forward", seeds), train("complete:10", 2, "cross-entropy", seeds)
    sizes = [sum(p.numel() for p in runs[0].model.parameters() if p.requires_grad) for runs in (wide, two)]
    solved = share(sum(run.errors == 0 for run in wide), len(wide))
    return Measurement(
        "E12",
        judge_statement(solved.value >= 0.5 and sizes[0] <= 1.5 * sizes[1]),
        f"n = 10: one head with {sizes[0]} parameters solves the complete digraph in {solved.successes} of "
        f"{solved.trials} seeds; two heads have {sizes[1]}.",
        {"solved": solved.value, "parameters": sizes[0], "parameters_two_heads": sizes[1]},
        command,
        paper="matches at a comparable count",
        interval=solved.interval,
        seeds=seeds,
    )


def _one_at_a_time(train: Trainer, seeds: int, command: str) -> Measurement:
    """Two heads share the work and hide nothing; with four there are spare ones, and a pair is more than its parts."""
    task = EspTask(read_graph("complete:10"))
    models = {
        f"{heads} learned heads": [run.model for run in train("complete:10", heads, "cross-entropy", seeds)]
        for heads in (2, 4)
    }
    found = head_importance.measure(task, models, kinds=("mean",), metrics=("accuracy",))
    return head_importance.claim(found, command, model="4 learned heads")


def _outside(train: Trainer, command: str) -> Measurement:
    runs = train("complete:5", 1, "layer-norm", 24)
    task = EspTask(read_graph("complete:5"))
    over = [run for run in runs if run.accuracy > 0.75]
    flagged = sum(run.certificate is not None and not run.certificate.in_class for run in over)
    without = []
    for run in over:
        bias: Tensor = run.model.ln_final.b  # type: ignore[assignment]
        kept = bias.detach().clone()
        with torch.no_grad():
            bias.zero_()
            without.append(evaluate(run.model, task).accuracy)
            bias.copy_(kept)
    perfect = share(sum(run.errors == 0 for run in runs), len(runs))
    return Measurement(
        "B1",
        judge_statement(bool(over) and flagged == len(over), contradicted=flagged < len(over)),
        f"{len(over)} of {len(runs)} one-head models with a trained final LayerNorm pass the ceiling of 75 % on the "
        f"complete digraph of 5 vertices, {perfect.successes} reach 100 %; all are flagged as outside the class. "
        + (f"Without the bias their best is {100 * max(without):.1f} %." if without else ""),
        {"past_ceiling": len(over), "perfect": perfect.successes, "flagged": flagged, "models": len(runs)},
        command,
        interval=perfect.interval,
        seeds=len(runs),
    )
