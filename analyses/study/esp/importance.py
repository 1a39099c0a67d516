"""Is the importance of heads, judged one at a time, less than what they do together? (claim E13)

Each head is ablated alone and every pair together. The excess of a pair is what it loses beyond the sum of its two
heads: above 0 where single ablation underestimates them (they back each other up), 0 where they act independently,
below 0 where either alone already breaks what both are needed for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from headlab.analyses.study.frame import Work
from headlab.analyses.study.record import Measured, Table
from headlab.interp.ablation import ablate_heads
from headlab.interp.errors import RequestError
from headlab.interp.model import HookedModel
from headlab.models.esp.constructed import construct
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask
from headlab.models.esp.training import train


def importance(config: Mapping[str, Any], work: Work) -> Measured:
    """Every pair of heads of learned models with two heads and more, and of the two-head construction."""
    task, first = EspTask(read_graph(config["graph"])), config["seed"]
    models: dict[str, list[HookedModel]] = {"two constructed heads": [construct(task, "two-head").model]}
    for heads in config["learned"]:
        seeds = range(first, first + config["seeds"])
        result = train(task, heads=heads, method="cross-entropy", seeds=seeds, device=work.device)
        models[f"{'two' if heads == 2 else heads} learned heads"] = [one.model for one in result.models]
    rows = [
        {"model": name, "number": number, **row}
        for name, members in models.items()
        for number, model in enumerate(members)
        for row in pairs_of(model, task, kinds=config["kinds"], metrics=config["metrics"], seed=first)
    ]
    return {"importance": Table(rows, dict.fromkeys(("baseline", "first_loss", "second_loss", "pair_loss"), "metric"))}


def pairs_of(
    model: HookedModel, task: EspTask, *, kinds: Sequence[str], metrics: Sequence[str], seed: int = 0
) -> Iterator[dict[str, Any]]:
    """One row a pair, kind and metric; losses are means over all samples of the task.

    matched_resample draws from samples of the same selector. Raises ValueError for a model with a single head.
    """
    examples = task.examples()
    selector = examples.factors["selector"]
    heads = [(layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)]
    if len(heads) < 2:
        raise RequestError("the model has a single head: there is no pair to ablate")
    pairs = list(combinations(range(len(heads)), 2))
    groups = [*([head] for head in heads), *([heads[i], heads[j]] for i, j in pairs)]
    for kind in kinds:
        for metric in metrics:
            result = ablate_heads(
                model,
                examples.inputs,
                task.metrics(examples)[metric],
                kind=kind,  # type: ignore[arg-type]
                reference=None if kind == "zero" else examples.inputs,
                factors=selector if kind == "matched_resample" else None,
                seed=seed,
                groups=groups,
                name=metric,
            )
            loss = result.mean.tolist()
            for (i, j), together in zip(pairs, loss[len(heads) :], strict=True):
                yield {
                    "kind": kind,
                    "metric": metric,
                    "first": f"{heads[i][0]}.{heads[i][1]}",
                    "second": f"{heads[j][0]}.{heads[j][1]}",
                    "baseline": float(result.baseline.mean()),
                    "first_loss": loss[i],
                    "second_loss": loss[j],
                    "pair_loss": together,
                }
