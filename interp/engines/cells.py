"""The cells of a sweep with what is there and what is put there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headlab.interp.model import Hook
from headlab.interp.sites import Grid, component, hook_name

Cell = Int[Tensor, " cell"]


@dataclass(frozen=True, eq=False)
class Cells:
    """A grid of sites, the activations of the destination run (`old`) and what is put there (`new`), by hook name.

    Cells of a layer are numbered in row-major order of the grid's axes without `layer`.
    """

    grid: Grid
    old: Mapping[str, Tensor]
    new: Mapping[str, Tensor]

    @property
    def component(self) -> str:
        """The component that is edited."""
        return self.grid.component

    @property
    def axes(self) -> tuple[str, ...]:
        """The grid's axes beside layer."""
        return tuple(axis for axis in self.grid.by if axis != "layer")

    @property
    def entries(self) -> tuple[str, ...]:
        """The axes of one example's activation that a cell selects from, in the activation's own order."""
        axes = component(self.component).axes
        return ("position", "head") if axes == ("head", "position") else axes

    def count(self) -> int:
        """How many cells a layer has."""
        return prod(len(self.grid.labels[axis]) for axis in self.axes)

    def label(self, axis: str, which: Cell) -> Cell:
        """The label along `axis` of each cell in `which`."""
        sizes = [len(self.grid.labels[name]) for name in self.axes]
        number = self.axes.index(axis)
        along = which // prod(sizes[number + 1 :]) % sizes[number]
        return torch.tensor(self.grid.labels[axis])[along]

    def before(self, layer: int) -> Tensor:
        """The destination run's activation at `layer`."""
        return self.old[hook_name(self.component, layer)]

    def after(self, layer: int) -> Tensor:
        """What is put there: `new` at the labels of every axis that cells do not split, `old` everywhere else on it."""
        name = hook_name(self.component, layer)
        new = self.new[name]
        for number, axis in enumerate(self.entries):
            labels, size = self.grid.labels[axis], new.shape[number + 1]
            if axis not in self.axes and len(labels) < size:
                chosen = torch.zeros(size, dtype=torch.bool, device=new.device)
                chosen[list(labels)] = True
                new = torch.where(chosen.view(-1, *[1] * (new.ndim - number - 2)), new, self.old[name])
        return new

    def edits(self, layer: int, which: Cell) -> Bool[Tensor, "cell 1 ..."]:
        """Which entries of the activation each cell edits, ready to broadcast over examples and features."""
        old = self.before(layer)
        mask = torch.ones((len(which), *[1] * old.ndim), dtype=torch.bool)
        for number, axis in enumerate(self.entries):
            size = old.shape[number + 1]
            if axis in self.axes:
                along = torch.zeros(len(which), size, dtype=torch.bool)
                along[torch.arange(len(which)), self.label(axis, which)] = True
            else:
                along = torch.zeros(1, size, dtype=torch.bool)
                along[:, list(self.grid.labels[axis])] = True
            shape = [1] * mask.ndim
            shape[0], shape[number + 2] = along.shape
            mask = mask & along.reshape(shape)
        return mask.to(old.device)

    def changed(self, layer: int) -> Bool[Tensor, "cell example"]:
        """Whether what is put there differs at all from what is there: a cell that changes nothing is not run."""
        differs = self.before(layer) != self.after(layer)
        if self.component != "pattern":
            differs = differs.any(-1)
        for number, axis in enumerate(self.entries):
            labels = self.grid.labels[axis]
            if labels != tuple(range(differs.shape[number + 1])):
                differs = differs.index_select(number + 1, torch.tensor(labels, device=differs.device))
        for number, axis in reversed(list(enumerate(self.entries))):
            if axis not in self.axes:
                differs = differs.any(number + 1)
        kept = [axis for axis in self.entries if axis in self.axes]
        order = [kept.index(axis) + 1 for axis in self.axes]
        return differs.permute(*order, 0).reshape(-1, differs.shape[0])


@dataclass(frozen=True, eq=False)
class HeadGroups(Cells):
    """Cells that are groups of heads, edited together at z over the grid's positions.

    Args:
        groups: (layer, head) of each cell. A group within one layer is a cell of that layer; one across layers is a
            cell of none (`hooks` edits it in a run of the model).
    """

    groups: tuple[tuple[tuple[int, int], ...], ...]

    def count(self) -> int:
        """How many groups there are, over all layers."""
        return len(self.groups)

    def _heads(self, layer: int, which: Cell) -> Bool[Tensor, "cell head"]:
        """The heads of `layer` in each group."""
        heads = torch.zeros(len(which), self.before(layer).shape[2], dtype=torch.bool)
        for row, group in enumerate(which.tolist()):
            heads[row, [head for at, head in self.groups[group] if at == layer]] = True
        return heads.to(self.before(layer).device)

    def edits(self, layer: int, which: Cell) -> Bool[Tensor, "cell 1 ..."]:
        """Which entries of z each group edits."""
        positions = torch.zeros(self.before(layer).shape[1], dtype=torch.bool, device=self.before(layer).device)
        positions[list(self.grid.labels["position"])] = True
        return (self._heads(layer, which)[:, None, None] & positions[:, None])[..., None]

    def changed(self, layer: int) -> Bool[Tensor, "cell example"]:
        """Whether a group that lies in `layer` alone differs from what is there."""
        differs = (self.before(layer) != self.after(layer)).any(-1).any(1)
        heads = self._heads(layer, torch.arange(len(self.groups)))
        alone = [all(at == layer for at, _ in group) for group in self.groups]
        heads &= torch.tensor(alone, device=heads.device)[:, None]
        return (heads[:, None] & differs).any(-1)

    def hooks(self, group: int) -> list[tuple[str, Hook]]:
        """The edits of one group in a run of the model, one hook a layer."""
        layers = sorted({layer for layer, _ in self.groups[group]})
        which = torch.tensor([group])
        return [
            (hook_name("z", layer), partial(_put, new=self.after(layer), mask=self.edits(layer, which)[0]))
            for layer in layers
        ]


def _put(z: Float[Tensor, "example position head d_head"], hook: Any, *, new: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, new, z)
