"""The destination run of a sweep, observed once, and what each cell patched into it does to the metrics.

`patch_sweep` and `ablate_heads` are this with different cells. Numbers come from an engine (`interp.engines`); those of
the cone are rechecked on random cells by running the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from headlab.interp.engines import Cells, Cone, ConeSweep, Expand, Unsupported
from headlab.interp.engines.entry import first_block, hooks_for
from headlab.interp.engines.recheck import Recheck
from headlab.interp.engines.support import plain_unembed, require_supported
from headlab.interp.errors import RequestError, UnknownName
from headlab.interp.metrics import BatchedMetric, Metric, performance
from headlab.interp.model import Hook, HookedModel, Mask, activations, run
from headlab.interp.sites import hook_name, require_positions

Engine = Literal["auto", "cone", "expand"]
ENGINES = ("auto", "cone", "expand")

# Bytes of logits that are gathered before the metrics look at them.
_GATHER = 4 << 20


@dataclass(frozen=True, eq=False)
class Swept:
    """The metrics of every cell of a sweep.

    Args:
        values: Of each patched run, in the metrics' units.
        ran: False for cells that change nothing, or nothing that is read; their value is the destination's.
        engine: What computed them: `cone` or `expand`.
        notes: Why that engine, and what else a reader should know.
        work: Multiply-adds of the patched runs and of the recheck, where the engine counts them.
    """

    values: Float[Tensor, "metric layer cell example"]
    ran: Bool[Tensor, "layer cell"]
    engine: str
    notes: tuple[str, ...]
    work: int | None


class Destination:
    """The run that is patched: its logits at the read positions, and the activations that an engine starts from.

    Args:
        model: The model, entered through `headlab.interp.model.untouched`.
        inputs: What it is called with.
        component: What will be edited, see `headlab.interp.sites`.
        layers: Where.
        read: The positions that metrics see, in this order; None is all.
        engine: `cone` or `auto` where the cone may compute, `expand` where the model must run.
        attention_mask: What the model is called with; None where it needs none. The cone does not model one.
    """

    def __init__(
        self,
        model: HookedModel,
        inputs: Shaped[Tensor, "example ..."],
        component: str,
        layers: Sequence[int],
        read: Sequence[int] | None,
        engine: Engine | str,
        attention_mask: Mask | None = None,
    ) -> None:
        if engine not in ENGINES:
            raise UnknownName(f"unknown engine '{engine}': choose auto, cone or expand")
        self.model = model
        self.inputs = inputs
        self.component = component
        self.layers = tuple(layers)
        self.attention_mask = attention_mask
        self.hooks = [hook_name(component, layer) for layer in layers]
        self._why_expand = self._unsupported(engine)
        # Where the cone runs, the logits of other positions are needed by nobody: they are not unembedded.
        self._read_given = read
        self._sliced = self._why_expand is None and read is not None and plain_unembed(model)
        needed = self.hooks if self._why_expand is not None else hooks_for(model, component, self.layers)
        logits, self.old = self._observe(inputs, needed, attention_mask)
        self.positions = self.old[self.hooks[0]].shape[-2 if component == "pattern" else 1]
        self.read = require_positions(read, self.positions)
        self.logits: Float[Tensor, "example read vocabulary"] = self._at_read(logits)

    def _unsupported(self, engine: str) -> str | None:
        """Why the cone cannot compute: "" where the caller does not want it, None where it can."""
        if engine == "expand":
            return ""
        if self.attention_mask is not None:
            return "an attention mask"
        try:
            require_supported(self.model)
        except Unsupported as reason:
            return str(reason)
        return None

    def observe(
        self, inputs: Shaped[Tensor, "example ..."], attention_mask: Mask | None
    ) -> tuple[Float[Tensor, "example read vocabulary"], dict[str, Tensor]]:
        """Another run's logits at the read positions, and its activations of the component."""
        logits, found = self._observe(inputs, self.hooks, attention_mask)
        return self._at_read(logits), found

    def edited(self, hooks: Sequence[tuple[str, Hook]]) -> Float[Tensor, "example read vocabulary"]:
        """The logits at the read positions of a run of the model with hooks added."""
        hooks = list(hooks)
        if self._sliced:
            hooks.append(self._slicing)
        return self._at_read(run(self.model, self.inputs, hooks, attention_mask=self.attention_mask))

    @property
    def _slicing(self) -> tuple[str, Hook]:
        last = hook_name("resid_post", int(self.model.cfg.n_layers) - 1)
        return last, partial(_slice, read=self._read_given)

    def _observe(
        self, inputs: Tensor, names: Sequence[str], attention_mask: Mask | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        if not self._sliced:
            return activations(self.model, inputs, names, attention_mask=attention_mask)
        kept: dict[str, Tensor] = {}
        hooks = [(name, partial(_keep, kept=kept)) for name in names]
        return run(self.model, inputs, [*hooks, self._slicing]), kept

    def _at_read(self, logits: Tensor) -> Tensor:
        return logits if self._sliced else logits[:, list(self.read)]

    def measure(
        self,
        cells: Cells,
        metrics: Mapping[str, Metric],
        baseline: Float[Tensor, "metric example"],
        *,
        recheck: int = 2,
        progress: bool = False,
    ) -> Swept:
        """Run every cell, by the cone where it models the architecture, else by the model.

        Args:
            cells: What is edited, and what is put there.
            metrics: By name; each from logits at the read positions.
            baseline: The metrics of this run itself.
            recheck: How many random cells of the cone are computed by the model too. Where one differs, all cells are
                run by the model, and a note says so.
            progress: Whether a bar is shown on standard error.
        """
        reason = self._why_expand
        if reason is None:
            try:
                first = first_block(self.component, self.layers)
                cone = Cone(self.model, self.read, self.logits, self.old, first=first)
                return self._swept(ConeSweep(cone, cells), cells, metrics, baseline, recheck, progress, ())
            except Unsupported as found:
                reason = str(found)
        notes = (f"the cone does not model {reason}: the model itself was run (expand)",) if reason else ()
        runner = Expand(self.model, self.inputs, self.read, self.logits, cells, attention_mask=self.attention_mask)
        return self._swept(runner, cells, metrics, baseline, 0, progress, notes)

    def _swept(
        self,
        runner: ConeSweep | Expand,
        cells: Cells,
        metrics: Mapping[str, Metric],
        baseline: Float[Tensor, "metric example"],
        recheck: int,
        progress: bool,
        notes: tuple[str, ...],
    ) -> Swept:
        count = cells.count()
        values = baseline[:, None, None].repeat(1, len(self.layers), count, 1)
        changed = torch.stack([cells.changed(layer) for layer in self.layers])
        reach = torch.stack([runner.reaches(layer, torch.arange(count)) for layer in self.layers])
        ran = reach & changed.any(-1).cpu()
        batched = [BatchedMetric(metric, name) for name, metric in metrics.items()]
        guard = Recheck(self.model, self.inputs, self.read, cells, self.layers, ran, recheck)
        with _bar(int(ran.sum()), progress) as advance:
            for row, which, logits in _gathered(runner, self.layers, ran):
                guard.compare(row, which, logits)
                for number, metric in enumerate(batched):
                    value = metric(logits).to(values.dtype)
                    values[number, row, which] = torch.where(changed[row, which], value, baseline[number])
                advance(len(which))
        looped = [f"metric '{m.name}' was looped over cells ({m.looped})" for m in batched if m.looped is not None]
        work = None if runner.work is None else runner.work + guard.work
        return Swept(values, ran, runner.name, (*notes, *looped, *runner.notes), work)


def measured(
    metrics: Mapping[str, Metric], logits: Float[Tensor, "example read vocabulary"]
) -> Float[Tensor, "metric example"]:
    """The metrics of one run, each checked."""
    return torch.stack([performance(metric, logits.clone(), name) for name, metric in metrics.items()])


def from_cache(
    cache: Any, hooks: Mapping[str, Shaped[Tensor, "example ..."]]
) -> dict[str, Shaped[Tensor, "example ..."]]:
    """The activations of a cache (a mapping, or an ActivationCache of transformer-lens) at `hooks`, checked.

    Raises:
        UnknownName: For an activation that the cache does not hold.
        RequestError: For one of another shape, or with NaN or infinity.
    """
    names = set(cache.keys())
    for name, activation in hooks.items():
        if name not in names:
            raise UnknownName(f"the source cache has no '{name}': cache it, or give the source's inputs instead")
        held = cache[name]
        if held.shape != activation.shape:
            raise RequestError(
                f"the source cache holds '{name}' of shape {list(held.shape)}, the destination {list(activation.shape)}"
            )
        if not bool(held.isfinite().all()):
            raise RequestError(f"the source cache holds NaN or infinity in '{name}'")
    return {name: cache[name].detach().to(activation) for name, activation in hooks.items()}


def _keep(activation: Tensor, hook: Any, *, kept: dict[str, Tensor]) -> None:
    kept[hook.name] = activation.detach()


def _slice(residual: Tensor, hook: Any, *, read: Sequence[int] | None) -> Tensor:
    return residual[:, list(require_positions(read, residual.shape[1]))]


def _gathered(
    runner: ConeSweep | Expand, layers: Sequence[int], ran: Bool[Tensor, "layer cell"]
) -> Iterator[tuple[Int[Tensor, " cell"], Int[Tensor, " cell"], Float[Tensor, "cell example read vocabulary"]]]:
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
