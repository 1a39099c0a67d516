"""One pass of the model in which edges carry replaced values: many sets of edges at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor

from headlab.interp.circuits import END, START, Edge, Node, Port
from headlab.interp.edges import QKV
from headlab.interp.model import run
from headlab.interp.wiring import Outputs, Wiring, written


@dataclass(frozen=True)
class _Cut:
    """The edges of many sets into one port of one layer: where they are read, and what their sources were to write."""

    cell: Tensor
    position: Tensor
    head: Tensor
    sources: Mapping[Node, tuple[Tensor, Tensor, Tensor]]

    @classmethod
    def of(cls, entries: Sequence[tuple[int, Edge]], device: torch.device) -> _Cut:
        targets = sorted({(cell, edge.position, edge.destination.head) for cell, edge in entries})
        row_of = {target: row for row, target in enumerate(targets)}
        places: dict[Node, list[tuple[int, int, int | None]]] = defaultdict(list)
        for cell, edge in entries:
            row = row_of[(cell, edge.position, edge.destination.head)]
            places[edge.source].append((row, cell, edge.position))

        def columns(rows: Sequence[tuple[int, int | None, int | None]]) -> tuple[Tensor, Tensor, Tensor]:
            first, second, third = torch.tensor(rows, device=device).unbind(1)
            return first, second, third

        # Sorted, so that sums round the same whatever the order of a set.
        return cls(*columns(targets), {source: columns(places[source]) for source in sorted(places)})

    def correction(self, reference: Outputs, live: Mapping[Node, Tensor]) -> Float[Tensor, "target example model"]:
        """What the readers' residual stream changes by: the sum over cut edges of reference minus live output."""
        total = None
        for source, (row, cell, position) in self.sources.items():
            delta = reference[source][:, position].transpose(0, 1) - live[source][cell, :, position]
            if total is None:
                total = delta.new_zeros(len(self.cell), *delta.shape[1:])
            total.index_add_(0, row, delta)
        assert total is not None
        return total


def run_edge_sets(
    wiring: Wiring, sets: Sequence[Collection[Edge]], reference: Outputs, *, keep: Collection[Node] = ()
) -> tuple[Float[Tensor, "set example position vocabulary"], dict[Node, Float[Tensor, "set example position model"]]]:
    """The logits of one pass in which the edges of each set carry what their sources write in `reference`.

    An edge's reader sees the residual stream plus (reference - live output of the source); all other readers of that
    source see the live output. Live means in this pass, so edges cut above a source change what the source writes.
    An example to which a set changes nothing has the model's own logits to the bit. Edges must have passed
    `Wiring.check`. Also returns what the nodes of `keep` wrote in this pass.
    """
    examples = wiring.inputs.shape[0]
    entries: dict[tuple[int, Port], list[tuple[int, Edge]]] = defaultdict(list)
    for index, edges in enumerate(sets):
        for edge in edges:
            entries[(edge.destination.layer, edge.port)].append((index, edge))
    cuts = {reader: _Cut.of(found, wiring.logits.device) for reader, found in entries.items()}
    used = {source for cut in cuts.values() for source in cut.sources} | set(keep)
    live: dict[Node, Tensor] = {}
    stream: dict[str, Tensor] = {}
    moved = torch.zeros(len(sets), examples, dtype=torch.bool, device=wiring.logits.device)

    def by_set(value: Tensor) -> Tensor:
        return rearrange(value, "(set example) ... -> set example ...", example=examples)

    def keep_stream(value: Tensor, hook: Any) -> None:
        stream[hook.name] = value
        if hook.name == "blocks.0.hook_resid_pre":
            live[START] = by_set(value)

    def keep_heads(value: Tensor, hook: Any) -> None:
        for node in used:
            if node.kind == "head" and hook.name == f"blocks.{node.layer}.attn.hook_z":
                live[node] = by_set(written(node, value, wiring.weights))

    def keep_mlp(value: Tensor, hook: Any) -> None:
        live[Node("mlp", int(hook.name.split(".")[1]))] = by_set(value)

    def cut_at(cut: _Cut, stream_name: str, compute: Callable[[int, Tensor], Tensor]) -> Any:
        def hook(value: Tensor, hook: Any) -> Tensor:
            out = by_set(value.clone())
            before = by_set(stream.get(stream_name, value))[cut.cell, :, cut.position]
            correction = cut.correction(reference, live)
            changed = (correction != 0).any(-1, keepdim=True)
            target, example = changed[..., 0].nonzero(as_tuple=True)
            moved[cut.cell[target], example] = True
            for head in cut.head.unique().tolist():
                mine = cut.head == head
                place = (cut.cell[mine], slice(None), cut.position[mine]) + ((head,) if head >= 0 else ())
                new = compute(head, before[mine] + correction[mine])
                out[place] = torch.where(changed[mine], new, out[place])
            return rearrange(out, "set example ... -> (set example) ...")

        return hook

    hooks: list[tuple[str, Any]] = []
    for layer in range(len(wiring.weights)):
        before, middle = wiring.stream(layer, "q"), wiring.stream(layer, "mlp")
        hooks.append((before, keep_stream))
        for port in QKV:
            if cut := cuts.get((layer, port)):
                hooks.append(
                    (f"blocks.{layer}.attn.hook_{port}", cut_at(cut, before, partial(wiring.project, layer, port)))
                )
        hooks.append((f"blocks.{layer}.attn.hook_z", keep_heads))
        if cut := cuts.get((layer, "mlp")):
            hooks += [] if middle == before else [(middle, keep_stream)]
            hooks.append(
                (f"blocks.{layer}.hook_mlp_out", cut_at(cut, middle, lambda _, x, at=layer: wiring.mlp(at, x)))
            )
        if Node("mlp", layer) in used:
            hooks.append((f"blocks.{layer}.hook_mlp_out", keep_mlp))
    if cut := cuts.get((END.layer, "end")):
        last = f"blocks.{len(wiring.weights) - 1}.hook_resid_post"
        hooks.append((last, cut_at(cut, last, lambda _, residual: residual)))
    inputs = repeat(wiring.inputs, "example ... -> (set example) ...", set=len(sets))
    mask = wiring.attention_mask
    mask = None if mask is None else mask.repeat(len(sets), 1)
    logits = by_set(run(wiring.model, inputs, hooks, attention_mask=mask))
    # A larger batch rounds differently: what nothing was done to is the unpatched run itself.
    logits = torch.where(moved[..., None, None], logits, wiring.logits)
    return logits, {node: live[node] for node in keep}
