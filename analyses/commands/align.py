"""`headlab align`: how exactly each head's query has found a target of its own, and when."""

from __future__ import annotations

from typing import Any

from headlab.analyses.commands.heads import load_with_heads
from headlab.analyses.commands.tables import print_table
from headlab.analyses.options.instruments import Align
from headlab.analyses.query_alignment import over_training
from headlab.analyses.systems import system
from headlab.interp.alignment import align_roles
from headlab.interp.errors import RequestError
from headlab.models.checkpoints import history_steps


def run(options: Align) -> dict[str, Any]:
    """The JSON of `headlab align`; `over_training` where the checkpoint keeps the weights of earlier steps."""
    if options.shuffles < 1:
        raise RequestError(f"the chance level needs at least one shuffle, not {options.shuffles}")
    checkpoint = load_with_heads(options.dir, options.common.device)
    roles = system(checkpoint.task).task(checkpoint).roles(seed=options.common.seed)
    result = align_roles(checkpoint.model, roles, shuffles=options.shuffles, seed=options.common.seed)
    level = result.chance
    curve = None
    if checkpoint.directory is not None and history_steps(checkpoint.directory):
        traced = over_training(checkpoint.directory, roles, device=options.common.device)
        curve = {
            "steps": list(traced.steps),
            "alignment": traced.alignment.tolist(),
            "rank": traced.rank.tolist(),
            "scores": traced.scores.tolist(),
        }
    return {
        "dir": str(checkpoint.directory),
        "alignment": result.alignment,
        "rank": result.rank,
        "heads": [
            {**row, "target": row["target"] or None, "rank": float(row["rank"])}
            for row in result.to_frame().to_dict("records")
        ],
        "targets": list(result.targets),
        "left_over": [list(head) for head in result.left_over],
        "matrix": result.matrix.tolist(),
        "chance": None if level is None else {"median": level.median, "p95": level.p95, "shuffles": level.count},
        "over_training": curve,
        "device": options.common.device,
    }


def show(result: dict[str, Any]) -> None:
    """Print it for a reader."""
    rows = [[f"{r['layer']}.{r['head']}", r["target"], r["score"], r["rank"]] for r in result["heads"]]
    print_table(["head", "target", "alignment", "rank"], rows)
    level = result["chance"]
    print(
        f"alignment {result['alignment']:.3f}, rank {result['rank']:.3f}; shuffled targets: median "
        f"{level['median']:.3f}, 95 % below {level['p95']:.3f}"
    )
    if result["over_training"]:
        traced = result["over_training"]
        pairs = zip(traced["steps"], traced["alignment"], strict=True)
        print("over training: " + ", ".join(f"{step}: {value:.3f}" for step, value in pairs))
