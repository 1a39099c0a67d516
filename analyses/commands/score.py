"""`headlab score`: the head specialisation score of a checkpoint, its causal check, accuracy and chance level."""

from __future__ import annotations

from typing import Any

from headlab.analyses.commands.heads import load_with_heads, other_seeds, performance
from headlab.analyses.commands.tables import print_table
from headlab.analyses.options.instruments import Score
from headlab.analyses.systems import system
from headlab.interp.errors import RequestError
from headlab.interp.roles import chance, score
from headlab.models.controls import undivided

MOST_SEEDS = 16  # of the same training, whose heads are put into this model


def run(options: Score) -> dict[str, Any]:
    """The JSON of `headlab score`. Raises RequestError for fewer than one model a source of the chance level."""
    if options.chance_seeds < 1:
        raise RequestError(f"the chance level needs at least one model a source, not {options.chance_seeds}")
    checkpoint = load_with_heads(options.dir, options.common.device)
    tasks = system(checkpoint.task)
    roles = tasks.task(checkpoint).roles(seed=options.common.seed)
    result = score(checkpoint.model, roles, causal=True)
    others = other_seeds(checkpoint, options.common.device)[:MOST_SEEDS]
    sources = undivided(checkpoint.model, lambda seed: tasks.untrained(checkpoint, seed), others)
    return {
        "dir": str(checkpoint.directory),
        **result.to_json(),
        **performance(checkpoint),
        "chance": chance(sources, roles, seeds=options.chance_seeds).to_dict(),
        "device": options.common.device,
    }


def show(result: dict[str, Any]) -> None:
    """Print it for a reader."""
    names, causal, level = result["roles"], result["causal"], result["chance"]
    print_table(
        ["head", *(f"{figure}: {role}" for role in names for figure in ("usage", "quiet"))],
        [
            [f"{layer}.{head}", *(value for pair in zip(usage, quiet, strict=True) for value in pair)]
            for (layer, head), usage, quiet in zip(result["heads"], result["usage"], result["quiet"], strict=True)
        ],
    )
    print_table(
        ["role", "mechanism", "purity", "copies", "carried on without its heads", "said instead"],
        list(
            zip(
                names,
                result["mechanism"],
                result["purity"],
                result["copies"],
                causal["carried_on"],
                causal["foreign"],
                strict=True,
            )
        ),
    )
    figures = {name: result[name] for name in ("specialisation", "separation", "coverage", "accuracy")}
    print(", ".join(f"{name} {'-' if value is None else f'{value:.3f}'}" for name, value in figures.items()))
    print(
        f"chance: median {level['median']:.3f}, 95 % below {level['p95']:.3f}, largest {level['max']:.3f} "
        f"({level['seeds']} models, {level['source']}: the hardest of {len(level['sources'])} sources)"
    )
