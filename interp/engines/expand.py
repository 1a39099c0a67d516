"""The reference engine: the model itself, with the batch repeated and one cell written in each repetition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headlab.interp.engines.cells import Cell, Cells
from headlab.interp.engines.support import is_hooked_transformer, plain_unembed, reader_hooks
from headlab.interp.errors import RequestError
from headlab.interp.model import Hook, HookedModel, Mask, activations, run
from headlab.interp.sites import hook_name

Pair = tuple[str, Hook]


class Expand:
    """Patched logits by running the model, for any model that runs with hooks.

    Where the model lets it, the batch is repeated at the input of the patched block only (with one example at the site
    itself) and the read positions alone are unembedded; a trial run decides, and `notes` says what was decided. A
    reader's own hooks may count on the batch that they know, so a model that carries some runs one cell at a time.
    """

    name = "expand"
    work: int | None = None

    def __init__(
        self,
        model: HookedModel,
        inputs: Tensor,
        read: Sequence[int],
        logits: Float[Tensor, "example read vocabulary"],
        cells: Cells,
        *,
        attention_mask: Mask | None = None,
        budget: int = 16 << 20,
    ) -> None:
        """Try what the model allows.

        Args:
            model: The model.
            inputs: Of the destination run.
            read: The positions whose logits are wanted.
            logits: The model's own on `inputs`, at these positions.
            cells: What is edited.
            attention_mask: What the model is called with beside its inputs.
            budget: Bytes that the largest activation of one run may take.
        """
        self.model = model
        self.mask = attention_mask
        self.inputs = inputs
        self.read = list(read)
        self.cells = cells
        self.baseline = logits
        self.budget = budget
        self.notes: list[str] = []
        self._last = int(model.cfg.n_layers) - 1
        self._alone = bool(reader_hooks(model))
        self._inside = not self._alone and is_hooked_transformer(model, subclass=True) and self._trial()
        self._stream: dict[int, Tensor] = {}
        if not is_hooked_transformer(model):
            self._require_edits_act()
        if self._alone:
            self.notes.append("the model carries hooks of its own: each cell is run by itself")

    def _trial(self) -> bool:
        site = hook_name("resid_pre" if len(self.baseline) > 1 else "z", 0)
        hooks = [(site, partial(_repeat, count=2)), (hook_name("resid_post", self._last), self._sliced)]
        try:
            logits = run(self.model, self.inputs, hooks, attention_mask=self.mask)
        except Exception:
            return False
        twice = torch.cat([self.baseline, self.baseline])
        if logits.shape != twice.shape:
            return False
        tolerance = 1e-9 if twice.dtype == torch.float64 else 1e-3
        return bool(torch.allclose(logits, twice, rtol=tolerance, atol=tolerance * float(twice.abs().max() + 1e-30)))

    def _require_edits_act(self) -> None:
        """Other models than HookedTransformer may take an edit and not act on it, or act on it in part."""
        cells, layers = self.cells, self.cells.grid.labels["layer"]
        whose = type(self.model).__name__
        if cells.component == "pattern":
            erased = [[(hook_name(name, layers[0]), _erase)] for name in ("pattern", "z")]
            moved = [self._at_read(run(self.model, self.inputs, edit, attention_mask=self.mask)) for edit in erased]
            if torch.equal(moved[0], self.baseline) and not torch.equal(moved[1], self.baseline):
                raise RequestError(f"edits of pattern do nothing on this {whose}: patch z, q, k or v instead")
        if cells.component == "resid_mid":
            names = {name: [hook_name(name, layer) for layer in layers] for name in ("resid_pre", "attn_out")}
            both = [*names["resid_pre"], *names["attn_out"]]
            _, held = activations(self.model, self.inputs, both, attention_mask=self.mask)
            for layer, before, attention in zip(layers, *names.values(), strict=True):
                mid = cells.before(layer)
                if not torch.allclose(
                    held[before] + held[attention], mid, rtol=1e-4, atol=1e-4 * float(mid.abs().max())
                ):
                    raise RequestError(f"resid_mid of this {whose} is not its input plus its attention: patch attn_out")
                self._stream[layer] = held[before]

    def _at_read(self, logits: Tensor) -> Tensor:
        return logits[:, self.read]

    def _sliced(self, residual: Tensor, hook: Any) -> Tensor:
        return residual[:, self.read]

    def reaches(self, layer: int, which: Cell) -> Bool[Tensor, " cell"]:
        """Whether each cell can reach a read position: of a model that is only run, nobody knows that it cannot."""
        return torch.ones(len(which), dtype=torch.bool)

    def sweep(self, layer: int, which: Cell) -> Iterator[tuple[Cell, Tensor]]:
        """For the cells `which` of `layer`, in chunks: their numbers, and their logits
        [cell, example, read, vocabulary]."""
        for chunk in which.split(self._chunk(layer)):
            yield chunk, self._run(layer, chunk)

    def _chunk(self, layer: int) -> int:
        if self._alone:
            return 1
        examples, reads, vocabulary = self.baseline.shape
        cfg, held = self.model.cfg, self.cells.before(layer)
        positions = held.shape[-2 if self.cells.component == "pattern" else 1]
        row = positions * max(
            (reads / positions if self._inside else 1) * vocabulary,
            int(cfg.n_heads) * positions,
            4 * int(cfg.d_model),
        )
        return max(1, int(self.budget / (row * examples * held.element_size())))

    def _run(self, layer: int, chunk: Cell) -> Float[Tensor, "cell example read vocabulary"]:
        cells, name = self.cells, hook_name(self.cells.component, layer)
        mask, new = cells.edits(layer, chunk), cells.after(layer)
        if layer in self._stream:
            # A bridge hands an edit of resid_mid to the MLP alone; what attention writes reaches every reader.
            name, new = hook_name("attn_out", layer), new - self._stream[layer]
        examples = new.shape[0]

        edits: list[Pair] = [(name, partial(_write, new=new, mask=mask))]
        inputs, mask_of_run = self.inputs, self.mask
        if self._inside and examples > 1:
            edits.insert(0, (hook_name("resid_pre", layer), partial(_repeat, count=len(chunk))))
        elif not self._inside and len(chunk) > 1:
            inputs = inputs.repeat(len(chunk), *[1] * (inputs.ndim - 1))
            mask_of_run = None if mask_of_run is None else mask_of_run.repeat(len(chunk), 1)
        if self._inside:
            edits.append((hook_name("resid_post", self._last), self._sliced))
        logits = run(self.model, inputs, edits, attention_mask=mask_of_run)
        if not self._inside:
            logits = self._at_read(logits)
        return logits.unflatten(0, (len(chunk), examples))


def one_cell(
    model: HookedModel,
    inputs: Tensor,
    read: Sequence[int],
    cells: Cells,
    layer: int,
    cell: int,
) -> Float[Tensor, "example read vocabulary"]:
    """The logits at `read` with one cell written: a plain run of a model that is nothing but a HookedTransformer."""
    mask = cells.edits(layer, torch.tensor([cell]))
    hooks: list[Pair] = [(hook_name(cells.component, layer), partial(_write, new=cells.after(layer), mask=mask))]
    if plain_unembed(model):
        hooks.append((hook_name("resid_post", int(model.cfg.n_layers) - 1), lambda residual, hook: residual[:, read]))
        return run(model, inputs, hooks)
    return run(model, inputs, hooks)[:, read]


def _repeat(residual: Tensor, hook: Any, *, count: int) -> Tensor:
    return residual.repeat(count, *[1] * (residual.ndim - 1))


def _write(activation: Tensor, hook: Any, *, new: Tensor, mask: Tensor) -> Tensor:
    examples = new.shape[0]
    live = activation.unflatten(0, (-1, examples)) if activation.shape[0] != examples else activation[None]
    return torch.where(mask, new, live).flatten(0, 1)


def _erase(activation: Tensor, hook: Any) -> Tensor:
    return torch.zeros_like(activation)
