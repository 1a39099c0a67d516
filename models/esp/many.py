"""Many seeds of one-layer models trained together, by the table of their few distinct rows.

A sequence that is read at one fixed token has few distinct (position, token) pairs: 2n + 3 of them for (u, v, i, #),
whatever the number of arcs. Keys and values are computed for these rows only, the query for the read row only, and all
samples mix the same rows: with E_r = exp(score of row r), a sample's head output is sum_r E_r v_r / sum_r E_r over its
own rows, so one product of the constant 0/1 matrix [sample, row] with E * (v, 1) serves every sample, head and seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from headlab.interp.errors import RequestError
from headlab.models.hooked import Architecture, HookedTransformer, build, initialise
from headlab.models.losses import cross_entropy, loss_function
from headlab.models.recipe import Recipe

NORMS = (None, "LNPre", "LN")
WIDEST_SCORES = 60.0  # beyond it exp(score - largest) of a whole sample could underflow in float32
RIGHT = 1e-4  # logits: a margin below it counts as an error, so that rounding elsewhere cannot undo a right sample


class ManySeeds:
    """One architecture at many seeds, as a Learner whose leaves have a leading seed axis.

    inputs: tokens, read at the last position, which holds the same token in every sample. targets: the right token of
    each sample. weights: a weight per sample in the training loss (all 1 where None); measures count every sample.
    Leaves carry HookedTransformer's own names, and `export` copies one seed's into a HookedTransformer of equal logits.
    The keys' bias moves all scores of a query alike: it is not a leaf and stays 0.
    Raises ValueError for an architecture that this shortcut does not cover.
    """

    stacked = True

    def __init__(
        self,
        architecture: Architecture,
        recipe: Recipe,
        inputs: Int[Tensor, "sample position"],
        targets: Int[Tensor, " sample"],
        *,
        seeds: Sequence[int],
        weights: Float[Tensor, " sample"] | None = None,
        device: str = "cpu",
        dtype: torch.dtype | str = torch.float32,
    ) -> None:
        if recipe.init_scale is None:
            raise RequestError("the recipe gives no init_scale: say with what standard deviation the weights start")
        self.seeds = tuple(seeds)
        self.architecture = architecture
        self._built = {"device": device, "dtype": dtype}
        model = build(architecture, **self._built)
        self.cfg: Any = model.cfg
        self._tied = "unembed.W_U" not in dict(model.named_parameters())
        self._refuse_uncovered()
        self._scale = float(model.blocks[0].attn.attn_scale)  # 1 where the configuration switches scaling off
        starts: dict[str, list[Tensor]] = {name: [] for name, _ in model.named_parameters()}
        for seed in self.seeds:
            initialise(model, scale=recipe.init_scale, seed=seed)
            for name, parameter in model.named_parameters():
                starts[name].append(parameter.detach().clone())
        self._weights: dict[str, Tensor] = {}  # name -> [seed, ...], trainable or not
        for name, parameter in model.named_parameters():
            trains = parameter.requires_grad and not name.endswith("attn.b_K")
            self._weights[name] = torch.stack(starts[name]).requires_grad_(trains)
        self._loss = loss_function(recipe.loss, recipe.q)
        self._table(inputs.to(device), targets.to(device))
        share = (torch.ones(len(targets)) if weights is None else weights).to(self._weights["embed.W_E"])
        self._share = share / share.sum()
        self._logits = torch.empty(0)

    def _refuse_uncovered(self) -> None:
        cfg = self.cfg
        if cfg.n_layers != 1:
            raise RequestError(f"many seeds train together on one layer only, not on {cfg.n_layers}")
        if cfg.normalization_type not in NORMS:
            raise RequestError(f"many seeds train together with LNPre, LN or no norm, not {cfg.normalization_type}")
        if not cfg.attn_only and (cfg.act_fn != "relu" or cfg.gated_mlp):
            raise RequestError(f"many seeds train together with a ReLU network or none, not {cfg.act_fn}")
        if set(self.architecture.parts) - {"unembed"} or cfg.positional_embedding_type != "standard":
            raise RequestError("many seeds train together with the standard embeddings and attention only")

    def _table(self, inputs: Int[Tensor, "sample position"], targets: Int[Tensor, " sample"]) -> None:
        length = inputs.shape[1]
        if not bool((inputs[:, -1] == inputs[0, -1]).all()):
            raise RequestError("many seeds train together where the token that is read is the same in every sample")
        pairs = inputs + self.cfg.d_vocab * torch.arange(length, device=inputs.device)
        rows, index = pairs.unique(return_inverse=True)  # ascending, so the read row is the last
        self._row_token, self._row_position = rows % self.cfg.d_vocab, rows // self.cfg.d_vocab
        self.visible: Bool[Tensor, "sample row"] = functional.one_hot(index, len(rows)).sum(1) > 0
        self._targets = targets

    def parameters(self) -> dict[str, Tensor]:
        return {name: leaf for name, leaf in self._weights.items() if leaf.requires_grad}

    def losses(self, step: int) -> Float[Tensor, " seed"]:
        logits = self.logits()
        self._logits = logits.detach()
        return self._loss(logits, self._targets) @ self._share

    def measure(self) -> dict[str, Float[Tensor, " seed"]]:
        """errors (integers), accuracy, cross_entropy (nats) and min_margin, over all samples, at the last `losses`."""
        logits = self._logits
        index = self._targets.expand(logits.shape[:-1]).unsqueeze(-1)
        others = logits.scatter(-1, index, -torch.inf).amax(-1)
        margin = logits.gather(-1, index).squeeze(-1) - others  # [seed, sample]
        errors = (margin <= RIGHT).sum(-1).to(margin)
        return {
            "errors": errors,
            "accuracy": 1 - errors / margin.shape[-1],
            "cross_entropy": cross_entropy(logits, self._targets).mean(-1),
            "min_margin": margin.amin(-1),
        }

    def logits(self) -> Float[Tensor, "seed sample vocabulary"]:
        """The logits at the read position."""
        w, layer = self._weights, "blocks.0.attn."
        rows = w["embed.W_E"].index_select(1, self._row_token)  # [seed, row, model]
        rows = rows + w["pos_embed.W_pos"].index_select(1, self._row_position)
        normal = self._norm(rows, "blocks.0.ln1")
        query = torch.einsum("kd,khde->khe", normal[:, -1], w[layer + "W_Q"]) + w[layer + "b_Q"]
        asked = torch.einsum("khe,khde->khd", query, w[layer + "W_K"]) / self._scale
        scores = torch.einsum("krd,khd->rkh", normal, asked)  # [row, seed, head]
        values = torch.einsum("krd,khde->rkhe", normal, w[layer + "W_V"]) + w[layer + "b_V"]
        mixed = self._mix(scores, values)  # [sample, seed, head, d_head]
        joined = mixed.transpose(0, 1).flatten(2)  # [seed, sample, head * d_head]
        out = torch.baddbmm(w[layer + "b_O"][:, None], joined, w[layer + "W_O"].flatten(1, 2))
        residual = rows[:, -1:] + out
        if not self.cfg.attn_only:
            residual = residual + self._mlp(self._norm(residual, "blocks.0.ln2"))
        final = self._norm(residual, "ln_final")
        unembed = w["embed.W_E"].transpose(1, 2) if self._tied else w["unembed.W_U"]
        return torch.baddbmm(w["unembed.b_U"][:, None], final, unembed)

    def _mix(
        self, scores: Float[Tensor, "row seed head"], values: Float[Tensor, "row seed head d_head"]
    ) -> Float[Tensor, "sample seed head d_head"]:
        largest = scores.detach().amax(0)
        if float((largest - scores.detach().amin(0)).max()) > WIDEST_SCORES:
            hidden = torch.where(self.visible, 0.0, -torch.inf).to(scores)
            pattern = (hidden[:, :, None, None] + scores).softmax(1)
            return torch.einsum("srkh,rkhe->skhe", pattern, values)
        strength = (scores - largest).exp().unsqueeze(-1)
        table = torch.cat([strength * values, strength], -1)  # [row, seed, head, d_head + 1]
        sums = (self.visible.to(table) @ table.flatten(1)).view(-1, *table.shape[1:])
        return sums[..., :-1] / sums[..., -1:]

    def _norm(self, residual: Float[Tensor, "seed row model"], name: str) -> Float[Tensor, "seed row model"]:
        if self.cfg.normalization_type is None:
            return residual
        normal = functional.layer_norm(residual, residual.shape[-1:], eps=self.cfg.eps)
        if self.cfg.normalization_type == "LN":
            normal = normal * self._weights[name + ".w"][:, None] + self._weights[name + ".b"][:, None]
        return normal

    def _mlp(self, normal: Float[Tensor, "seed sample model"]) -> Float[Tensor, "seed sample model"]:
        w, layer = self._weights, "blocks.0.mlp."
        hidden = torch.baddbmm(w[layer + "b_in"][:, None], normal, w[layer + "W_in"]).relu()
        return torch.baddbmm(w[layer + "b_out"][:, None], hidden, w[layer + "W_out"])

    def state(self) -> dict[str, Tensor]:
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Nothing to load: every step takes all samples."""

    def export(self, seed_index: int, weights: Mapping[str, Tensor] | None = None) -> HookedTransformer:
        """One seed as a HookedTransformer; `weights` are stacked leaves of a run (`best`, `weights[step]`)."""
        model = build(self.architecture, **self._built)
        stack = {**self._weights, **(weights or {})}
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(stack[name][seed_index])
        return model
