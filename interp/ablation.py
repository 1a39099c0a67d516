"""Head ablation: how much performance is lost when heads, singly or in groups, write something else.

A head is edited at z, before W_O: `ablate_heads` of head h is z[:, :, h] = replacement, and no other head changes.
Hence zero removes all that the head adds through its values, its own b_V included (a head whose pattern sums to 1 adds
b_V W_O whatever it attends to), and leaves the layer's shared b_O in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headlab.interp.engines import HeadGroups
from headlab.interp.errors import OutOfRange, RequestError, UnknownName
from headlab.interp.interventions import DonorFactors, Factors, Intervention, factor_table
from headlab.interp.metrics import Metric, metric_name, performance
from headlab.interp.model import HookedModel, Inputs, Mask, model_inputs, untouched
from headlab.interp.padding import mask_for_run, require_padding_unseen, seen_padding, token_mask
from headlab.interp.sites import grid, require_layers
from headlab.interp.sweeps import Destination, Engine, measured

Head = tuple[int, int]
AblationKind = Literal["zero", "mean", "positional_mean", "resample", "matched_resample"]


@dataclass(frozen=True, eq=False)
class AblationResult:
    """Performance lost per group of heads and example; higher = more important.

    Args:
        groups: Which (layer, head)s were ablated together, one group per row.
        effect: baseline - ablated, in the metric's own units.
        baseline: The metric of the run itself.
        kind: Of the replacement; `intervention` says it in words.
        reference: The data that the replacement was taken over; None for `zero`.
        seed: Of the draw.
        metric: Its name.
        device: Where it was computed.
        warning: Set where every effect is exactly 0, which a head that acts does not give.
        read: The positions that the metric saw.
        engine, notes: What computed it, and why so.
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
    read: tuple[int, ...] = ()
    engine: str = ""
    notes: tuple[str, ...] = ()

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
    inputs: Inputs,
    metric: Metric,
    *,
    kind: AblationKind | str,
    reference: Inputs | None = None,
    factors: Factors | Int[Tensor, " example"] | None = None,
    reference_factors: DonorFactors | Int[Tensor, " donor"] | None = None,
    seed: int = 0,
    layers: Sequence[int] | None = None,
    groups: Sequence[Sequence[Head]] | None = None,
    positions: Sequence[int] | None = None,
    read: Sequence[int] | None = None,
    engine: Engine | str = "auto",
    attention_mask: Mask | None = None,
    reference_mask: Mask | None = None,
    recheck: int = 2,
    name: str | None = None,
) -> AblationResult:
    """How much of `metric` is lost when each head of `layers` (or each of `groups`, ablated together) is replaced.

    One replacement is drawn with `seed` and shared by all groups. Groups within a layer are computed by the cone
    where it models the architecture; a group across layers is a run of the model.

    Args:
        model: A hooked model.
        inputs: What it is called with: a tensor, or what `model_inputs` makes one of.
        metric: From logits at the read positions [example, read, vocabulary] to one number per example, higher is
            better.
        kind: As for `headlab.interp.interventions.Intervention`, but for `patch`.
        reference: The data that means and resamples are taken over.
        factors: Level per example, for `matched_resample`.
        reference_factors: Level per donor, where the reference is not `inputs`.
        seed: Of the draw.
        layers: Whose heads; None is all.
        groups: Heads (layer, head) that are ablated together; instead of `layers`.
        positions: Where heads are replaced; None is everywhere.
        read: The positions that the metric sees, in this order; None is all. The fewer, the faster.
        engine: See `headlab.interp.patching.patch_sweep`.
        attention_mask: 1 at tokens, 0 at padding, of `inputs`; means and resamples leave padding out.
        reference_mask: The same of `reference`, where that is other data.
        recheck: See `headlab.interp.patching.patch_sweep`.
        name: What the metric is called.

    Raises:
        RequestError: In one sentence, for missing reference data, an empty group, a kind, layer, head or position
            that does not exist (UnknownName, OutOfRange), weights that are not finite, and a metric that does not give
            one finite number per example.
    """
    if kind == "patch":
        raise UnknownName(
            "patch is not an ablation: use headlab.interp.patching.patch_sweep, which takes a source and a destination"
        )
    inputs = model_inputs(model, inputs)
    intervention = Intervention(
        kind,
        None if kind == "zero" or reference is None else model_inputs(model, reference),
        seed,
        {} if factors is None else factor_table(factors),
        {} if reference_factors is None else factor_table(reference_factors),
        reference_mask,
    )
    chosen = _groups(model, layers, groups)
    name = metric_name(metric) if name is None else name
    edited = tuple(sorted({layer for group in chosen for layer, _ in group}))
    tokens = token_mask(attention_mask, inputs)
    with untouched(model):
        require_padding_unseen(model, inputs, tokens)
        run = Destination(model, inputs, "z", edited, read, engine, mask_for_run(model, tokens))
        baseline = measured({name: metric}, run.logits)
        new = intervention.values(model, inputs, {hook: run.old[hook] for hook in run.hooks}, tokens)
        where = grid(model, "z", position_count=run.positions, layers=edited, positions=positions, by=("layer",))
        cells = HeadGroups(where, run.old, new, chosen)
        swept = run.measure(cells, {name: metric}, baseline, recheck=recheck)
        values = _own_layer(swept.values[0], chosen, edited)
        for row, group in enumerate(chosen):
            if len({layer for layer, _ in group}) > 1:
                values[row] = performance(metric, run.edited(cells.hooks(row)), name)
        notes = swept.notes
        if attention_mask is None and (noted := seen_padding(model, inputs, run.read)):
            notes = (*notes, noted)
    effect = baseline - values
    warning = None
    if not effect.any():
        warning = f"every effect of {kind} ablation is exactly 0: these heads reach nothing that '{name}' reads"
    return AblationResult(
        groups=chosen,
        effect=effect,
        baseline=baseline[0],
        kind=kind,
        intervention=str(intervention),
        reference=intervention.reference,
        seed=seed,
        metric=name,
        device=str(effect.device),
        warning=warning,
        read=run.read,
        engine=swept.engine,
        notes=notes,
    )


def _own_layer(
    values: Float[Tensor, "layer group example"], groups: Sequence[Sequence[Head]], layers: Sequence[int]
) -> Float[Tensor, "group example"]:
    """Each group's values, from the row of its first layer."""
    rows = [layers.index(group[0][0]) for group in groups]
    return values[rows, torch.arange(len(groups), device=values.device)]


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
