"""The exact effect of a change in the residual stream, computed on what can change and on nothing else.

A change at one position above layer l is a cone: new queries, keys and values at that position in block l + 1, the
positions that can attend to it in later blocks, and in the last block the positions that the metric reads. Everything
outside the cone is the unpatched run, which is kept. The arithmetic is the block's own: residual + attention of ln1,
then + MLP of ln2, on the model's weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headlab.interp.engines.block import Block, Held, norm_of, normalised
from headlab.interp.engines.support import Unsupported, plain_unembed, require_supported
from headlab.interp.model import HookedModel

Residual = Float[Tensor, "cell example out model"]
Logits = Float[Tensor, "cell example read vocabulary"]
Positions = Int[Tensor, " cell"]


class Cone:
    """Patched logits at the read positions, from a change in the residual stream or inside a block's attention.

    Made for one destination run and one set of read positions; see `into_block`, `after_attention` and `outputs`.
    """

    name = "cone"

    def __init__(
        self,
        model: HookedModel,
        read: Sequence[int],
        logits: Float[Tensor, "example read vocabulary"],
        held: Mapping[str, Tensor],
        *,
        first: int,
        budget: int = 8 << 20,
    ) -> None:
        """Take over the unpatched run, and check that its logits follow from this arithmetic.

        Args:
            model: A HookedTransformer whose blocks this arithmetic is true for.
            read: The positions whose logits are wanted, in the order in which they are wanted.
            logits: The unpatched run's, at these positions.
            held: The unpatched run's activations `hooks_needed(model, range(first, layers))`, and the last block's
                resid_post.
            first: The lowest block that will be computed again (the number of layers where none is).
            budget: Bytes that the largest intermediate may take.

        Raises:
            Unsupported: Where the model is not such a model, or the unpatched logits come out as others.
        """
        require_supported(model)
        self.model: Any = model
        self.cfg = model.cfg
        self.layers = int(model.cfg.n_layers)
        self.first = first
        self.budget = budget
        self.notes: list[str] = []
        self.done = 0
        self.final: Float[Tensor, "example position model"] = held[f"blocks.{self.layers - 1}.hook_resid_post"]
        self.examples, self.positions, _ = self.final.shape
        self.vocabulary = logits.shape[-1]
        self.read = torch.tensor(list(read), dtype=torch.long)
        self._ascending = self.read.sort().values  # blocks work on ascending positions, logits are given as asked for
        self.baseline = logits
        self.held = {layer: self._held(layer, held) for layer in range(first, self.layers)}
        self.causal = all(not (~layer.blocked).triu(1).any() for layer in self.held.values()) and (
            bool(self.held) or self.cfg.attention_dir == "causal"
        )
        self.end = int(self.read.max()) + 1 if self.causal else self.positions
        self._row_of_read = torch.full((self.positions,), -1)
        self._row_of_read[self.read] = torch.arange(len(self.read))
        self._blocks: dict[int, Block] = {}
        self._plain_unembed = plain_unembed(model)
        self.final_norm = norm_of(getattr(model, "ln_final", None))
        self._check()

    # ---- the unpatched run -------------------------------------------------------------------------------------

    def _held(self, layer: int, held: Mapping[str, Tensor]) -> Held:
        rotary = self.cfg.positional_embedding_type == "rotary"
        stem = f"blocks.{layer}."
        q, k = (held[f"{stem}attn.hook_{'rot_' if rotary else ''}{name}"] for name in "qk")
        v, scores = held[f"{stem}attn.hook_v"], held[f"{stem}attn.hook_attn_scores"]
        group = q.shape[2] // k.shape[2]
        kept = Held(
            held[f"{stem}hook_resid_pre"],
            rearrange(q, "e p (kv g) d -> e kv g p d", g=group).contiguous(),
            rearrange(k, "e p kv d -> e kv p d").contiguous(),
            rearrange(v, "e p kv d -> e kv p d").contiguous(),
            rearrange(scores, "e (kv g) q k -> e kv g q k", g=group),
        )
        if not ((scores == -torch.inf) == kept.blocked).all():
            raise Unsupported("a mask that differs between examples or heads")
        return kept

    def block(self, layer: int) -> Block:
        """The weights of block `layer`."""
        if layer not in self._blocks:
            self._blocks[layer] = Block(self.model.blocks[layer], self.cfg)
        return self._blocks[layer]

    def _check(self) -> None:
        few = min(self.examples, 2)
        if self.first < self.layers:
            x = self.held[self.first].resid_pre[None, :few]
            found = self._range(self.first, x[:, :, : self.end], 0, few)[0]
        else:
            found = self._unembed(self.final[:few, self.read])
        expected = self.baseline[:few]
        if not self._plain_unembed:
            # An unembedding of its own might mix positions: each read position alone must give the same.
            alone = [self._unembed(self.final[:few, position, None]) for position in self.read.tolist()]
            found, expected = torch.cat([found, *alone], 1), torch.cat([expected, expected], 1)
        tolerance = 1e-9 if expected.dtype == torch.float64 else 1e-4
        off = float((found - expected).abs().max()) / max(1.0, float(expected.abs().max()))
        if not off <= tolerance:
            raise Unsupported(f"this (its own unpatched logits are {off:.1e} away from the model's)")
        self.done = 0

    # ---- what a caller needs to know -----------------------------------------------------------------------------

    def outputs(self, layer: int, start: int) -> Int[Tensor, " out"]:
        """The positions, ascending, whose residual after block `layer` must be computed when it changes from `start`
        on."""
        if layer == self.layers - 1:
            return self._ascending[self._ascending >= start] if self.causal else self._ascending
        return torch.arange(start if self.causal else 0, self.end)

    def reaches(self, layer: int, position: Positions, *, inside: bool) -> Bool[Tensor, " cell"]:
        """Whether a change at `position` can reach a read position: of the output of block `layer` itself, or
        (`inside`) of what its attention reads there."""
        if layer == self.layers - 1 and not inside:
            return self._row_of_read[position] >= 0
        return position < self.end

    def cells_at_once(self, layer: int, start: int) -> int:
        """How many cells that change positions from `start` on fit into the budget, above block `layer`."""
        out = 1 if layer >= self.layers - 1 else max(1, self.end - start)
        heads = int(self.cfg.n_heads)
        width = max(3 * int(self.cfg.d_model), heads * self.end, 0 if self.cfg.attn_only else int(self.cfg.d_mlp))
        row = max(out * width, len(self.read) * self.vocabulary)
        return max(1, int(self.budget / (row * self.examples * self.final.element_size())))

    # ---- ways in -------------------------------------------------------------------------------------------------

    def into_block(self, layer: int, x: Float[Tensor, "cell example model"], position: Positions) -> Logits:
        """Logits when the residual before block `layer` is `x` at one `position` per cell; `layer` may be the number
        of layers: the residual after the last block, at a read position."""
        if layer == self.layers:
            return self.placed(self._unembed(x[:, :, None])[:, :, 0], position)
        start = int(position.min()) if self.causal else 0
        out = self.outputs(layer, start)
        return self._onward(layer, self._single(layer, x, position, out), out)

    def after_attention(self, layer: int, x: Float[Tensor, "cell example model"], position: Positions) -> Logits:
        """Logits when the residual after the attention of block `layer` (resid_mid) is `x` at one position per cell."""
        return self.into_block(layer + 1, self._mlp(layer, x), position)

    def range_after_attention(self, layer: int, x: Residual, start: int) -> Logits:
        """Logits when the residual after the attention of block `layer` is `x` at `outputs(layer, start)`."""
        return self._onward(layer, self._mlp(layer, x), self.outputs(layer, start))

    def range_into_block(self, layer: int, x: Residual, start: int) -> Logits:
        """Logits when the residual before block `layer` is `x` at `start` and every position from there to `end`;
        where attention is not causal, `start` is 0."""
        if layer == self.layers:
            return self._onward(
                layer - 1, x[:, :, self.outputs(layer - 1, start) - start], self.outputs(layer - 1, start)
            )
        return self._range(layer, x, start, x.shape[1])

    # ---- the cone ------------------------------------------------------------------------------------------------

    def _onward(self, layer: int, x: Residual, out: Int[Tensor, " out"]) -> Logits:
        """From the residual after block `layer` at `out` to the logits."""
        if layer < self.layers - 1:
            return self._range(layer + 1, x, int(out[0]), x.shape[1])
        new, row = self._unembed(x), self._row_of_read[out]
        if torch.equal(row, torch.arange(len(self.read))):
            return new
        logits = self.baseline[: x.shape[1]].expand(x.shape[0], -1, -1, -1).clone()
        logits[:, :, row] = new
        return logits

    def _range(self, layer: int, x: Residual, start: int, examples: int) -> Logits:
        """From the residual before block `layer` at `start` and every position after it to the logits."""
        block, held = self.block(layer), self.held[layer]
        out = self.outputs(layer, start)
        local = out - start
        cells, _, size, _ = x.shape
        whole = len(out) == size
        reads = x if whole else x[:, :, local]
        normed = normalised(block.norm1, x)
        k, v = self._keys_values(block, normed, torch.arange(start, start + size))
        q = self._queries(block, normed if whole else normed[:, :, local], out)
        q = rearrange(q, "c e o kv g d -> e kv c (g o) d")
        k, v = rearrange(k, "c e s kv d -> e kv c d s"), rearrange(v, "c e s kv d -> e kv c s d")
        group = held.q.shape[2]
        scores = self._times(q, k)
        if start:
            before = self._times(q.flatten(2, 3), held.k[:examples, :, :start].mT)
            scores = torch.cat([before.unflatten(2, (cells, -1)), scores], -1)
        scores = scores.unflatten(3, (group, len(out))).mul_(block.scale)
        pattern = held.softmax(scores.masked_fill_(held.blocked[out, : start + size], -torch.inf)).flatten(3, 4)
        z = self._times(pattern[..., start:], v)
        if start:
            z += self._times(pattern[..., :start].flatten(2, 3), held.v[:examples, :, :start]).unflatten(2, (cells, -1))
        z = rearrange(z, "e kv c (g o) d -> c e o (kv g d)", g=group)
        mid = reads + torch.addmm(block.b_O, z.flatten(0, 2), block.W_O).view_as(reads)
        self.done += z.numel() * block.W_O.shape[1]
        return self._onward(layer, self._mlp(layer, mid), out)

    def _single(
        self, layer: int, x: Float[Tensor, "cell example model"], position: Positions, out: Int[Tensor, " out"]
    ) -> Residual:
        """The residual after block `layer` at `out` when before it one position per cell is `x`."""
        block, held = self.block(layer), self.held[layer]
        cells = x.shape[0]
        row = torch.full((self.positions,), -1)
        row[out] = torch.arange(len(out))
        row = row[position]
        own = (row >= 0).nonzero().flatten()
        normed = normalised(block.norm1, x)
        k, v = self._keys_values(block, normed[:, :, None], position[:, None])
        k, v = rearrange(k, "c e 1 kv d -> e kv c d"), rearrange(v, "c e 1 kv d -> e kv c d")
        scores = self._column(held, k, position, out, block.scale)
        if len(own):
            q = self._queries(block, normed[own, :, None], position[own, None])
            q = rearrange(q, "c e 1 kv g d -> e kv c g d")
            line = self._times(q.flatten(2, 3), held.k[:, :, : self.end].mT).unflatten(2, q.shape[2:4])
            line.scatter_(-1, _along(position[own], line), (q * k[:, :, own, None]).sum(-1, keepdim=True))
            line = line.mul_(block.scale).masked_fill_(held.blocked[position[own], None, : self.end], -torch.inf)
            scores[:, :, own, :, row[own]] = rearrange(line, "e kv c g k -> c e kv g k")
        z = self._attend(held, held.softmax(scores), v, position)
        z = rearrange(z, "e kv c g o d -> c e o (kv g d)")
        mid = torch.addmm(block.b_O, z.flatten(0, 2), block.W_O).view(cells, self.examples, len(out), -1)
        self.done += z.numel() * block.W_O.shape[1]
        mid += held.resid_pre[:, out]
        if len(own):
            mid[own, :, row[own]] += x[own] - held.resid_pre[:, position[own]].transpose(0, 1)
        return self._mlp(layer, mid)

    def _column(
        self, held: Held, k: Float[Tensor, "example kv cell d_head"], position: Positions, out: Tensor, scale: float
    ) -> Float[Tensor, "example kv cell group out key"]:
        """The scores of the queries at `out` when one key per cell is `k`."""
        cells, group = k.shape[2], held.q.shape[2]
        scores = held.scores[:, :, None, :, out, : self.end].repeat(1, 1, cells, 1, 1, 1)
        column = self._times(k, held.q[:, :, :, out].flatten(2, 3).mT).unflatten(-1, (group, len(out)))
        column = column.mul_(scale).masked_fill_(held.blocked[out][:, position].T[:, None], -torch.inf)
        return scores.scatter_(-1, _along(position, scores), column[..., None])

    def _attend(
        self,
        held: Held,
        pattern: Float[Tensor, "example kv cell group out key"],
        v: Float[Tensor, "example kv cell d_head"],
        position: Positions,
    ) -> Float[Tensor, "example kv cell group out d_head"]:
        """What the values sum to under `pattern` when one value per cell is `v`."""
        z = self._times(pattern.flatten(2, 4), held.v[:, :, : self.end]).view(*pattern.shape[:-1], -1)
        weight = pattern.gather(-1, _along(position, pattern))
        return z.addcmul_(weight, (v - held.v[:, :, position])[:, :, :, None, None])

    # ---- parts of a block ------------------------------------------------------------------------------------------

    def _times(self, a: Tensor, b: Tensor) -> Tensor:
        self.done += a.numel() * b.shape[-1]
        return a @ b

    def _project(self, x: Tensor, W: Tensor, b: Tensor) -> Tensor:
        self.done += x.numel() * W.shape[1]
        return torch.addmm(b, x.flatten(0, -2), W).view(*x.shape[:-1], -1, int(self.cfg.d_head))

    def _keys_values(
        self, block: Block, x: Residual, position: Int[Tensor, "*cell out"]
    ) -> tuple[Float[Tensor, "cell example out kv d_head"], Float[Tensor, "cell example out kv d_head"]]:
        k, v = self._project(x, block.W_KV, block.b_KV).chunk(2, dim=-2)
        return self.rotated(block, k, position), v

    def _queries(
        self, block: Block, x: Residual, position: Int[Tensor, "*cell out"]
    ) -> Float[Tensor, "cell example out kv group d_head"]:
        q = self.rotated(block, self._project(x, block.W_Q, block.b_Q), position)
        return q.unflatten(3, (block.kv, -1))

    def rotated(
        self, block: Block, x: Float[Tensor, "... out head d_head"], position: Int[Tensor, "*cell out"]
    ) -> Float[Tensor, "... out head d_head"]:
        """Queries or keys as their position turns them, where the model has rotary positions."""
        if not block.rotary:
            return x
        size = int(self.cfg.rotary_dim)
        cos, sin = (table[position].unsqueeze(-2) for table in (block.attention.rotary_cos, block.attention.rotary_sin))
        if position.ndim == 2:
            cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        turned = x[..., :size]
        turned = turned * cos + block.attention.rotate_every_two(turned) * sin
        return torch.cat([turned, x[..., size:]], -1)

    def _mlp(self, layer: int, x: Float[Tensor, "cell example *out model"]) -> Float[Tensor, "cell example *out model"]:
        block = self.block(layer)
        if block.mlp is None:
            return x
        self.done += x.numel() // x.shape[-1] * block.mlp_size
        return x + block.mlp(normalised(block.norm2, x).reshape(-1, 1, x.shape[-1])).view_as(x)

    def _unembed(self, x: Float[Tensor, "*cell example out model"]) -> Float[Tensor, "*cell example out vocabulary"]:
        flat = x.flatten(0, -3)
        self.done += x.numel() * self.vocabulary
        flat = normalised(self.final_norm, flat)
        if self._plain_unembed:
            W_U, b_U = self.model.unembed.W_U.detach(), self.model.unembed.b_U.detach()
            return torch.addmm(b_U, flat.flatten(0, 1), W_U).view(*x.shape[:-1], -1)
        return self.model.unembed(flat).unflatten(0, x.shape[:-2])

    def read_row(self, position: Positions) -> Positions:
        """Which read position each position is; -1 where it is not read."""
        return self._row_of_read[position]

    def placed(self, new: Float[Tensor, "cell example vocabulary"], position: Positions) -> Logits:
        """The unpatched logits with those at one read position per cell replaced by `new`."""
        if len(self.read) == 1:
            return new[:, :, None]
        logits = self.baseline.repeat(new.shape[0], 1, 1, 1)
        logits[torch.arange(new.shape[0]), :, self._row_of_read[position]] = new
        return logits


def _along(position: Positions, like: Tensor) -> Int[Tensor, ...]:
    """`position` of each cell as an index into the last axis of `like` [example, kv, cell, ...]."""
    index = position.to(like.device).view(1, 1, -1, *[1] * (like.ndim - 3))
    return index.expand(*like.shape[:-1], 1)
