"""Head ablation: how much performance is lost when heads, singly or in groups, write something else.

A head is edited at z, before W_O, at every position: `ablate_heads` of head h is z[:, :, h] = replacement, and no
other head changes. Hence zero removes all that the head adds through its values, its own b_V included (a head whose
pattern sums to 1 adds b_V W_O whatever it attends to), and leaves the layer's shared b_O in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from headlab.interp.errors import OutOfRange, RequestError, UnknownName
from headlab.interp.interventions import DonorFactors, Factors, Intervention, factor_table
from headlab.interp.metrics import Metric, metric_name, performance
from headlab.interp.model import Hook, HookedModel, activations, run, untouched
from headlab.interp.sites import hook_name, require_layers

Head = tuple[int, int]
AblationKind = Literal["zero", "mean", "positional_mean", "resample", "matched_resample"]


@dataclass(frozen=True, eq=False)
class AblationResult:
    """Performance lost per group of heads and example; higher = more important.

    effect = baseline - ablated, in the metric's own units. groups: which (layer, head)s were ablated together, one
    group per row. reference: the data that the replacement was taken over (None for `zero`), `intervention` says so
    in words. warning: set where every effect is exactly 0, which a head that acts does not give.
    """

    groups: tuple[tuple[Head, ...], ...]
    effect: Float[Tensor, "group example"]
    baseline: Float[Tensor, " example"]
    kind: str
    intervention: str
    reference: Tensor | None
    seed: int
    metric: str
    device: str
    warning: str | None = None

    @property
    def mean(self) -> Float[Tensor, " group"]:
        """The mean effect of each group over examples."""
        return self.effect.mean(dim=1)

    def by_factor(self, levels: Int[Tensor, " example"]) -> dict[int, Float[Tensor, " group"]]:
        """level -> the mean effect of each group over the examples of that level, levels in ascending order."""
        if len(levels) != self.effect.shape[1]:
            raise RequestError(f"{len(levels)} levels were given for {self.effect.shape[1]} examples: give one each")
        levels = levels.to(self.effect.device)
        return {int(level): self.effect[:, levels == level].mean(dim=1) for level in levels.unique().tolist()}

    def to_frame(self, factors: Factors | None = None) -> pd.DataFrame:
        """One row per group and example: group, layer and head (None for a group of several), example, baseline,
        ablated, effect, kind, and a column per factor."""
        groups, examples = self.effect.shape
        row = np.repeat(np.arange(groups), examples)
        single = [group[0] if len(group) == 1 else (None, None) for group in self.groups]
        baseline = np.tile(self.baseline.cpu().numpy(), groups)
        effect = self.effect.cpu().numpy().reshape(-1)
        columns: dict[str, Any] = {
            "group": [" ".join(f"{layer}.{head}" for layer, head in self.groups[i]) for i in row],
            "layer": [single[i][0] for i in row],
            "head": [single[i][1] for i in row],
            "example": np.tile(np.arange(examples), groups),
            "baseline": baseline,
            "ablated": baseline - effect,
            "effect": effect,
            "kind": self.kind,
            "metric": self.metric,
        }
        for name, levels in (factors or {}).items():
            columns[name] = np.tile(levels.cpu().numpy(), groups)
        return pd.DataFrame(columns)


def ablate_heads(
    model: HookedModel,
    inputs: Shaped[Tensor, "example ..."],
    metric: Metric,
    *,
    kind: AblationKind | str,
    reference: Shaped[Tensor, "donor ..."] | None = None,
    factors: Factors | Int[Tensor, " example"] | None = None,
    reference_factors: DonorFactors | Int[Tensor, " donor"] | None = None,
    seed: int = 0,
    layers: Sequence[int] | None = None,
    groups: Sequence[Sequence[Head]] | None = None,
    name: str | None = None,
) -> AblationResult:
    """How much of `metric` is lost when each head of `layers` (or each of `groups`, ablated together) is replaced.

    metric: logits [example, position, vocabulary] -> [example], higher is better. kind and reference: as for
    `headlab.interp.interventions.Intervention`; `mean`, `positional_mean` and the resample kinds need a `reference`,
    `matched_resample` needs `factors` (level per example; and `reference_factors` where the reference is not
    `inputs`). One replacement is drawn with `seed` and shared by all groups. name: what the metric is called.

    Raises ValueError for missing reference data, an empty group or a metric that does not give one finite number per
    example, KeyError for an unknown kind, and IndexError for a layer or head that does not exist.
    """
    if kind == "patch":
        raise UnknownName(
            "patch is not an ablation: use headlab.interp.patching.patch_sweep, which takes a source and a destination"
        )
    intervention = Intervention(
        kind,
        None if kind == "zero" else reference,
        seed,
        {} if factors is None else factor_table(factors),
        {} if reference_factors is None else factor_table(reference_factors),
    )
    chosen = _groups(model, layers, groups)
    name = metric_name(metric) if name is None else name
    hooks = {layer: hook_name("z", layer) for layer in sorted({layer for group in chosen for layer, _ in group})}
    with untouched(model):
        logits, held = activations(model, inputs, list(hooks.values()))
        baseline = performance(metric, logits, name)
        new = intervention.values(model, inputs, held)
        effects = []
        for group in chosen:
            edits = {}
            for layer in sorted({layer for layer, _ in group}):
                heads = sorted(head for at, head in group if at == layer)
                edits[hooks[layer]] = _write_heads(heads, new[hooks[layer]])
            effects.append(baseline - performance(metric, run(model, inputs, edits), name))
    effect = torch.stack(effects)
    warning = None
    if not effect.any():
        warning = f"every effect of {kind} ablation is exactly 0: these heads reach nothing that '{name}' reads"
    return AblationResult(
        groups=chosen,
        effect=effect,
        baseline=baseline,
        kind=kind,
        intervention=str(intervention),
        reference=intervention.reference,
        seed=seed,
        metric=name,
        device=str(effect.device),
        warning=warning,
    )


def _write_heads(heads: Sequence[int], new: Float[Tensor, "example position head d_head"]) -> Hook:
    def edit(z: Tensor, hook: Any) -> Tensor:
        edited = z.clone()
        edited[:, :, heads] = new[:, :, heads]
        return edited

    return edit


def _groups(
    model: HookedModel, layers: Sequence[int] | None, groups: Sequence[Sequence[Head]] | None
) -> tuple[tuple[Head, ...], ...]:
    count = int(model.cfg.n_heads)
    if groups is None:
        return tuple(((layer, head),) for layer in require_layers(model, layers) for head in range(count))
    if layers is not None:
        raise RequestError("give layers or groups, not both: a group names its own layers")
    chosen = tuple(tuple(sorted({(int(layer), int(head)) for layer, head in group})) for group in groups)
    if not chosen or not all(chosen):
        raise RequestError("every group must name at least one (layer, head)")
    require_layers(model, sorted({layer for group in chosen for layer, _ in group}))
    for group in chosen:
        for _, head in group:
            if not 0 <= head < count:
                raise OutOfRange(f"head {head} does not exist: there are heads 0 to {count - 1}")
    return chosen
