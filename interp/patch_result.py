"""What a sweep of patches found: per-example effects with named axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from scipy import stats
from torch import Tensor

from headlab.interp.errors import RequestError, UnknownName
from headlab.interp.render.figure import Figure
from headlab.interp.render.grid import effect_grid

Direction = Literal["denoising", "noising"]


@dataclass(frozen=True, eq=False)
class PatchResult:
    """Metric values of the patched runs, and what they mean.

    axes: the names of the cell axes, in order; labels: axis -> the label of each index. values: the metric of each
    patched run. destination, source: the metric of the two runs themselves (source None where activations were
    replaced by no run's). ran: False for cells that change nothing, or nothing that is read; their value is the
    destination's. direction: `denoising` (effects are performance recovered) or `noising` (performance lost).
    replaced_by: what was put there, in words. engine, notes: how it was computed, and why so. work: multiply-adds of
    the patched runs where the engine counts them.
    """

    component: str
    axes: tuple[str, ...]
    labels: Mapping[str, tuple[int, ...]]
    metrics: tuple[str, ...]
    values: Float[Tensor, "metric *cell example"]
    destination: Float[Tensor, "metric example"]
    source: Float[Tensor, "metric example"] | None
    ran: Bool[Tensor, "*cell"]
    read: tuple[int, ...]
    direction: Direction | str
    replaced_by: str
    engine: str
    notes: tuple[str, ...]
    device: str
    work: int | None = None

    @property
    def effects(self) -> Float[Tensor, "metric *cell example"]:
        """Performance recovered (denoising) or lost (noising) by each patch, per example, in the metric's units."""
        before = self.destination.view(len(self.metrics), *[1] * len(self.axes), -1)
        return self.values - before if self.direction == "denoising" else before - self.values

    def effect(self, metric: str | None = None) -> Float[Tensor, "*cell"]:
        """The mean effect over examples; of the first metric where none is named."""
        return self.effects[self._number(metric)].mean(-1)

    def gap(self, metric: str | None = None) -> float | None:
        """What there is to recover (or to lose): the mean difference of the two runs; None without a source run."""
        if self.source is None:
            return None
        number = self._number(metric)
        gap = float((self.source[number] - self.destination[number]).mean())
        return gap if self.direction == "denoising" else -gap

    def normalised(self, metric: str | None = None) -> Float[Tensor, "*cell"] | None:
        """The mean effect as a share of the gap: 1 where one patch does all. None, and `why_not` says why, where the
        runs do not differ in the metric (by less than a millionth of its size) or there is no source run."""
        gap = self.gap(metric)
        return None if gap is None or self.why_not(metric) else self.effect(metric) / gap

    def why_not(self, metric: str | None = None) -> str | None:
        """Why the effect is not normalised; None where it is."""
        gap, number = self.gap(metric), self._number(metric)
        if gap is None or self.source is None:
            return f"activations were replaced by {self.replaced_by}: there is no source run to recover"
        size = float(self.source[number].abs().mean() + self.destination[number].abs().mean())
        if abs(gap) <= 1e-6 * size or gap == 0.0:
            return f"source and destination do not differ in '{self.metrics[number]}': there is nothing to recover"
        return None

    def interval(self, metric: str | None = None, *, confidence: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """(low, high) of the mean effect of each cell: the t interval over examples, exact for normal effects.

        Args:
            metric: by name; the first where it is None.
            confidence: the level, in (0, 1).

        Returns:
            Two arrays over the sweep's axes, NaN for one example, which shows no spread.
        """
        if not 0 < confidence < 1:
            raise RequestError(f"confidence must lie between 0 and 1, not {confidence}")
        effects = self._effects(metric)
        count, middle = effects.shape[-1], effects.mean(-1)
        if count == 1:
            return np.full_like(middle, np.nan), np.full_like(middle, np.nan)
        half = stats.t.ppf((1 + confidence) / 2, count - 1) * effects.std(-1, ddof=1) / np.sqrt(count)
        return middle - half, middle + half

    def p_values(self, metric: str | None = None, *, resamples: int = 9999, seed: int = 0) -> np.ndarray:
        """For each cell, how often a mean effect as large comes up when every example's sign is flipped at random.

        Two-sided, in (0, 1]; exact where every pattern of signs was listed (13 examples or fewer); not corrected for
        the number of cells.
        """
        effects = self._effects(metric)
        if effects.shape[-1] == 1:
            return np.ones(effects.shape[:-1])
        return np.asarray(
            stats.permutation_test(
                (effects,),
                np.mean,
                permutation_type="samples",
                vectorized=True,
                axis=-1,
                n_resamples=resamples,
                batch=max(1, (1 << 22) // effects.size),
                rng=np.random.default_rng(seed),
            ).pvalue
        )

    def top(self, count: int = 5, metric: str | None = None) -> list[tuple[dict[str, int], float]]:
        """The cells with the largest mean effect: their labels and the effect."""
        effect = self.effect(metric).flatten()
        best = effect.argsort(descending=True)[:count].tolist()
        cells = [dict(zip(self.axes, at)) for at in product(*(self.labels[axis] for axis in self.axes))]
        return [(cells[cell], float(effect[cell])) for cell in best]

    def to_frame(self, *, per_example: bool = False) -> pd.DataFrame:
        """One row per metric and cell (and example): the axes, metric, value, effect; without `per_example` also the
        normalised effect (missing where it is None), its interval and whether the cell was run."""
        cells = list(product(*(self.labels[axis] for axis in self.axes)))
        tables = []
        for number, name in enumerate(self.metrics):
            values, effects = self.values[number].flatten(0, -2).cpu(), self.effects[number].flatten(0, -2).cpu()
            examples = values.shape[1]
            if per_example:
                columns: dict[str, Any] = {
                    axis: np.repeat([cell[i] for cell in cells], examples) for i, axis in enumerate(self.axes)
                }
                columns |= {"metric": name, "example": np.tile(np.arange(examples), len(cells))}
                columns |= {"value": values.flatten().numpy(), "effect": effects.flatten().numpy()}
            else:
                low, high = self.interval(name)
                share = self.normalised(name)
                columns = {axis: [cell[i] for cell in cells] for i, axis in enumerate(self.axes)}
                columns |= {"metric": name, "value": values.mean(1).numpy(), "effect": effects.mean(1).numpy()}
                columns |= {"low": low.ravel(), "high": high.ravel()}
                columns["normalised"] = pd.NA if share is None else share.flatten().cpu().numpy()
                columns["ran"] = self.ran.flatten().cpu().numpy()
            tables.append(pd.DataFrame(columns))
        return pd.concat(tables, ignore_index=True)

    def render(
        self, metric: str | None = None, *, normalised: bool = True, position_names: Sequence[str] = ()
    ) -> Figure:
        """The grid of effects as a picture, one panel per label of the leading axes beyond two.

        normalised: as shares of the gap, where there is one. position_names: what positions are called. Cells that
        were not run have no effect, and are drawn as zero.
        """
        number = self._number(metric)
        share = self.normalised(metric) if normalised else None
        grid = (self.effect(metric) if share is None else share).double().cpu().numpy()
        names = [[self._name(axis, label, position_names) for label in self.labels[axis]] for axis in self.axes]
        axes = list(self.axes)
        if grid.ndim == 1:
            grid, names, axes = grid[None], [[""], *names], ["", *axes]
        panels = list(product(*(zip([axis] * len(labels), labels) for axis, labels in zip(axes[:-2], names[:-2]))))
        verb = "recovered" if self.direction == "denoising" else "lost"
        unit = "share of the gap" if share is not None else self.metrics[number]
        runs = len(self.destination[number])
        return effect_grid(
            grid.reshape(-1, *grid.shape[-2:]) if panels != [()] else grid,
            rows=names[-2],
            columns=names[-1],
            row_axis=axes[-2],
            column_axis=axes[-1],
            panels=[
                ", ".join(label if label.startswith(axis) else f"{axis} {label}" for axis, label in panel)
                for panel in panels
            ]
            if panels != [()]
            else None,
            title=f"{self.component} patched: {self.metrics[number]} {verb}",
            description=f"Mean {self.metrics[number]} {verb} over {runs} examples, largest {np.abs(grid).max():.3g}.",
            caption=f"{self.component} of {self.replaced_by}, {runs} examples, {self.direction}; {unit}.",
            unit="" if share is not None else unit,
            limit=None if share is None else max(1.0, float(np.abs(grid).max())),
        )

    def _name(self, axis: str, label: int, positions: Sequence[str]) -> str:
        if axis in ("layer", "head"):
            return f"{axis} {label}"
        placed = axis in ("position", "destination", "source") and label < len(positions)
        return positions[label] if placed else str(label)

    def _number(self, metric: str | None) -> int:
        if metric is None:
            return 0
        if metric not in self.metrics:
            raise UnknownName(f"no metric '{metric}': there are {', '.join(self.metrics)}")
        return self.metrics.index(metric)

    def _effects(self, metric: str | None) -> np.ndarray:
        return self.effects[self._number(metric)].double().cpu().numpy()
