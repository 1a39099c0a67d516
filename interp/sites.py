"""Where a model is edited: a site is a component at a layer, and a head, position or entry of it.

Layers, heads and positions count from 0; positions are the model's own (a task that appends a CLS has one more than
its input). Axis names are `layer`, `head`, `position`, and for attention patterns `destination` (query) and `source`
(key).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Bool
from torch import Tensor

from headlab.interp.errors import OutOfRange, RequestError, UnknownName
from headlab.interp.model import HookedModel


@dataclass(frozen=True)
class Component:
    """A kind of activation: its hook, and the axes of one cell of it beside `layer`.

    Activation shapes: axes (position,) -> [example, position, model]; (head, position) -> [example, position, head,
    d_head]; (head, destination, source) -> [example, head, destination, source].
    """

    name: str
    hook: str
    axes: tuple[str, ...]


COMPONENTS: dict[str, Component] = {
    component.name: component
    for component in (
        Component("resid_pre", "blocks.{}.hook_resid_pre", ("position",)),
        Component("resid_mid", "blocks.{}.hook_resid_mid", ("position",)),
        Component("resid_post", "blocks.{}.hook_resid_post", ("position",)),
        Component("attn_out", "blocks.{}.hook_attn_out", ("position",)),
        Component("mlp_out", "blocks.{}.hook_mlp_out", ("position",)),
        Component("z", "blocks.{}.attn.hook_z", ("head", "position")),
        Component("q", "blocks.{}.attn.hook_q", ("head", "position")),
        Component("k", "blocks.{}.attn.hook_k", ("head", "position")),
        Component("v", "blocks.{}.attn.hook_v", ("head", "position")),
        Component("pattern", "blocks.{}.attn.hook_pattern", ("head", "destination", "source")),
    )
}


def component(name: str) -> Component:
    """The component called `name`. Raises KeyError, listing those there are, where there is none."""
    if name not in COMPONENTS:
        hint = ""
        if name == "result":
            hint = "; a head's result is z W_O, so edit z (hook_result itself fires only under cfg.use_attn_result)"
        raise UnknownName(f"unknown component '{name}': choose one of {', '.join(COMPONENTS)}{hint}")
    return COMPONENTS[name]


def hook_name(name: str, layer: int) -> str:
    """The hook at which component `name` of `layer` is read and edited. Raises KeyError for an unknown component."""
    return component(name).hook.format(layer)


def components_of(model: HookedModel) -> tuple[str, ...]:
    """The components that fire on this model: attention-only models have no resid_mid and no mlp_out."""
    absent: set[str] = set()
    if getattr(model.cfg, "attn_only", False):
        absent = {"resid_mid", "mlp_out"}
    elif getattr(model.cfg, "parallel_attn_mlp", False):
        absent = {"resid_mid"}
    known = model.hook_dict
    return tuple(name for name in COMPONENTS if name not in absent and hook_name(name, 0) in known)


def require_component(model: HookedModel, name: str) -> Component:
    """The component, where this model has it. Raises KeyError that lists the components it does have."""
    found = component(name)
    there = components_of(model)
    if name not in there:
        raise UnknownName(f"this model has no {name}: its sites are {', '.join(there)}")
    return found


def head_count(model: HookedModel, name: str) -> int:
    """How many heads component `name` has: key-value heads for k and v of a model that groups them."""
    grouped = getattr(model.cfg, "n_key_value_heads", None)
    if name in ("k", "v") and grouped is not None and not getattr(model.cfg, "ungroup_grouped_query_attention", False):
        return int(grouped)
    return int(model.cfg.n_heads)


def require_layers(model: HookedModel, layers: Sequence[int] | None) -> tuple[int, ...]:
    """`layers`, or all of them. Raises IndexError for one that does not exist, and ValueError for none or a repeat."""
    return _chosen("layer", layers, int(model.cfg.n_layers))


def require_positions(positions: Sequence[int] | None, count: int, axis: str = "position") -> tuple[int, ...]:
    """`positions` counted from 0 (-1 is the last), or all `count` of them. Errors as for `require_layers`."""
    if positions is not None:
        positions = [position + count if -count <= position < 0 else position for position in positions]
    return _chosen(axis, positions, count)


def _chosen(axis: str, chosen: Sequence[int] | None, count: int) -> tuple[int, ...]:
    if chosen is None:
        return tuple(range(count))
    values = tuple(int(value) for value in chosen)
    for value in values:
        if not 0 <= value < count:
            raise OutOfRange(f"{axis} {value} does not exist: there are {axis}s 0 to {count - 1}")
    if not values:
        raise RequestError(f"no {axis} was given: leave it out for all {count}")
    if len(set(values)) != len(values):
        raise RequestError(f"{axis}s {list(values)} name one twice")
    return values


@dataclass(frozen=True)
class Site:
    """One place: a component of a layer; None means the whole axis. `position` is a pattern's destination."""

    component: str
    layer: int
    head: int | None = None
    position: int | None = None
    source: int | None = None

    @property
    def hook(self) -> str:
        """The name of the hook at which the site is read and edited."""
        return hook_name(self.component, self.layer)

    def index(self) -> tuple[slice | int, ...]:
        """What selects the site in its hook's activation, first axis `example`."""
        axes = component(self.component).axes
        chosen: dict[str, int | None] = {"head": self.head, "position": self.position}
        chosen |= {"destination": self.position, "source": self.source}
        order = ("position", "head") if axes == ("head", "position") else axes
        return (slice(None), *(slice(None) if (value := chosen[axis]) is None else value for axis in order))

    def __str__(self) -> str:
        head = "" if self.head is None else f".{self.head}"
        position = "" if self.position is None else f"@{self.position}"
        source = "" if self.source is None else f"<-{self.source}"
        return f"{self.component} {self.layer}{head}{position}{source}"


@dataclass(frozen=True)
class Grid:
    """The cells of a sweep: every combination of the labels along the axes `by`.

    axes that are not in `by` are edited as a whole, over their chosen labels. `labels` holds every axis.
    """

    component: str
    by: tuple[str, ...]
    labels: dict[str, tuple[int, ...]]

    @property
    def shape(self) -> tuple[int, ...]:
        """How many labels each axis of `by` has, in order."""
        return tuple(len(self.labels[axis]) for axis in self.by)

    def sites(self) -> Iterator[Site]:
        """The cells in row-major order. An axis edited as a whole is None, whichever labels were chosen of it."""
        for values in product(*(self.labels[axis] for axis in self.by)):
            at = dict(zip(self.by, values, strict=True))
            yield Site(
                self.component,
                at["layer"],
                at.get("head"),
                at.get("position", at.get("destination")),
                at.get("source"),
            )

    def edited(self, site: Site, shape: Sequence[int]) -> Bool[Tensor, ...]:
        """Which entries of one example's activation (of `shape`, without the example axis) the cell `site` edits."""
        axes = component(self.component).axes
        order = ("position", "head") if axes == ("head", "position") else axes
        at = {"head": site.head, "position": site.position, "destination": site.position, "source": site.source}
        mask = torch.ones(tuple(shape), dtype=torch.bool)
        for number, axis in enumerate(order):
            label = at[axis]
            along = torch.zeros(shape[number], dtype=torch.bool)
            along[list(self.labels[axis]) if label is None else [label]] = True
            mask &= along.reshape([-1 if number == dim else 1 for dim in range(len(shape))])
        return mask


def grid(
    model: HookedModel,
    name: str,
    *,
    position_count: int,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    sources: Sequence[int] | None = None,
    by: Sequence[str] | None = None,
) -> Grid:
    """The cells of component `name`, one for each combination along the axes `by` (default: layer and every axis;
    for patterns layer, head and destination).

    position_count: how many positions the model sees (not its input's length). `positions` are a pattern's
    destinations, `sources` its sources. Raises KeyError for a component or axis that does not exist, IndexError for a
    layer, head or position that does not, each naming those that do.
    """
    found = require_component(model, name)
    axes = ("layer", *found.axes)
    if by is None:
        by = axes[:3] if name == "pattern" else axes
    unknown = [axis for axis in by if axis not in axes]
    if unknown:
        raise UnknownName(f"{name} has no axis '{unknown[0]}': its axes are {', '.join(axes)}")
    if len(set(by)) != len(by) or "layer" not in by:
        raise RequestError(f"by={tuple(by)} must name layer, and each axis once: choose from {', '.join(axes)}")
    if heads is not None and "head" not in axes:
        raise RequestError(f"{name} has no heads: leave `heads` out")
    if sources is not None and "source" not in axes:
        raise RequestError(f"{name} has no source positions: leave `sources` out")
    labels = {"layer": require_layers(model, layers)}
    if "head" in axes:
        labels["head"] = _chosen("key-value head" if name in ("k", "v") else "head", heads, head_count(model, name))
    first = "destination" if name == "pattern" else "position"
    labels[first] = require_positions(positions, position_count, first)
    if name == "pattern":
        labels["source"] = require_positions(sources, position_count, "source")
    return Grid(name, tuple(by), labels)
