"""`headlab ablate`: what each head is worth, as the performance that is lost without it."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from torch import Tensor

from headlab.analyses.commands.heads import load_with_heads
from headlab.analyses.commands.tables import print_table
from headlab.analyses.options.instruments import Ablate
from headlab.analyses.systems import system
from headlab.interp.ablation import ablate_heads
from headlab.interp.errors import RequestError, UnknownName
from headlab.models.task import Examples, LogitMetric, Task


def examples_of(task: Task, seed: int, count: int) -> Examples:
    """All examples where they can be listed and are at most `count`, else `count` of them drawn with `seed`."""
    try:
        listed = task.examples(seed=seed)
    except ValueError:
        return task.examples(seed=seed, count=count)
    return listed if len(listed) <= count else task.examples(seed=seed, count=count)


def chosen_metric(task: Task, examples: Examples, name: str | None) -> tuple[str, LogitMetric]:
    """The metric called `name`, the task's first by default. Raises KeyError with the names there are."""
    return pick(task.metrics(examples), name, "metric")


def pick(choices: Any, name: str | None, what: str) -> tuple[str, Any]:
    """The entry called `name`, the first by default. Raises KeyError with the names there are."""
    if name is None:
        name = next(iter(choices))
    if name not in choices:
        raise UnknownName(f"no {what} '{name}': there are {', '.join(choices)}")
    return name, choices[name]


def run(options: Ablate) -> dict[str, Any]:
    """The JSON of `headlab ablate`: effects are means over examples, `by_factor` splits them by the factor's levels."""
    checkpoint = load_with_heads(options.dir, options.common.device)
    task = system(checkpoint.task).task(checkpoint)
    examples = examples_of(task, options.common.seed, options.count).to(options.common.device)
    metric_name, metric = chosen_metric(task, examples, options.metric)
    factor: str | None = None
    levels: Tensor | None = None
    if examples.factors:
        factor, levels = pick(examples.factors, options.factor, "factor")
    matched = options.kind == "matched_resample"
    if matched and levels is None:
        raise RequestError("matched_resample needs a factor to match on, and this task's examples have none")
    heads = [(layer, h) for layer in range(checkpoint.model.cfg.n_layers) for h in range(checkpoint.model.cfg.n_heads)]
    groups = [(head,) for head in heads] + (list(combinations(heads, 2)) if options.groups else [])
    result = ablate_heads(
        checkpoint.model,
        examples.inputs,
        metric,
        kind=options.kind,
        reference=None if options.kind == "zero" else examples.inputs,
        factors=levels if matched else None,
        seed=options.common.seed,
        groups=groups,
        name=metric_name,
    )
    split = {} if levels is None else result.by_factor(levels)
    names = examples.levels.get(factor, ()) if factor else ()

    def row(index: int) -> dict[str, Any]:
        by_factor = {names[level] if names else str(level): float(mean[index]) for level, mean in split.items()}
        return {"effect": float(result.mean[index]), "by_factor": by_factor}

    singles = [{"layer": layer, "head": head, **row(i)} for i, (layer, head) in enumerate(heads)]
    together = [{"heads": [list(h) for h in group], **row(i)} for i, group in enumerate(groups) if len(group) > 1]
    return {
        "dir": str(checkpoint.directory),
        "kind": options.kind,
        "reference": None if options.kind == "zero" else f"the same {len(examples)} examples",
        "metric": metric_name,
        "factor": factor,
        "samples": len(examples),
        "baseline": float(result.baseline.mean()),
        "heads": singles,
        "groups": together,
        "warning": result.warning,
        "device": result.device,
    }


def show(result: dict[str, Any]) -> None:
    """Print it for a reader."""
    levels = list(result["heads"][0]["by_factor"])
    shown = levels if len(levels) <= 6 else []
    rows = [
        [f"{r['layer']}.{r['head']}", r["effect"], *(r["by_factor"].get(level) for level in shown)]
        for r in result["heads"]
    ]
    rows += [
        [" + ".join(f"{layer}.{head}" for layer, head in r["heads"]), r["effect"], *(r["by_factor"][k] for k in shown)]
        for r in result["groups"]
    ]
    title = f"{result['metric']} lost by {result['kind']} ablation; baseline {result['baseline']:.4g}"
    print_table(["head", "all", *(f"{result['factor']} {level}" for level in shown)], rows, title=title)
    if result["warning"]:
        print(result["warning"])
