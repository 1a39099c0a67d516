"""`headlab compare`: two models of one task, up to head order, head bases, scale and softmax shift."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from headlab.analyses.commands.ablate import examples_of
from headlab.analyses.commands.heads import load_with_heads
from headlab.analyses.commands.tables import print_table
from headlab.analyses.options.instruments import Compare
from headlab.analyses.systems import system
from headlab.interp import comparison
from headlab.interp.errors import RequestError
from headlab.models.task import Examples, Task

PROBES = 512


def run(options: Compare) -> dict[str, Any]:
    """The JSON of `headlab compare`; the examples are those of DIR_A's task.

    Raises RequestError where the two are of different tasks, or of different graphs, vocabularies or lengths.
    """
    a, b = (load_with_heads(directory, options.common.device) for directory in (options.dir_a, options.dir_b))
    if a.task != b.task:
        raise RequestError(f"'{options.dir_a}' is of the task {a.task} and '{options.dir_b}' of {b.task}: compare like")
    commands = system(a.task)
    task = commands.task(a)
    if task.vocabulary != commands.task(b).vocabulary or task.positions != commands.task(b).positions:
        raise RequestError(f"'{options.dir_a}' and '{options.dir_b}' differ in vocabulary or positions: compare like")
    examples = examples_of(task, options.common.seed, PROBES)
    regression = not task.vocabulary
    queries = read_queries(task, examples)
    result = comparison.compare(a.model, b.model, examples.inputs, queries, regression=regression)
    level = comparison.chance(
        lambda seed: commands.untrained(a, seed), b.model, examples.inputs, queries, regression=regression
    )
    return {
        "dir_a": str(a.directory),
        "dir_b": str(b.directory),
        "qk": result.qk,
        "ov": result.ov,
        "in_use": result.in_use,
        "space": result.space,
        "function": dict(result.function),
        "heads": [
            {"a": list(match.a), "b": list(match.b), "qk": match.qk, "ov": match.ov, "in_use": match.in_use}
            for match in result.heads
        ],
        "chance": {name: {"median": each.median, "p95": each.p95, "seeds": each.count} for name, each in level.items()},
        "rows": result.rows,
        "samples": len(examples),
        "device": options.common.device,
    }


def read_queries(task: Task, examples: Examples) -> Bool[Tensor, "example position"]:
    """True at the positions that are read; unused columns of `read` (-1) mark nothing."""
    marked = torch.zeros(len(examples), len(task.positions) + 1, dtype=torch.bool)
    marked[torch.arange(len(examples))[:, None], examples.read] = True  # -1 falls on the column that is cut off
    return marked[:, :-1]


def show(result: dict[str, Any]) -> None:
    """Print it for a reader."""
    rows = [
        [".".join(map(str, h["a"])), ".".join(map(str, h["b"])), h["qk"], h["ov"], h["in_use"]] for h in result["heads"]
    ]
    rows.append(["all", "", result["qk"], result["ov"], result["in_use"]])
    rows.append(["untrained, median", "", *(result["chance"][name]["median"] for name in ("qk", "ov", "in_use"))])
    print_table(["head of A", "head of B", "QK", "OV", "in use"], rows, title=f"cosine, {result['space']}")
    print(", ".join(f"{name} {value:.4g}" for name, value in result["function"].items()))
