"""Attribution patching: the effects of a sweep of patches, estimated from one backward pass (Nanda 2023).

What a patch would do is taken to be (what is put there - what is there) times the gradient of the metric there. That is
first-order: where softmax is saturated its gradient is next to nothing, and so is the estimate of what enters q and k,
however large the true effect is. Results say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from headlab.interp.errors import RequestError, UnknownName
from headlab.interp.gradients import gradients_of, metric_rows, saturation, saturation_warning
from headlab.interp.interventions import Intervention
from headlab.interp.metrics import Metric, metric_name, performance
from headlab.interp.model import HookedModel, Mask, activations, run, untouched
from headlab.interp.patch_result import PatchResult
from headlab.interp.patching import patch_sweep
from headlab.interp.sites import Grid, component, grid, hook_name, require_component, require_layers, require_positions


@dataclass(frozen=True, eq=False)
class PatchEstimate:
    """Estimated effects of a sweep of patches, and the exact ones beside them where they were asked for.

    estimate: as `interp.patching.patch_sweep` gives it, engine `gradient`; its notes hold the warning. saturation: in
    which share of the examples each head's softmax has next to no gradient at a query that a metric reads
    (`headlab.interp.gradients.saturation`).
    """

    estimate: PatchResult
    exact: PatchResult | None
    saturation: Float[Tensor, "layer head"]

    @property
    def warning(self) -> str | None:
        """Which heads are saturated, and what that means; None where none is."""
        return saturation_warning(self.saturation)

    def correlation(self, metric: str | None = None) -> float | None:
        """Pearson's correlation of estimated and exact mean effects over cells; None without the exact ones, or where
        either does not vary."""
        if self.exact is None:
            return None
        both = [result.effect(metric).double().flatten().cpu().numpy() for result in (self.estimate, self.exact)]
        if len(both[0]) < 2 or min(np.ptp(values) for values in both) == 0:
            return None
        return float(np.corrcoef(both[0], both[1])[0, 1])

    def to_frame(self) -> pd.DataFrame:
        """The estimate's frame, with the column `exact` where the exact effects are there."""
        frame = self.estimate.to_frame()
        return frame if self.exact is None else frame.assign(exact=self.exact.to_frame().effect.to_numpy())


def estimate_patches(
    model: HookedModel,
    source: Shaped[Tensor, "source ..."] | Intervention,
    destination: Shaped[Tensor, "example ..."],
    metrics: Metric | Mapping[str, Metric],
    *,
    component: str,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    sources: Sequence[int] | None = None,
    read: Sequence[int] | None = None,
    by: Sequence[str] | None = None,
    direction: str = "denoising",
    exact: bool = False,
    attention_mask: Mask | None = None,
) -> PatchEstimate:
    """What `headlab.interp.patching.patch_sweep` measures with these arguments, estimated at the destination run.

    exact: also run the patches. attention_mask: 1 where a token counts, 0 where it is padding, of both runs. Raises
    what `patch_sweep` raises, and RequestError for a metric without a finite gradient, for an intervention over padded
    examples, and for exact patches of them.
    """
    options: dict[str, Any] = {
        "component": component,
        "layers": layers,
        "heads": heads,
        "positions": positions,
        "sources": sources,
        "read": read,
        "by": by,
        "direction": direction,
    }
    if direction not in ("denoising", "noising"):
        raise UnknownName(f"unknown direction '{direction}': choose denoising or noising")
    if isinstance(source, Intervention) and source.kind == "patch" and source.reference is not None:
        source = source.reference
    if isinstance(source, Tensor) and source.shape != destination.shape:
        raise RequestError(
            f"the source has shape {list(source.shape)} and the destination {list(destination.shape)}: "
            "patching needs two runs of the same length and batch"
        )
    if attention_mask is not None and (exact or isinstance(source, Intervention)):
        raise RequestError("under an attention mask the estimate needs a source run, and exact patches are not run")
    named = metrics if isinstance(metrics, Mapping) else {metric_name(metrics): metrics}
    if not named:
        raise RequestError("no metric was given: name at least one")
    require_component(model, component)
    hooks = [hook_name(component, layer) for layer in require_layers(model, layers)]
    with untouched(model):
        logits, old = activations(model, destination, hooks, attention_mask=attention_mask)
        cells = grid(
            model,
            component,
            position_count=logits.shape[1],
            layers=layers,
            heads=heads,
            positions=positions,
            sources=sources,
            by=by,
        )
        seen = require_positions(read, logits.shape[1])
        if isinstance(source, Intervention):
            new, at_source = source.values(model, destination, old), None
        else:
            source_logits, new = activations(model, source, hooks, attention_mask=attention_mask)
            at_source = _measured(named, source_logits[:, list(seen)])
        at_destination = _measured(named, logits[:, list(seen)])
        values = []
        for number, (name, metric) in enumerate(named.items()):
            gradients = _gradients(model, destination, hooks, metric, name, list(seen), attention_mask)
            change = [((new[hook] - old[hook]) * gradients[hook]).to(at_destination) for hook in hooks]
            values.append(_by_cell(cells, change) + at_destination[number])
    rows = torch.stack([metric_rows(metric, logits, seen) for metric in named.values()]).any(0)
    shares = saturation(model, destination, rows, attention_mask=attention_mask)
    warning = saturation_warning(shares)
    found = PatchResult(
        component=component,
        axes=cells.by,
        labels={axis: cells.labels[axis] for axis in cells.by},
        metrics=tuple(named),
        values=torch.stack(values),
        destination=at_destination,
        source=at_source,
        ran=torch.zeros(cells.shape, dtype=torch.bool),
        read=seen,
        direction=direction,
        replaced_by=str(source) if isinstance(source, Intervention) else "the source run",
        engine="gradient",
        notes=() if warning is None else (warning,),
        device=str(at_destination.device),
    )
    run_exactly = patch_sweep(model, source, destination, named, **options) if exact else None
    return PatchEstimate(found, run_exactly, shares)


def _measured(named: Mapping[str, Metric], logits: Tensor) -> Float[Tensor, "metric example"]:
    return torch.stack([performance(metric, logits.clone(), name) for name, metric in named.items()])


def _gradients(
    model: HookedModel,
    inputs: Tensor,
    hooks: Sequence[str],
    metric: Metric,
    name: str,
    seen: list[int],
    attention_mask: Mask | None,
) -> dict[str, Tensor]:
    leaves: dict[str, Tensor] = {}

    def at_leaf(value: Tensor, hook: Any) -> Tensor:
        leaves[hook.name] = torch.zeros_like(value).requires_grad_(True)
        return value + leaves[hook.name]

    with torch.enable_grad():
        logits = run(model, inputs, [(hook, at_leaf) for hook in hooks], attention_mask=attention_mask)[:, seen]
        found = gradients_of(metric, name, logits, [leaves[hook] for hook in hooks])
    return dict(zip(hooks, found, strict=True))


def _by_cell(cells: Grid, change: Sequence[Tensor]) -> Float[Tensor, "*cell example"]:
    """The change summed over what each cell edits; `change` has one activation a layer, first axis `example`."""
    axes = component(cells.component).axes
    order = ("position", "head") if axes == ("head", "position") else axes
    table = torch.stack([part if part.ndim == 1 + len(order) else part.sum(-1) for part in change])
    for number, axis in enumerate(order):
        table = table.index_select(2 + number, torch.tensor(cells.labels[axis], device=table.device))
    for number, axis in reversed(list(enumerate(order))):
        if axis not in cells.by:
            table = table.sum(2 + number)
    left = ["layer", "example", *(axis for axis in order if axis in cells.by)]
    return table.permute(*(left.index(axis) for axis in (*cells.by, "example")))
