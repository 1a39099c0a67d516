"""What the instruments say of one two-head model, its heads in the order of the roles that they play."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment

from headlab.interp.ablation import ablate_heads
from headlab.interp.attribution import DirectLogitAttribution, direct_logit_attribution
from headlab.interp.errors import RequestError
from headlab.interp.model import HookedModel, activations, untouched
from headlab.interp.roles import Specialisation, score
from headlab.interp.sites import hook_name
from headlab.models.esp.graphs import Digraph
from headlab.models.esp.task import EspTask

ABLATIONS = ("zero", "mean", "resample", "matched_resample")


@dataclass(frozen=True)
class TwoHeads:
    """One two-head model under every instrument. Axis `head` is ordered by role: A reads endpoint 1, B endpoint 2.

    order: the model's own head indices as A, B. attention: mean attention at '#'. attribution: mean of what a head
    adds, from each position, to the right endpoint's logit minus the other's. ablation: kind -> accuracy lost without
    the head; `together` -> without both, per selector. samples: how many questions stand behind each mean.
    """

    order: tuple[int, int]
    score: Specialisation
    attention: Float[np.ndarray, "head selector position"]
    attribution: Float[np.ndarray, "head selector position"]
    ablation: Mapping[str, Float[np.ndarray, "head selector"]]
    together: Mapping[str, Float[np.ndarray, " selector"]]
    samples: int


def look(model: HookedModel, task: EspTask, *, seed: int = 0) -> TwoHeads:
    """Score, attention, attribution and ablation of a one-layer, two-head model on all samples of the task.

    Raises ValueError for a model of another shape.
    """
    if (model.cfg.n_layers, model.cfg.n_heads) != (1, 2):
        raise RequestError(f"this looks at one layer of two heads, not {model.cfg.n_layers} of {model.cfg.n_heads}")
    examples = task.examples()
    selector = examples.factors["selector"]
    result = score(model, task.roles(seed=seed))
    _, roles = linear_sum_assignment(-result.usage - 1e-3 * result.p)  # p decides where no head is used in a role
    order = [int(head) for head in np.argsort(roles)]
    pattern = hook_name("pattern", 0)
    with untouched(model):
        _, kept = activations(model, examples.inputs, [pattern])
    at_query = kept[pattern][:, order, -1]  # [example, head, position]
    attributed = attribution(model, task).heads[:, 0, order]
    metric = task.metrics(examples)["accuracy"]
    lost: dict[str, np.ndarray] = {}
    together: dict[str, np.ndarray] = {}
    for kind in ABLATIONS:
        found = ablate_heads(
            model,
            examples.inputs,
            metric,
            kind=kind,  # type: ignore[arg-type]
            reference=None if kind == "zero" else examples.inputs,
            factors=selector if kind == "matched_resample" else None,
            seed=seed,
            groups=[[(0, order[0])], [(0, order[1])], [(0, 0), (0, 1)]],
            name="accuracy",
        ).by_factor(selector)
        table = torch.stack([found[level] for level in sorted(found)], dim=1).numpy()
        lost[kind], together[kind] = table[:2], table[2]
    return TwoHeads(
        order=(order[0], order[1]),
        score=result,
        attention=_by_selector(at_query, selector),
        attribution=_by_selector(attributed, selector),
        ablation=lost,
        together=together,
        samples=len(examples),
    )


def attribution(model: HookedModel, task: EspTask) -> DirectLogitAttribution:
    """What each head adds, from each position, to the right endpoint's logit minus the other endpoint's."""
    examples = task.examples()
    u, v = task.endpoints(examples)
    target = examples.targets[:, 0]
    return direct_logit_attribution(model, examples.inputs, (target, u + v - target))


def _by_selector(values: torch.Tensor, selector: torch.Tensor) -> Float[np.ndarray, "head selector position"]:
    return torch.stack([values[selector == level].mean(0) for level in (0, 1)], dim=1).double().cpu().numpy()


def one_arc(
    model: HookedModel, task: EspTask, order: tuple[int, int], arc: tuple[int, int]
) -> tuple[Float[np.ndarray, "selector head vertex"], Float[np.ndarray, "selector position head"]]:
    """Both questions about one arc: what each head adds to each vertex's logit (vertex mean removed), and, from each
    position, to the right endpoint's logit minus the other's. Heads as in `order`."""
    ends = torch.tensor(arc)
    inputs = task.sequences(ends[:1].repeat(2), ends[1:].repeat(2), torch.arange(2))
    pair = direct_logit_attribution(model, inputs, (ends, ends.flip(0))).heads[:, 0, list(order)]
    rows = inputs.repeat_interleave(task.n, dim=0)
    vertices = torch.arange(task.n).repeat(2)
    to_logits = direct_logit_attribution(model, rows, vertices).by_head[:, 0, list(order)]
    parts = to_logits.view(2, task.n, 2).transpose(1, 2).double().cpu().numpy()
    return parts - parts.mean(2, keepdims=True), pair.transpose(1, 2).double().cpu().numpy()


def shown_arc(graph: Digraph) -> tuple[int, int]:
    """The arc that the circuit is shown on: between the two vertices of the highest degree that share an arc."""
    degree = np.bincount(np.array(graph.arcs).ravel(), minlength=graph.n)
    return max((arc for arc in graph.arcs if arc[0] != arc[1]), key=lambda a: (degree[a[0]] + degree[a[1]], a))
