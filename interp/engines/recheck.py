"""A guard on the cone: random cells of a sweep are computed by the model itself, and must agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headlab.interp.engines.cells import Cells
from headlab.interp.engines.expand import one_cell
from headlab.interp.engines.support import Unsupported
from headlab.interp.model import HookedModel

TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-3}


class Recheck:
    """Compares the logits of a few random cells with runs of the model, as these cells pass.

    Args:
        model, inputs, read: The destination run and the positions whose logits are compared.
        cells: Of the sweep.
        layers: Of the sweep, in the order of the rows of `ran`.
        ran: Which cells the sweep runs; cells are drawn from these, by a generator of their own, the same each time.
        count: How many; at most one in a layer, so that each may find another block wrong.
    """

    def __init__(
        self,
        model: HookedModel,
        inputs: Tensor,
        read: Sequence[int],
        cells: Cells,
        layers: Sequence[int],
        ran: Bool[Tensor, "layer cell"],
        count: int,
    ) -> None:
        self.model = model
        self.inputs = inputs
        self.read = list(read)
        self.cells = cells
        self.layers = layers
        self.work = 0
        generator = torch.Generator().manual_seed(int(ran.sum()))
        rows = ran.any(1).nonzero().flatten()
        rows = rows[torch.randperm(len(rows), generator=generator)[:count]]
        self._chosen: dict[int, int] = {}
        for row in rows.tolist():
            which = ran[row].nonzero().flatten()
            self._chosen[row] = int(which[torch.randint(len(which), (1,), generator=generator)])

    def compare(
        self,
        row: Int[Tensor, " cell"],
        which: Int[Tensor, " cell"],
        logits: Float[Tensor, "cell example read vocabulary"],
    ) -> None:
        """Raise Unsupported where a chosen cell is among these and the model's logits are others.

        Args:
            row: The row of `layers` of each cell.
            which: The number of each cell in its layer.
            logits: At the read positions.
        """
        for number, cell in self._chosen.items():
            place = ((row == number) & (which == cell)).nonzero().flatten()
            if not len(place):
                continue
            found = logits[int(place[0])]
            layer = self.layers[number]
            expected = one_cell(self.model, self.inputs, self.read, self.cells, layer, cell)
            self.work += self._multiply_adds()
            off = float((found - expected).abs().max()) / max(1.0, float(expected.abs().max()))
            if not off <= TOLERANCE[expected.dtype]:
                raise Unsupported(
                    f"this (a cell of {self.cells.component} in layer {layer}, run again, is {off:.1e} away)"
                )

    def _multiply_adds(self) -> int:
        """Of one run of the model: every weight once per position, scores and values once per pair of positions."""
        model: Any = self.model
        cfg = model.cfg
        held = self.cells.before(self.layers[0])
        examples, positions = held.shape[0], held.shape[-2 if self.cells.component == "pattern" else 1]
        weights = sum(weight.numel() for name, weight in model.blocks.named_parameters() if "W_" in name)
        attention = 2 * int(cfg.n_layers) * int(cfg.n_heads) * int(cfg.d_head) * positions
        unembedding = len(self.read) * int(cfg.d_model) * int(cfg.d_vocab_out)
        return examples * (positions * (weights + attention) + unembedding)
