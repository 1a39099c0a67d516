"""The study's own graph: constructed models, four ways of training, two heads under the instruments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headlab.analyses.progress import steps_of
from headlab.analyses.study.esp.compared import compare_with_construction
from headlab.analyses.study.esp.constructed import graph_of
from headlab.analyses.study.esp.trainings import UNITS, row_of
from headlab.analyses.study.esp.two_heads import TwoHeads, look, one_arc, shown_arc
from headlab.analyses.study.frame import Work
from headlab.analyses.study.record import Array, Measured, Table
from headlab.analyses.systems.esp import checkpoint_of
from headlab.interp.roles import chance, score
from headlab.models.checkpoints import save
from headlab.models.esp.certificate import certify
from headlab.models.esp.constructed import construct
from headlab.models.esp.evaluation import read_logits
from headlab.models.esp.feedback import FeedbackArcSet, minimum_feedback_arc_set
from headlab.models.esp.graphs import Digraph
from headlab.models.esp.task import EspTask
from headlab.models.esp.training import Trained, TrainedSeeds, train
from headlab.models.hooked import HookedTransformer, build, initialise

METHODS = {  # name -> (heads, training method)
    "cross-entropy": (1, "cross-entropy"),
    "bounded-loss": (1, "gce"),
    "solver-guided": (1, "solver-guided"),
    "two-heads": (2, "cross-entropy"),
}
BY_ITSELF = ("cross-entropy", "bounded-loss")  # one-head methods that know nothing of the solver's answer
CHANCE_SEEDS = 64
CONSTRUCTED = {"one-head-dag": 1, "one-head": 1, "two-head": 2, "two-head-narrow": 2}
Config = Mapping[str, Any]


def on_graph(config: Config, work: Work) -> Measured:
    """Everything that is trained and built on the study's graph; checkpoints are saved."""
    graph = graph_of(config)
    task = EspTask(graph)
    feedback = minimum_feedback_arc_set(graph)
    rows = _constructed(task, feedback, work)
    results = {name: train_method(task, name, config, feedback, work) for name in METHODS if _applies(name, feedback)}
    for name, result in results.items():
        for index, one in enumerate(result.models):
            save(work.folder / name / f"seed-{one.seed}", result.checkpoint(index))
            rows.append(model_row(name, one, task, feedback))
    two = results["two-heads"]
    looks = [look(one.model, task, seed=config["seed"]) for one in two.models]
    shown = _median(looks, two.models)
    logit_parts, pair_parts = one_arc(two.models[shown].model, task, looks[shown].order, shown_arc(graph))
    order = list(looks[shown].order)
    return {
        **order_tables(graph, feedback, results),
        **_looks(two.models, looks, shown),
        "models": Table(rows, UNITS),
        "curves": Table(
            [row for name, each in results.items() for row in _curves(name, each, task, config)], CURVE_UNITS
        ),
        "untrained": Table([{"specialisation": value} for value in _untrained(two, task, config["seed"], work)]),
        "logit_parts": Array(logit_parts, ("selector", "head", "vertex"), "logits"),
        "pair_parts": Array(pair_parts, ("selector", "position", "head"), "logits"),
        "movement": Array(looks[shown].score.p[order], ("head", "role"), "share of all that is moved"),
        "usage": Array(looks[shown].score.usage[order], ("head", "role"), "usage"),
    }


CURVE_UNITS = {"step": "steps", "accuracy": "share", "endpoint_share": "share", "specialisation": "0 to 1"}


def _applies(name: str, feedback: FeedbackArcSet) -> bool:
    return name != "solver-guided" or feedback.lower > 0  # an acyclic graph has no arc to leave out


def train_method(task: EspTask, name: str, config: Config, feedback: FeedbackArcSet, work: Work) -> TrainedSeeds:
    """Every seed of one method."""
    heads, how = METHODS[name]
    return train(
        task,
        heads=heads,
        method=how,
        seeds=range(config["seed"], config["seed"] + config["seeds"]),
        feedback=feedback,
        device=work.device,
        history=heads == 2,
        progress=steps_of(work.report, f"training: {name}, {task.graph.name}"),
    )


def model_row(name: str, one: Trained, task: EspTask, feedback: FeedbackArcSet) -> dict[str, Any]:
    """A trained model in the table of all models."""
    heads, how = METHODS[name]
    return {"way": name, "constructed": False, **row_of(one, task, {"heads": heads, "method": how}, feedback)}


def _constructed(task: EspTask, feedback: FeedbackArcSet, work: Work) -> list[dict[str, Any]]:
    """The construction of one head (acyclic where the graph is) and both of two heads, evaluated and saved."""
    from headlab.models.esp.evaluation import evaluate

    rows = []
    for variant, heads in CONSTRUCTED.items():
        if variant == ("one-head" if feedback.lower == 0 else "one-head-dag"):
            continue
        built = construct(task, variant, tied=True, device=work.device)
        save(work.folder / variant, checkpoint_of(built, task))
        result = evaluate(built.model, task)
        one = Trained(0, result.errors, result.accuracy, 0, None, built.model)
        about = {"heads": heads, "method": "construction"}
        rows.append({"way": variant, "constructed": True, **row_of(one, task, about, feedback)})
    return rows


def order_tables(graph: Digraph, feedback: FeedbackArcSet, results: Mapping[str, TrainedSeeds]) -> dict[str, Table]:
    """The graph, and the order that the best one-head model holds, where the graph has a cycle.

    The best is the one with the fewest errors of the methods that are not told the solver's answer; None where no
    such model was trained.
    """
    ways = [name for name in BY_ITSELF if name in results]
    name = min(ways, key=lambda key: (min(one.errors for one in results[key].models), key), default=None)
    best = min(results[name].models, key=lambda one: (one.errors, one.seed)) if name else None
    order = certify(best.model, EspTask(graph), feedback=feedback).order if best else None
    about = {"graph": graph.name}
    row = {
        **about,
        "vertices": graph.n,
        "arcs": graph.m,
        "mfas_lower": feedback.lower,
        "mfas_upper": feedback.upper,
        "best_way": name,
        "best_seed": best.seed if best else None,
        "best_loss": "GCE" if name == "bounded-loss" else name,
    }
    place = {vertex: k for k, vertex in enumerate(order or range(graph.n))}
    return {
        "graphs": Table([row], {"mfas_lower": "arcs", "mfas_upper": "arcs"}),
        "vertices": Table(
            [{**about, "vertex": k, "label": label, "place": place[k]} for k, label in enumerate(graph.labels)]
        ),
        "arcs": Table([{**about, "tail": tail, "head": head} for tail, head in graph.arcs]),
    }


def _median(looks: Sequence[TwoHeads], models: Sequence[Trained]) -> int:
    """The position of the seed of median specialisation, the lower one of two."""
    order = sorted(range(len(looks)), key=lambda k: (looks[k].score.specialisation or 0.0, models[k].seed))
    return order[(len(order) - 1) // 2]


def _looks(models: Sequence[Trained], looks: Sequence[TwoHeads], shown: int) -> dict[str, Table]:
    seeds = [one.seed for one in models]
    ablation = [
        {"seed": seed, "kind": kind, "head": head, "selector": level + 1, "accuracy_lost": float(value)}
        for seed, each in zip(seeds, looks, strict=True)
        for kind in each.ablation
        for head, row in (*zip("AB", each.ablation[kind], strict=True), ("A+B", each.together[kind]))
        for level, value in enumerate(row)
    ]
    attribution = [
        {
            "seed": seed,
            "head": "AB"[h],
            "selector": level + 1,
            "position": ("u", "v", "selector", "#")[p],
            "attention": float(each.attention[h, level, p]),
            "attribution": float(each.attribution[h, level, p]),
        }
        for seed, each in zip(seeds, looks, strict=True)
        for h in (0, 1)
        for level in (0, 1)
        for p in range(4)
    ]
    scores = [
        {
            "seed": seed,
            "errors": one.errors,
            "shown": k == shown,
            "samples": each.samples,
            "specialisation": each.score.specialisation or 0.0,
            "separation": each.score.separation,
            "information": each.score.information,
            "coverage": each.score.coverage,
        }
        for k, (seed, one, each) in enumerate(zip(seeds, models, looks, strict=True))
    ]
    return {
        "ablation": Table(ablation, {"accuracy_lost": "share"}),
        "attribution": Table(attribution, {"attention": "share", "attribution": "logits"}),
        "specialisation": Table(scores, {"specialisation": "0 to 1"}),
    }


def _curves(name: str, result: TrainedSeeds, task: EspTask, config: Config) -> list[dict[str, Any]]:
    """Accuracy of every seed at the recorded steps; endpoint answers and specialisation where weights were kept."""
    roles = task.roles(seed=config["seed"], count=64)
    rows = []
    for point in result.run.history:
        step = point["step"]
        for index, one in enumerate(result.models):
            share = specialisation = None
            if result.run.weights:
                model = result.learner.export(index, result.run.weights[step])
                share, specialisation = _endpoint_share(model, task), score(model, roles).specialisation or 0.0
            accuracy = float(point["accuracy"][index])
            row = {"way": name, "seed": one.seed, "step": step, "accuracy": accuracy, "endpoint_share": share}
            rows.append({**row, "specialisation": specialisation})
    return rows


def _endpoint_share(model: HookedTransformer, task: EspTask) -> float:
    """The share of questions whose largest logit is one of the two endpoints, right or wrong."""
    u, v = task.endpoints(task.examples())
    answers = read_logits(model, task).argmax(-1)
    return float(((answers == u) | (answers == v)).double().mean())


def _fresh(result: TrainedSeeds, device: str) -> Any:
    """Untrained models of a training's architecture, by seed."""

    def untrained(seed: int) -> HookedTransformer:
        model = build(result.architecture, device=device)
        initialise(model, scale=result.recipe.init_scale, seed=seed)  # type: ignore[arg-type]
        return model

    return untrained


def _untrained(result: TrainedSeeds, task: EspTask, seed: int, work: Work) -> list[float]:
    return [
        float(each) for each in chance(_fresh(result, work.device), task.roles(seed=seed), seeds=CHANCE_SEEDS).values
    ]


def on_small_graph(config: Config, work: Work) -> Measured:
    """A graph that is small enough to show weights: two heads beside the construction, and the order of one head."""
    graph = graph_of(config)
    task, feedback = EspTask(graph), minimum_feedback_arc_set(graph)
    ways = ("two-heads",) if "labels" in config else (*BY_ITSELF, "two-heads")  # one head is shown on the own graph
    results = {name: train_method(task, name, config, feedback, work) for name in ways}
    two = results["two-heads"]
    compared = compare_with_construction(task, [one.model for one in two.models], _fresh(two, work.device))
    rows = [model_row(name, one, task, feedback) for name, each in results.items() for one in each.models]
    arrays = {
        f"{side}_{part}": Array(np.stack([pair[k] for pair in pairs]), axes, "logits")
        for side, pairs in (("learned", compared.learned), ("built", compared.built))
        for k, (part, axes) in enumerate((("qk", ("head", "row")), ("ov", ("head", "row", "vertex"))))
    }
    tables = order_tables(graph, feedback, results)
    return {
        **{f"small_{name}": table for name, table in tables.items()},
        **arrays,
        "small_models": Table(rows, UNITS),
        "comparison": Table([vars(each) for each in compared.seeds], {"agreement": "share"}),
        "shown_comparison": Table(
            [
                {"head": letter, "qk": qk, "ov": ov, "in_use": use}
                for letter, (qk, ov, use) in zip("AB", compared.shown_heads, strict=True)
            ]
        ),
        "untrained_comparison": Table([dict(compared.chance)]),
    }
