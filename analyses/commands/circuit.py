"""`headlab circuit`: find the circuit by exact edge patching, and hold it against the one that is known."""

from __future__ import annotations

from typing import Any

from headlab.analyses.commands.ablate import pick
from headlab.analyses.commands.heads import load_with_heads
from headlab.analyses.commands.tables import print_table
from headlab.analyses.options.instruments import CircuitOptions as Options
from headlab.analyses.systems import system
from headlab.interp.circuits import Circuit, Edge
from headlab.interp.discovery import fidelity, threshold_circuit
from headlab.interp.errors import RequestError, UnknownName
from headlab.interp.interventions import Intervention
from headlab.interp.paths import EdgeEffects, patch_edges
from headlab.interp.recovery import recovery
from headlab.models.checkpoints import Checkpoint
from headlab.models.task import Contrast, Task

GENERIC = ("resample", "mean", "positional_mean", "zero")


def run(options: Options) -> dict[str, Any]:
    """The JSON of `headlab circuit`. Effects are what each edge's replacement costs the contrast's source runs.

    Raises KeyError, listing what exists, for another ablation or contrast, and ValueError for a threshold outside
    (0, 1] or fewer than two pairs.
    """
    if not 0 < options.threshold <= 1:
        raise RequestError(f"the threshold is a share of the largest effect, in (0, 1], not {options.threshold}")
    if options.count < 2:
        raise RequestError(f"{options.count} pairs of runs were asked for: resampling needs at least 2")
    checkpoint = load_with_heads(options.dir, options.common.device)
    task = system(checkpoint.task).task(checkpoint)
    contrasts = {
        name: contrast.to(options.common.device)
        for name, contrast in task.contrasts(seed=options.common.seed, count=options.count).items()
    }
    name, contrast, intervention = _chosen(options, contrasts)
    metric_name, metric = pick(contrast.metrics, None, "metric")
    effects = patch_edges(checkpoint.model, contrast.source, metric, intervention, read=contrast.read)
    scores = effects.scores()
    found = threshold_circuit(effects, above=options.threshold * float(scores.max()))
    kept = fidelity(checkpoint.model, contrast.source, metric, intervention, found, read=contrast.read)
    return {
        "dir": str(checkpoint.directory),
        "ablation": name,
        "reference": found.reference or "none",
        "contrast": contrast.name,
        "metric": metric_name,
        "ranking": found.ranking,
        "nodes": [str(node) for node in found.nodes],
        "edges": [_edge(edge, weight) for edge, weight in sorted(found.weights.items(), key=lambda e: -e[1])],
        "edges_measured": len(effects.edges),
        "distance": kept.distance,
        "faithfulness": kept.faithfulness,
        "left_without_it": kept.left,
        "recovery": _recovery(checkpoint, task, name, contrast.read, effects, options.common.seed),
        "engine": effects.engine,
        "warning": effects.warning,
        "device": effects.device,
    }


def _chosen(options: Options, contrasts: dict[str, Contrast]) -> tuple[str, Contrast, Intervention]:
    slots = [f"resample:{name}" for name in contrasts]
    name = options.ablation or "resample"
    if name in slots:
        contrast = contrasts[name.partition(":")[2]]
        return name, contrast, Intervention("patch", contrast.destination)
    if name not in GENERIC:
        raise UnknownName(f"no ablation '{name}': there are {', '.join([*GENERIC, *slots])}")
    _, contrast = pick(contrasts, options.contrast, "contrast")
    reference = None if name == "zero" else contrast.source
    return name, contrast, Intervention(name, reference, options.common.seed)  # type: ignore[arg-type]


def _edge(edge: Edge, weight: float) -> dict[str, Any]:
    return {"from": str(edge.source), "to": str(edge).split(" -> ")[1], "weight": weight}


def _truth(checkpoint: Checkpoint, task: Task, ablation: str, read: tuple[int, ...]) -> Circuit | None:
    if checkpoint.variant is None:
        return None
    try:
        return task.circuit(checkpoint.variant, ablation, read=read)
    except KeyError:
        return None


def _recovery(
    checkpoint: Checkpoint, task: Task, ablation: str, read: tuple[int, ...], effects: EdgeEffects, seed: int
) -> dict[str, Any] | None:
    truth = _truth(checkpoint, task, ablation, read)
    if truth is None:
        return None
    result = recovery(effects, truth, seed=seed)
    return {
        "auroc": result.auroc,
        "average_precision": result.average_precision,
        "random": result.random_auroc.mean,
        "random_low": result.random_auroc.low,
        "random_high": result.random_auroc.high,
        "smallest_true": result.smallest_true,
        "largest_false": result.largest_false,
    }


def show(result: dict[str, Any]) -> None:
    """Print it for a reader."""
    title = (
        f"{result['ablation']} ablation, {result['metric']}; {len(result['edges'])} of {result['edges_measured']} edges"
    )
    print_table(["from", "to", "weight"], [[e["from"], e["to"], e["weight"]] for e in result["edges"]], title=title)
    print(f"the circuit alone is {result['distance']:.4g} away from the model; ranking: {result['ranking']}")
    if result["recovery"] is not None:
        known = result["recovery"]
        print(
            f"known circuit: AUROC {known['auroc']:.3f} (random {known['random']:.2f}), average precision "
            f"{known['average_precision']:.3f}, smallest true {known['smallest_true']:.3g}, "
            f"largest false {known['largest_false']:.3g}"
        )
    if result["warning"]:
        print(result["warning"])
