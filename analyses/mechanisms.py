"""How training divides work between heads: which mechanism it ends in, over seeds, tasks and lengths of training.

`python -m headlab.analyses.mechanisms --out FILE` measures anew what `records/mechanisms.json` holds.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from headlab.interp import statistics
from headlab.interp.model import HookedModel
from headlab.interp.roles import Role, Specialisation, score
from headlab.interp.roles.specialisation import DEFINITION, MECHANISMS

RECORD = Path(__file__).parent / "records" / "mechanisms.json"
TREE_STEPS = (800, 1200, 2400)
GRAPHS = (("complete:5", 32), ("click", 16))


def row(name: str, models: Sequence[HookedModel], roles: Sequence[Role], accuracy: Sequence[float]) -> dict[str, Any]:
    """One row of the record: how many models have each mechanism, with the exact interval of its share.

    Args:
        name: Of the training.
        models: One a seed.
        roles: The task's.
        accuracy: Share of right answers, one a seed.
    """
    scores = [score(model, roles, causal=True) for model in models]
    counts = Counter(each.mechanism for each in scores)
    return {
        "training": name,
        "seeds": len(models),
        "right": sum(value == 1 for value in accuracy),
        "mechanisms": {kind: _share(counts[kind], len(models)) for kind in MECHANISMS if counts[kind]},
        "specialisation": _estimate([each.value for each in scores]),
        "quiet": _estimate([_least_quiet(each) for each in scores]),
        "foreign": _estimate([float(each.causal.foreign.max()) for each in scores if each.causal is not None]),
        "by_seed": [
            {
                "accuracy": value,
                "specialisation": each.value,
                "separation": each.separation,
                "mechanism": list(each.mechanisms),
                "quiet": _least_quiet(each),
                "foreign": each.causal.foreign.tolist() if each.causal else None,
            }
            for each, value in zip(scores, accuracy, strict=True)
        ],
    }


def _least_quiet(result: Specialisation) -> float:
    """The quiet of the head that serves each role best, of the worst role."""
    best = result.usage.argmax(0)
    return float(result.quiet[best, np.arange(len(best))].min())


def _share(count: int, trials: int) -> dict[str, Any]:
    found = statistics.share(count, trials)
    return {"count": count, "share": found.value, "low": found.low, "high": found.high}


def _estimate(values: Sequence[float]) -> dict[str, Any]:
    found = statistics.median(values)
    interval = found.interval
    ends = None if interval is None else {"low": found.low, "high": found.high, "level": interval.level}
    return {"median": found.value, "least": min(values), "largest": max(values), "interval": ends}


def endpoint_selection(graph: str, seeds: int) -> dict[str, Any]:
    """Two heads by cross-entropy on a graph."""
    from headlab.models.esp.graphs import read_graph
    from headlab.models.esp.task import EspTask
    from headlab.models.esp.training import train

    task = EspTask(read_graph(graph))
    trained = train(task, heads=2, method="cross-entropy", seeds=range(seeds)).models
    return row(f"esp {graph}", [one.model for one in trained], task.roles(), [one.accuracy for one in trained])


def trees(steps: int, seeds: int) -> dict[str, Any]:
    """Two heads on forward trees of depth 3, by the recipe's cosine over `steps` steps."""
    from headlab.models.training import fit
    from headlab.models.tree.evaluation import evaluate
    from headlab.models.tree.recipes import RECIPE, direct
    from headlab.models.tree.source import TreeSource
    from headlab.models.tree.task import TreeTask

    task = TreeTask(TreeSource(depths=(3,), split="shape"))
    plan = direct(task, heads=2, recipe=replace(RECIPE, steps=steps, record=steps))
    learner = plan.learner(range(seeds), validation=64)
    fit(learner, plan.recipe)
    models = [learner.export(seed) for seed in range(seeds)]
    right = [evaluate(model, task, count=256).path_accuracy for model in models]
    return row(f"tree d3 h2, {steps} steps", models, task.roles(count=128), right)


def measure(*, graphs: Sequence[tuple[str, int]] = GRAPHS, steps: Sequence[int] = TREE_STEPS, seeds: int = 8) -> list:
    """The rows of the record.

    Args:
        graphs: Graph and number of seeds of each endpoint selection training.
        steps: Lengths of the trainings on trees.
        seeds: Seeds of each of those.
    """
    return [*(endpoint_selection(*each) for each in graphs), *(trees(each, seeds) for each in steps)]


def record(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The rows with what made them: command, date, versions, the definition of the score."""
    from headlab.models.checkpoints import versions

    return {
        "command": "python -m headlab.analyses.mechanisms",
        "date": datetime.now(UTC).date().isoformat(),
        "versions": versions(),
        "definition": DEFINITION,
        "rows": list(rows),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(prog="python -m headlab.analyses.mechanisms", description=__doc__)
    parser.add_argument("--out", type=Path, default=RECORD, help="file to write")
    out: Path = parser.parse_args(arguments).out
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record(measure()), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
