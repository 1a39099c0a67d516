"""How a cell of each component enters the cone: what it makes of the residual stream in its own block."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headlab.interp.engines.block import hooks_needed
from headlab.interp.engines.cells import Cell, Cells
from headlab.interp.engines.closed import closed_form
from headlab.interp.engines.cone import Cone, Logits, Positions
from headlab.interp.model import HookedModel
from headlab.interp.sites import hook_name

Chunk = tuple[Cell, Logits]

RESIDUAL = ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out")
# Components that the block's own attention reads: a cell of theirs acts from inside the block.
INSIDE = ("resid_pre", "q", "k", "v", "pattern")
# What a pass through a block costs whatever its size, in multiply-adds of one residual row by a square weight.
PASS = 5e5


def first_block(component: str, layers: tuple[int, ...]) -> int:
    """The lowest block that a sweep of `component` over `layers` computes again."""
    return min(layers) + (component not in INSIDE)


def hooks_for(model: HookedModel, component: str, layers: tuple[int, ...]) -> list[str]:
    """The activations of the unpatched run that a ConeSweep needs."""
    count = int(model.cfg.n_layers)
    names = hooks_needed(model, range(first_block(component, layers), count))
    middle = "resid_post" if model.cfg.attn_only else "resid_mid"
    names += [hook_name(component, layer) for layer in layers]
    names += [hook_name("resid_post" if component == "mlp_out" else middle, layer) for layer in layers]
    return list(dict.fromkeys([*names, hook_name("resid_post", count - 1)]))


class ConeSweep:
    """Runs the cells of a sweep through a Cone; their `old` activations must hold what `hooks_for` names."""

    def __init__(self, cone: Cone, cells: Cells) -> None:
        self.cone = cone
        self.cells = cells
        self.position_axis = "destination" if cells.component == "pattern" else "position"

    @property
    def name(self) -> str:
        """The engine's name, for the result."""
        return self.cone.name

    @property
    def work(self) -> int:
        """Multiply-adds so far."""
        return self.cone.done

    @property
    def notes(self) -> list[str]:
        """What the result should say of how it was computed."""
        return self.cone.notes

    def reaches(self, layer: int, which: Cell) -> Bool[Tensor, " cell"]:
        """Whether each cell can reach a read position at all."""
        inside = self.cells.component in ("resid_pre", "k", "v")
        if self.position_axis in self.cells.axes:
            return self.cone.reaches(layer, self.cells.label(self.position_axis, which), inside=inside)
        positions = torch.tensor(self.cells.grid.labels[self.position_axis])
        return self.cone.reaches(layer, positions, inside=inside).any().expand(len(which))

    def sweep(self, layer: int, which: Cell) -> Iterator[Chunk]:
        """For the cells `which` of `layer`, in chunks: their numbers, and their logits."""
        component, axes = self.cells.component, set(self.cells.axes)
        if axes == {"position"} and component in RESIDUAL:
            return self._residual(layer, which)
        if axes in ({"head", "position"}, {"head", "destination"}):
            return self._keys_values(layer, which) if component in ("k", "v") else self._heads(layer, which)
        if axes == {"head", "destination", "source"}:
            return self._pattern_entries(layer, which)
        return self._everything(layer, which)

    # ---- one position of the residual stream ---------------------------------------------------------------------

    def _residual(self, layer: int, which: Cell) -> Iterator[Chunk]:
        component, cone = self.cells.component, self.cone
        new = self._stream_with(layer, self.cells.after(layer))
        for chunk, position in self._bands(layer, which):
            x = new[:, position].transpose(0, 1)
            if component == "resid_pre":
                yield chunk, cone.into_block(layer, x, position)
            elif component in ("resid_mid", "attn_out"):
                yield chunk, cone.after_attention(layer, x, position)
            else:
                yield chunk, cone.into_block(layer + 1, x, position)

    def _stream_with(self, layer: int, new: Tensor) -> Tensor:
        """The residual stream where it holds `new` in the component's place: after attention for attn_out, after the
        MLP for mlp_out."""
        if self.cells.component not in ("attn_out", "mlp_out"):
            return new
        return self._stream(layer) + (new - self.cells.before(layer))

    def _stream(self, layer: int) -> Float[Tensor, "example position model"]:
        """The unpatched residual stream after attention, or after the MLP where that is what is edited."""
        after = self.cone.cfg.attn_only or self.cells.component == "mlp_out"
        return self.cells.old[hook_name("resid_post" if after else "resid_mid", layer)]

    def _heads(self, layer: int, which: Cell) -> Iterator[Chunk]:
        """z, and what comes down to it: a query or a row of the pattern changes its own head's z at its own place."""
        cone, delta = self.cone, self._change_of_z(layer)
        W_O = rearrange(cone.block(layer).W_O, "(h d) m -> h d m", h=delta.shape[2])
        mid = self._stream(layer)
        for chunk, position in self._bands(layer, which):
            head = self.cells.label("head", chunk)
            written = einsum(delta[:, position, head], W_O[head], "e c d, c d m -> c e m")
            cone.done += delta.shape[0] * len(chunk) * W_O[0].numel()
            yield chunk, cone.after_attention(layer, mid[:, position].transpose(0, 1) + written, position)

    def _change_of_z(self, layer: int) -> Float[Tensor, "example position head d_head"]:
        """What every head's z at every position changes by, each as if it alone were edited."""
        if self.cells.component == "z":
            return self.cells.after(layer) - self.cells.before(layer)
        held = self.cone.held[layer]
        new = self._attention(layer, self.cells.after(layer)[None], torch.arange(self.cone.positions))[0]
        return new - rearrange(held.z, "e kv g p d -> e p (kv g) d")

    def _pattern_entries(self, layer: int, which: Cell) -> Iterator[Chunk]:
        """A rank-1 change of one row: (A_source - A_destination)[d, s] times what v[s] writes."""
        cone, cells = self.cone, self.cells
        change = cells.after(layer) - cells.before(layer)
        held, block = cone.held[layer], cone.block(layer)
        group = held.q.shape[2]
        W_O = rearrange(block.W_O, "(kv g d) m -> kv g d m", kv=held.v.shape[1], g=group)
        written = einsum(held.v, W_O, "e kv p d, kv g d m -> e kv g p m").flatten(1, 2)
        mid = self._stream(layer)
        closed = closed_form(cone, layer, mid, written)
        for chunk, position in self._bands(layer, which):
            head, source = cells.label("head", chunk), cells.label("source", chunk)
            size = change[:, head, position, source].T
            if closed is not None:
                yield chunk, closed(size, head, position, source)
            else:
                x = mid[:, position].transpose(0, 1) + size[..., None] * written[:, head, source].transpose(0, 1)
                yield chunk, cone.after_attention(layer, x, position)

    # ---- keys and values -----------------------------------------------------------------------------------------

    def _keys_values(self, layer: int, which: Cell) -> Iterator[Chunk]:
        cone, held = self.cone, self.cone.held[layer]
        new = self.cells.after(layer)
        if self.cells.component == "k":
            new = cone.rotated(cone.block(layer), new, torch.arange(new.shape[1]))
        W_O = rearrange(cone.block(layer).W_O, "(kv g d) m -> kv g d m", kv=held.v.shape[1], g=held.q.shape[2])
        mid = self._stream(layer)
        for chunk, position in self._bands(layer, which):
            start = int(position.min()) if cone.causal else 0
            out, head = cone.outputs(layer, start), self.cells.label("head", chunk)
            value = new[:, position, head].transpose(0, 1)
            if self.cells.component == "v":
                weight = held.pattern[:, head[:, None], :, out, position[:, None]]
                moved = value - held.v[:, head, position].transpose(0, 1)
                written = einsum(moved, W_O[head], "c e d, c g d m -> c e g m")
                change = einsum(weight, written, "c o e g, c e g m -> c e o m")
            else:
                change = einsum(
                    self._moved(layer, head, position, out, value), W_O[head], "c e g o d, c g d m -> c e o m"
                )
            cone.done += change.numel() * W_O[0, :, :, 0].numel()
            yield chunk, cone.range_after_attention(layer, mid[:, out] + change, start)

    def _moved(
        self, layer: int, head: Cell, position: Positions, out: Tensor, k: Float[Tensor, "cell example d_head"]
    ) -> Float[Tensor, "cell example group out d_head"]:
        """The change of z at `out`, in the heads that share it, when one key per cell is `k`."""
        cone, held = self.cone, self.cone.held[layer]
        scale = cone.block(layer).scale
        scores = held.scores[:, head][:, :, :, out, : cone.end].transpose(0, 1)
        q = held.q[:, head][:, :, :, out].transpose(0, 1)
        column = einsum(q, k, "c e g o d, c e d -> c e g o") * scale
        column = column.masked_fill_(held.blocked[out][:, position].T[:, None, None], -torch.inf)
        index = position.to(column.device).view(-1, 1, 1, 1, 1).expand(*column.shape, 1)
        pattern = held.softmax(scores.scatter(-1, index, column[..., None]))
        v = held.v[:, head, : cone.end].transpose(0, 1)
        z = (pattern.flatten(2, 3) @ v).unflatten(2, pattern.shape[2:4])
        cone.done += pattern.numel() * v.shape[-1] + q.numel()
        return z - held.z[:, head][:, :, :, out].transpose(0, 1)

    # ---- several positions or heads at once ------------------------------------------------------------------------

    def _everything(self, layer: int, which: Cell) -> Iterator[Chunk]:
        cone, cells = self.cone, self.cells
        component, mid = cells.component, self._stream(layer)
        several = cone.causal and self.position_axis not in cells.axes
        start = min(cells.grid.labels[self.position_axis]) if several else 0
        out = cone.outputs(layer, start)
        for chunk in which.split(cone.cells_at_once(-1, start)):
            new = torch.where(cells.edits(layer, chunk), cells.after(layer), cells.before(layer))
            if component in RESIDUAL:
                x = self._stream_with(layer, new)
                if component == "resid_pre":
                    yield chunk, cone.range_into_block(layer, x[:, :, start : cone.end], start)
                elif component in ("resid_mid", "attn_out"):
                    yield chunk, cone.range_after_attention(layer, x[:, :, out], start)
                else:
                    yield chunk, cone.range_into_block(layer + 1, x[:, :, start : cone.end], start)
                continue
            if component == "z":
                change = new[:, :, out] - cells.before(layer)[:, out]
            else:
                z = rearrange(cone.held[layer].z, "e kv g p d -> e p (kv g) d")
                change = self._attention(layer, new, out) - z[:, out]
            W_O = cone.block(layer).W_O
            cone.done += change.numel() * W_O.shape[1]
            yield chunk, cone.range_after_attention(layer, mid[:, out] + change.flatten(3) @ W_O, start)

    def _attention(
        self, layer: int, new: Float[Tensor, "cell example ..."], out: Int[Tensor, " out"]
    ) -> Float[Tensor, "cell example out head d_head"]:
        """z at the queries `out` when the whole of q, k, v or the pattern is `new`."""
        cone, held = self.cone, self.cone.held[layer]
        block, group = cone.block(layer), held.q.shape[2]
        v, pattern = held.v[:, :, None], held.pattern[:, :, :, out]
        if self.cells.component == "pattern":
            pattern = rearrange(new, "c e (kv g) q k -> c e kv g q k", g=group)[:, :, :, :, out]
        elif self.cells.component == "v":
            v = rearrange(new, "c e p kv d -> c e kv 1 p d")
        else:
            turned = cone.rotated(block, new, torch.arange(new.shape[2]))
            q, k = held.q[:, :, :, out], held.k[:, :, None]
            if self.cells.component == "q":
                q = rearrange(turned[:, :, out], "c e q (kv g) d -> c e kv g q d", g=group)
            else:
                k = rearrange(turned, "c e p kv d -> c e kv 1 p d")
            cone.done += new.numel() * held.k.shape[2]
            pattern = held.softmax((q @ k.mT * block.scale).masked_fill_(held.blocked[out], -torch.inf))
        cone.done += pattern.numel() * v.shape[-1]
        return rearrange(pattern @ v, "c e kv g q d -> c e q (kv g) d")

    # ---- which cells run together ------------------------------------------------------------------------------------

    def _bands(self, layer: int, which: Cell) -> Iterator[tuple[Cell, Positions]]:
        """Cells of neighbouring positions together: they share a suffix, at the price of rows that do not change.

        A band ends where these cost a tenth of the rows that do, and more than a pass of its own would.
        """
        cone = self.cone
        position = self.cells.label(self.position_axis, which)
        order = position.argsort(stable=True)
        which, position = which[order], position[order]
        above = layer if self.cells.component in ("resid_pre", "k", "v") else layer + 1
        if above >= cone.layers - 1 or not cone.causal:
            size = cone.cells_at_once(above, 0)
            yield from zip(which.split(size), position.split(size), strict=True)
            return
        free = PASS / (int(cone.cfg.d_model) ** 2 * cone.examples)
        places, first = position.tolist(), 0
        while first < len(places):
            suffix, last, needed = cone.end - places[first], first, 0
            most = min(first + cone.cells_at_once(above, places[first]), len(places))
            while last < most:
                needed += cone.end - places[last]
                if suffix * (last + 1 - first) > 1.1 * needed + free:
                    break
                last += 1
            yield which[first:last], position[first:last]
            first = last
