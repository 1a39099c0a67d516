"""`headlab score`: the head specialisation score of a checkpoint, with its chance level."""

from __future__ import annotations

from typing import Any

from headlab.analyses.commands.heads import load_with_heads
from headlab.analyses.commands.tables import print_table
from headlab.analyses.options.instruments import Score
from headlab.analyses.systems import system
from headlab.interp.errors import RequestError
from headlab.interp.roles import chance, score


def run(options: Score) -> dict[str, Any]:
    """The JSON of `headlab score`. Raises ValueError for fewer than one untrained model."""
    if options.chance_seeds < 1:
        raise RequestError(f"the chance level needs at least one untrained model, not {options.chance_seeds}")
    checkpoint = load_with_heads(options.dir, options.common.device)
    room = system(checkpoint.task)
    roles = room.task(checkpoint).roles(seed=options.common.seed)
    result = score(checkpoint.model, roles)
    level = chance(lambda seed: room.untrained(checkpoint, seed), roles, seeds=options.chance_seeds)
    return {
        "dir": str(checkpoint.directory),
        "specialisation": result.specialisation,
        "separation": result.separation,
        "information": result.information,
        "coverage": result.coverage,
        "roles": list(result.roles),
        "heads": [list(head) for head in result.heads],
        "usage": result.usage.tolist(),
        "p": result.p.tolist(),
        "chance": {"median": level.median, "p95": level.p95, "seeds": options.chance_seeds},
        "device": options.common.device,
    }


def show(result: dict[str, Any]) -> None:
    """Print it for a reader."""
    rows = [[f"{layer}.{head}", *usage] for (layer, head), usage in zip(result["heads"], result["usage"], strict=True)]
    print_table(["head", *(f"usage: {role}" for role in result["roles"])], rows)
    level = result["chance"]
    shown = {name: result[name] for name in ("specialisation", "separation", "information", "coverage")}
    print(", ".join(f"{name} {'-' if value is None else f'{value:.3f}'}" for name, value in shown.items()))
    print(f"chance: median {level['median']:.3f}, 95 % below {level['p95']:.3f} ({level['seeds']} untrained models)")
