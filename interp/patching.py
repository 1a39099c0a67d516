"""Activation patching over a grid of sites: exact, with only what can change computed.

Activations of the `source` run are put, one cell at a time, into the `destination` run, and a metric of the
destination's logits tells what that did. `direction` says which of the two runs performs: `denoising` puts activations
of a run that performs into one that does not, and an effect is performance recovered; `noising` puts activations of
a run that does not perform into one that does, and an effect is performance lost. Either way higher = more important.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from headlab.interp.engines import Cells, Cone, ConeSweep, Expand, Unsupported
from headlab.interp.engines.cone import plain_unembed
from headlab.interp.engines.entry import first_block, hooks_for
from headlab.interp.engines.support import require_supported
from headlab.interp.errors import RequestError, UnknownName
from headlab.interp.interventions import Intervention
from headlab.interp.metrics import BatchedMetric, Metric, metric_name, performance
from headlab.interp.model import HookedModel, activations, run, untouched
from headlab.interp.patch_result import Direction, PatchResult
from headlab.interp.sites import Grid, grid, hook_name, require_component, require_layers, require_positions

Engine = Literal["auto", "cone", "expand"]
Metrics = Metric | Mapping[str, Metric]

# Bytes of logits that are gathered before the metrics look at them.
_GATHER = 4 << 20


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

    metric: one of the contrast's metrics; None takes them all. Raises KeyError, listing them, for another name.
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
    source: Shaped[Tensor, "source ..."] | Intervention,
    destination: Shaped[Tensor, "example ..."],
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
    progress: bool = False,
) -> PatchResult:
    """The effect of putting activations of `source` into the run on `destination`, cell by cell.

    source: model inputs of the destination's shape, row i beside row i; or an Intervention (zero, mean, ...), whose
        values are put there instead and which has no run of its own to normalise by.
    metrics: one metric or name -> metric, each from the logits AT THE READ POSITIONS [example, read, vocabulary] to
        one number per example, higher is better.
    component: see interp.sites; layers, heads, positions (a pattern's destinations), sources: which cells; None is all.
    read: the positions that the metrics see, in this order; None is all. The fewer, the faster.
    by: the axes along which cells differ, `layer` among them; other axes are patched as a whole. Default: every axis
        (for patterns layer, head and destination).
    engine: `cone` computes what can change and falls back to `expand`, which runs the model, where it does not know
        the architecture; `auto` is cone. The result names the engine and why.

    Cells that change nothing, or whose change cannot reach a read position, are not run: they have the destination's
    value to the bit. Raises KeyError, IndexError or ValueError, in one sentence, for a site that does not exist, runs
    of different length or batch, and a metric that does not return one finite number per example.
    """
    if engine not in ("auto", "cone", "expand"):
        raise UnknownName(f"unknown engine '{engine}': choose auto, cone or expand")
    if direction not in ("denoising", "noising"):
        raise UnknownName(f"unknown direction '{direction}': choose denoising or noising")
    if isinstance(source, Intervention) and source.kind == "patch" and source.reference is not None:
        source = source.reference
    if isinstance(source, Tensor) and source.shape != destination.shape:
        raise RequestError(
            f"the source has shape {list(source.shape)} and the destination {list(destination.shape)}: "
            "patching needs two runs of the same length and batch"
        )
    named = metrics if isinstance(metrics, Mapping) else {metric_name(metrics): metrics}
    if not named:
        raise RequestError("no metric was given: name at least one")
    require_component(model, component)
    chosen = require_layers(model, layers)
    hooks = [hook_name(component, layer) for layer in chosen]
    with untouched(model):
        reason = _why_not_cone(model, engine)
        needed = hooks if reason is not None else hooks_for(model, component, chosen)
        slices = reason is None and read is not None and plain_unembed(model)
        logits, old = _observed(model, destination, needed, read, slices)
        count = old[hooks[0]].shape[-2 if component == "pattern" else 1]
        seen = require_positions(read, count)
        cells = grid(
            model,
            component,
            position_count=count,
            layers=layers,
            heads=heads,
            positions=positions,
            sources=sources,
            by=by,
        )
        at_destination = _measured(named, logits if slices else logits[:, list(seen)])
        if isinstance(source, Intervention):
            new, at_source = source.values(model, destination, {name: old[name] for name in hooks}), None
        else:
            source_logits, new = _observed(model, source, hooks, read, slices)
            at_source = _measured(named, source_logits if slices else source_logits[:, list(seen)])
        work, runner = Cells(cells, old, new), None
        if reason is None:
            try:
                cone = Cone(model, seen, logits, old, first=first_block(component, chosen), sliced=slices)
                runner = ConeSweep(cone, work)
            except Unsupported as found:
                reason = str(found)
        if runner is None:
            runner = Expand(model, destination, seen, model(destination) if slices else logits, work)
        values, ran, looped = _run(runner, work, named, at_destination, progress)
    notes = [f"the cone does not model {reason}: the model itself was run (expand)"] if reason else []
    notes += [*looped]
    notes += runner.notes
    return PatchResult(
        component=component,
        axes=cells.by,
        labels={axis: cells.labels[axis] for axis in cells.by},
        metrics=tuple(named),
        values=values,
        destination=at_destination,
        source=at_source,
        ran=ran,
        read=seen,
        direction=direction,
        replaced_by=str(source) if isinstance(source, Intervention) else "the source run",
        engine=runner.name,
        notes=tuple(notes),
        device=str(values.device),
        work=runner.work,
    )


def _why_not_cone(model: HookedModel, engine: Engine | str) -> str | None:
    if engine == "expand":
        return ""
    try:
        require_supported(model)
    except Unsupported as reason:
        return str(reason)
    return None


def _observed(
    model: HookedModel, inputs: Tensor, names: Sequence[str], read: Sequence[int] | None, sliced: bool
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits and the named activations; `sliced` unembeds the read positions alone, on models known to allow it."""
    if not sliced:
        return activations(model, inputs, names)
    kept: dict[str, Tensor] = {}

    last = hook_name("resid_post", int(model.cfg.n_layers) - 1)
    hooks = [(name, partial(_keep, kept=kept)) for name in names]
    return run(model, inputs, [*hooks, (last, partial(_cut, read=read))]), kept


def _keep(activation: Tensor, hook: Any, *, kept: dict[str, Tensor]) -> None:
    kept[hook.name] = activation.detach()


def _cut(residual: Tensor, hook: Any, *, read: Sequence[int] | None) -> Tensor:
    return residual[:, list(require_positions(read, residual.shape[1]))]


def _measured(named: Mapping[str, Metric], logits: Tensor) -> Float[Tensor, "metric example"]:
    return torch.stack([performance(metric, logits.clone(), name) for name, metric in named.items()])


def _run(
    runner: ConeSweep | Expand,
    cells: Cells,
    named: Mapping[str, Metric],
    baseline: Float[Tensor, "metric example"],
    progress: bool,
) -> tuple[Tensor, Tensor, list[str]]:
    """values [metric, *axes of the grid, example], which cells were run [*axes of the grid], and notes."""
    layers, count = cells.grid.labels["layer"], cells.count()
    values = baseline[:, None, None].repeat(1, len(layers), count, 1)
    changed = torch.stack([cells.changed(layer) for layer in layers])
    reach = torch.stack([runner.reaches(layer, torch.arange(count)) for layer in layers])
    ran = reach & changed.any(-1).cpu()
    batched = [BatchedMetric(metric, name) for name, metric in named.items()]
    with _bar(int(ran.sum()), progress) as advance:
        for row, which, logits in _gathered(runner, layers, ran):
            for number, metric in enumerate(batched):
                value = metric(logits).to(values.dtype)
                values[number, row, which] = torch.where(changed[row, which], value, baseline[number])
            advance(len(which))
    notes = [f"metric '{m.name}' was looped over cells ({m.looped})" for m in batched if m.looped is not None]
    inner = [len(cells.grid.labels[axis]) for axis in cells.axes]
    return _arranged(values, cells.grid, 1, inner), _arranged(ran, cells.grid, 0, inner), notes


def _gathered(
    runner: ConeSweep | Expand, layers: Sequence[int], ran: Bool[Tensor, "layer cell"]
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """(row of `layers`, cell, logits) of the cells to run, a few chunks together: a metric costs much per call."""
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    size = 0
    for row, layer in enumerate(layers):
        which = ran[row].nonzero().flatten()
        for chunk, logits in runner.sweep(layer, which) if len(which) else ():
            parts.append((torch.full_like(chunk, row), chunk, logits))
            size += logits.numel() * logits.element_size()
            if size > _GATHER:
                yield _joined(parts)
                parts, size = [], 0
    if parts:
        yield _joined(parts)


def _joined(parts: list[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    if len(parts) == 1:
        return parts[0]
    row, which, logits = (torch.cat(column) for column in zip(*parts, strict=True))
    return row, which, logits


def _arranged(values: Tensor, cells: Grid, before: int, inner: list[int]) -> Tensor:
    """Split the axis of cells, and move `layer` to its place among the grid's axes."""
    values = values.unflatten(before + 1, inner) if inner else values.squeeze(before + 1)
    return values.movedim(before, before + cells.by.index("layer"))


@contextmanager
def _bar(total: int, shown: bool) -> Iterator[Any]:
    if not shown:
        yield lambda cells: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("patching"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("patching", total=total)
        yield lambda cells: bar.advance(task, cells)
