"""Activation patching over a grid of sites: exact, with only what can change computed.

Activations of the `source` run are put, one cell at a time, into the `destination` run, and a metric of the
destination's logits tells what that did. `direction` says which of the two runs performs: `denoising` puts activations
of a run that performs into one that does not, and an effect is performance recovered; `noising` puts activations of
a run that does not perform into one that does, and an effect is performance lost. Either way higher = more important.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Shaped
from torch import Tensor

from headlab.interp.engines import Cells
from headlab.interp.errors import RequestError, UnknownName
from headlab.interp.interventions import Intervention
from headlab.interp.metrics import Metric, metric_name
from headlab.interp.model import HookedModel, Inputs, Mask, model_inputs, untouched
from headlab.interp.padding import mask_for_run, require_padding_unseen, seen_padding, token_mask
from headlab.interp.patch_result import Direction, PatchResult
from headlab.interp.sites import Grid, grid, require_component, require_layers
from headlab.interp.sweeps import Destination, Engine, from_cache, measured

Metrics = Metric | Mapping[str, Metric]


@runtime_checkable
class Pair(Protocol):
    """Two runs that belong together, row by row; each metric is high on `source` and low on `destination`."""

    @property
    def source(self) -> Tensor: ...
    @property
    def destination(self) -> Tensor: ...
    @property
    def read(self) -> tuple[int, ...]: ...
    @property
    def metrics(self) -> Mapping[str, Metric]: ...


def patch_contrast(
    model: HookedModel,
    contrast: Pair,
    *,
    component: str,
    metric: str | None = None,
    direction: Direction | str = "denoising",
    **options: Any,
) -> PatchResult:
    """`patch_sweep` on a task's contrast: its source into its destination, or for `noising` the other way round.

    Args:
        model: The model.
        contrast: Two runs that belong together, with their metrics and the positions that these read.
        component: What is patched, see `headlab.interp.sites`.
        metric: One of the contrast's metrics; None takes them all.
        direction: `denoising` or `noising`.
        options: Passed to `patch_sweep`.

    Raises:
        UnknownName: For a metric that the contrast does not have; and what `patch_sweep` raises.
    """
    metrics = dict(contrast.metrics)
    if metric is not None:
        if metric not in metrics:
            raise UnknownName(f"no metric '{metric}': there are {', '.join(metrics)}")
        metrics = {metric: metrics[metric]}
    runs = (contrast.source, contrast.destination)
    source, destination = runs if direction == "denoising" else runs[::-1]
    options = {"read": contrast.read, **options}
    return patch_sweep(model, source, destination, metrics, component=component, direction=direction, **options)


def patch_sweep(
    model: HookedModel,
    source: Inputs | Intervention | Any,
    destination: Inputs,
    metrics: Metrics,
    *,
    component: str,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    sources: Sequence[int] | None = None,
    read: Sequence[int] | None = None,
    by: Sequence[str] | None = None,
    engine: Engine | str = "auto",
    direction: Direction | str = "denoising",
    attention_mask: Mask | None = None,
    recheck: int = 2,
    progress: bool = False,
) -> PatchResult:
    """The effect of putting activations of `source` into the run on `destination`, cell by cell.

    Args:
        model: A hooked model.
        source: Model inputs of the destination's shape, row i beside row i; or a cache of such a run (hook name ->
            activation); or an Intervention (zero, mean, ...), whose values are put there. Only inputs have a run of
            their own to normalise by.
        destination: What the model is called with: a tensor, or what `model_inputs` makes one of.
        metrics: One metric or name -> metric, each from the logits at the read positions [example, read, vocabulary]
            to one number per example, higher is better.
        component: What is patched, see `headlab.interp.sites`.
        layers: Which; None is all, as for every axis.
        heads: Which heads (key-value heads for k and v where they are grouped).
        positions: Which positions; of a pattern, which destinations.
        sources: Which source positions of a pattern.
        read: The positions that the metrics see, in this order; None is all. The fewer, the faster.
        by: The axes along which cells differ, `layer` among them; the others are patched as a whole over the labels
            chosen above. Default: every axis (for patterns layer, head and destination).
        engine: `cone` computes what can change and falls back to `expand`, which runs the model, where it does not
            model the architecture; `auto` is cone. The result names the engine and why.
        direction: `denoising`: effects are performance recovered; `noising`: performance lost.
        attention_mask: [example, position], 1 at tokens, 0 at padding, of both runs; means and resamples leave padding
            out. Where padding stands before a token the model itself is run.
        recheck: How many random cells that the cone computed are run by the model too (0 is none; each costs one
            forward pass). Where they differ the whole sweep is run by the model, and a note says so.
        progress: Whether a bar is shown on standard error.

    Returns:
        Per-example metrics of every cell. Cells that change nothing, or whose change cannot reach a read position, are
        not run: they have the destination's value to the bit.

    Raises:
        RequestError: In one sentence, for a name, layer, head or position that does not exist (UnknownName,
            OutOfRange), runs of different length or batch, padding that the model sees although it is marked, weights
            that are not finite, and a metric that does not return one finite number per example.
    """
    if direction not in ("denoising", "noising"):
        raise UnknownName(f"unknown direction '{direction}': choose denoising or noising")
    destination = model_inputs(model, destination)
    source = _source(model, source, destination)
    named = metrics if isinstance(metrics, Mapping) else {metric_name(metrics): metrics}
    if not named:
        raise RequestError("no metric was given: name at least one")
    require_component(model, component)
    chosen = require_layers(model, layers)
    tokens = token_mask(attention_mask, destination)
    mask = mask_for_run(model, tokens)
    with untouched(model):
        require_padding_unseen(model, destination, tokens)
        run = Destination(model, destination, component, chosen, read, engine, mask)
        cells = grid(
            model,
            component,
            position_count=run.positions,
            layers=layers,
            heads=heads,
            positions=positions,
            sources=sources,
            by=by,
        )
        baseline = measured(named, run.logits)
        old, at_source, replaced_by = {name: run.old[name] for name in run.hooks}, None, "the source run"
        if isinstance(source, Intervention):
            new, replaced_by = source.values(model, destination, old, tokens), str(source)
        elif isinstance(source, Tensor):
            logits, new = run.observe(source, mask)
            at_source = measured(named, logits)
        else:
            new, replaced_by = from_cache(source, old), "a cached run"
        work = Cells(cells, run.old, new)
        swept = run.measure(work, named, baseline, recheck=recheck, progress=progress)
        notes = swept.notes
        if attention_mask is None and (noted := seen_padding(model, destination, run.read)):
            notes = (*notes, noted)
    inner = [len(cells.labels[axis]) for axis in work.axes]
    return PatchResult(
        component=component,
        axes=cells.by,
        labels={axis: cells.labels[axis] for axis in cells.by},
        metrics=tuple(named),
        values=_arranged(swept.values, cells, 1, inner),
        destination=baseline,
        source=at_source,
        ran=_arranged(swept.ran, cells, 0, inner),
        read=run.read,
        direction=direction,
        replaced_by=replaced_by,
        engine=swept.engine,
        notes=notes,
        device=str(swept.values.device),
        work=swept.work,
    )


def _source(model: HookedModel, source: Any, destination: Shaped[Tensor, "example ..."]) -> Any:
    """The source as a tensor of inputs, an Intervention, or a cache (which has keys)."""
    if isinstance(source, Intervention):
        if source.reference is None:
            return source
        source = replace(source, reference=model_inputs(model, source.reference))
        if source.kind != "patch":
            return source
        source = source.reference
    elif hasattr(source, "keys"):
        return source
    source = model_inputs(model, source)
    if source.shape != destination.shape:
        raise RequestError(
            f"the source has shape {list(source.shape)} and the destination {list(destination.shape)}: "
            "patching needs two runs of the same length and batch"
        )
    return source


def _arranged(values: Shaped[Tensor, ...], cells: Grid, before: int, inner: list[int]) -> Shaped[Tensor, ...]:
    """Split the axis of cells, which follows `layer`, and move `layer` to its place among the grid's axes."""
    values = values.unflatten(before + 1, inner) if inner else values.squeeze(before + 1)
    return values.movedim(before, before + cells.by.index("layer"))
