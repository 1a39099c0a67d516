"""`headlab roles`: which role each head plays, and what its role loses when the role's whole group is ablated."""

from __future__ import annotations

from typing import Any

from headlab.analyses.commands.heads import load_with_heads, performance
from headlab.analyses.commands.tables import print_table
from headlab.analyses.options.instruments import Roles
from headlab.analyses.systems import system
from headlab.interp.assignment import assign


def run(options: Roles) -> dict[str, Any]:
    """The JSON of `headlab roles`.

    A head's `causal` is the performance that its role loses with the role's whole group ablated, `loss` what every role
    loses; `causal` beside `heads` is the check in the logits, in which the groups are held at their mean.
    """
    checkpoint = load_with_heads(options.dir, options.common.device)
    task = system(checkpoint.task).task(checkpoint)
    roles = task.roles(seed=options.common.seed)
    result = assign(checkpoint.model, roles, task.role_metrics(roles), seed=options.common.seed)
    heads = result.to_frame().to_dict("records")
    return {
        "dir": str(checkpoint.directory),
        "heads": [{key: _plain(value) for key, value in row.items()} for row in heads],
        "mechanism": list(result.score.mechanisms),
        "causal": result.score.causal.to_json() if result.score.causal else None,
        **performance(checkpoint),
        "baseline": dict(result.baseline),
        "loss": {str(group): dict(by_role) for group, by_role in result.loss.items()},
        "kind": result.kind,
        "reference": result.reference,
        "device": options.common.device,
    }


def _plain(value: Any) -> Any:
    if value is None or value != value:  # pandas writes a missing number as NaN
        return None
    return value.item() if hasattr(value, "item") else value


def show(result: dict[str, Any]) -> None:
    """Print it for a reader."""
    rows = [[f"{r['layer']}.{r['head']}", r["role"], r["usage"], r["causal"]] for r in result["heads"]]
    print_table(["head", "role", "usage", "lost without the role's group"], rows)
    for group, by_role in result["loss"].items():
        lost = ", ".join(f"{role} {loss:.3g}" for role, loss in by_role.items())
        print(f"ablated together, {'heads without a role' if group == 'None' else group}: lost {lost}")
    causal, accuracy = result["causal"], result["accuracy"]
    for row, role in enumerate(causal["roles"]):
        taken = ", ".join(
            f"{other} {share:.0%}" for other, share in zip(causal["roles"], causal["crossing"][row], strict=True)
        )
        print(f"held at their mean, {role} ({result['mechanism'][row]}): takes {taken} of what heads add to the logits")
    print(f"accuracy {'-' if accuracy is None else f'{accuracy:.3f}'}")
