"""Many seeds of one retrieval model trained together, the query of the CLS folded into the keys.

Only the CLS is read, and its query is the same in every example. A head's score of a token is then one product with
that token's features, u = W_E W_K W_Q^T c0 / sqrt(n), and since attention sums to 1 the features can be averaged first
and sent through encoder, values and output afterwards: what is computed per token is one number a head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from headlab.interp.errors import RequestError
from headlab.models.hooked import Architecture, HookedTransformer, build
from headlab.models.learner import Measures
from headlab.models.retrieval.architecture import start
from headlab.models.retrieval.family import Family

CHUNK = 1 << 22  # features of one validation pass
GROUP = 1 << 19  # features of the seeds that attend together: more of them fall out of the cache
GROWTH = ((0.35, 8), (0.5, 32))  # up to which share of the steps, so many tokens
ATTENTION = "blocks.0.attn."
APART = 500_000_000  # added to the data's seed, so that an evaluation with that seed draws other sequences


@dataclass(frozen=True)
class RetrievalData:
    """Sequences to train on and to validate on, with their targets in the target's own units, all float32."""

    train: Float[Tensor, "example position feature"]
    targets: Float[Tensor, " example"]
    validation: Float[Tensor, "held position feature"]
    validation_targets: Float[Tensor, " held"]

    @property
    def mean(self) -> float:
        """The mean target of the training sequences."""
        return float(self.targets.double().mean())

    @property
    def sd(self) -> float:
        """Their standard deviation."""
        return float(self.targets.double().std(correction=0))


def draw_data(family: Family, *, seed: int = 0, train: int = 8000, validation: int = 2000) -> RetrievalData:
    """Fresh sequences of the family's distribution, other ones than a task draws with that seed.

    Raises ValueError for fewer than 2 of either.
    """
    if min(train, validation) < 2:
        raise RequestError(f"{train} sequences to train on and {validation} to validate on: there must be 2 of each")
    generator = torch.Generator().manual_seed(APART + seed)
    first, second = family.draw(train, generator), family.draw(validation, generator)
    return RetrievalData(first, family.target(first), second, family.target(second))


@dataclass(frozen=True)
class Prefix:
    """Before step `until` only the first `length` tokens of a sequence are seen; targets: those of that many tokens."""

    until: int
    length: int
    targets: Float[Tensor, " example"]


def prefixes(family: Family, data: RetrievalData, steps: int) -> tuple[Prefix, ...]:
    """The first 8 tokens for 35 % of the steps, the first 32 up to the half: those that are fewer than all.

    Heads find their coordinates among few tokens, where softmax attention tells more of each, and keep them.
    Raises ValueError where some S_i is not the whole sequence: a prefix then has no target.
    """
    if not family.is_whole:
        raise RequestError("training on growing sequences needs position sets that are the whole sequence")
    return tuple(
        Prefix(round(share * steps), length, replace(family, length=length, sets=None).target(data.train[:, :length]))
        for share, length in GROWTH
        if length < family.length
    )


class RetrievalLearner:
    """Stacked seeds of a one-layer architecture, as models.training.fit takes them; each seed draws its own batches.

    Leaves carry HookedTransformer's names and answer in standard deviations of the training targets; `export` gives a
    HookedTransformer that answers in the target's own units. The loss is the mean squared error of the batch, in
    those standard deviations. Measures: `nmse`, the mean squared error over the variance on the validation sequences.
    shorter: prefixes to train on first, the earliest first.
    Raises ValueError for an architecture that this shortcut does not cover: more than one layer, or positions.
    """

    stacked = True

    def __init__(
        self,
        architecture: Architecture,
        data: RetrievalData,
        *,
        seeds: Sequence[int],
        batch: int = 128,
        shorter: Sequence[Prefix] = (),
        device: str = "cpu",
    ) -> None:
        if architecture.config["n_layers"] != 1 or "pos_embed.*" not in architecture.frozen:
            raise RequestError(
                "seeds of retrieval train together with one layer and without positions only: "
                "train other architectures one at a time"
            )
        if batch < 1:
            raise RequestError(f"batch = {batch}: a step takes at least 1 sequence")
        self.seeds, self.architecture, self.data, self.batch, self.device = (
            tuple(seeds),
            architecture,
            data,
            batch,
            device,
        )
        models = [start(architecture, seed=seed, device=device) for seed in self.seeds]
        named = [dict(model.named_parameters()) for model in models]
        self.leaves = {
            name: torch.stack([own[name].detach() for own in named]).requires_grad_(True)
            for name, parameter in named[0].items()
            if parameter.requires_grad
        }
        self.scale = architecture.config["d_head"] ** -0.5
        self.generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        self._tokens = data.train.to(device)
        self._targets = ((data.targets - data.mean) / data.sd).to(device)
        self._shorter = [(each, ((each.targets - data.mean) / data.sd).to(device)) for each in shorter]
        self._held = data.validation.to(device)
        self._held_targets = ((data.validation_targets - data.mean) / data.sd).to(device)

    def parameters(self) -> dict[str, Tensor]:
        return dict(self.leaves)

    def outputs(self, tokens: Float[Tensor, "#seed example position feature"]) -> Float[Tensor, "seed example"]:
        """What the models answer, in standard deviations of the training targets."""
        w = self.leaves
        seeds, examples = len(self.seeds), tokens.shape[1]
        encode = w["embed.W_E"]
        heads, inner = w[ATTENTION + "W_Q"].shape[1], encode.shape[1]
        query = torch.einsum("km,khmd->khd", w["embed.c0"], w[ATTENTION + "W_Q"]) * self.scale
        asked = torch.einsum("khd,khmd->khm", query, w[ATTENTION + "W_K"])
        asked = torch.bmm(asked, encode.transpose(1, 2))  # [seed, head, inner]
        group = max(1, GROUP // (tokens[0, ..., 0].numel() * inner))
        parts = [self._pooled(tokens, asked, slice(start, start + group)) for start in range(0, seeds, group)]
        pooled = (parts[0] if len(parts) == 1 else torch.cat(parts)).reshape(seeds, examples, heads * inner)
        values = torch.matmul(encode[:, None], w[ATTENTION + "W_V"])  # [seed, head, inner, d_head]
        moves = torch.matmul(values, w[ATTENTION + "W_O"]).flatten(1, 2)  # [seed, head * inner, model]
        bias = torch.matmul(w["embed.b_E"][:, None, None], w[ATTENTION + "W_V"])  # [seed, head, 1, d_head]
        constant = w["embed.c0"] + torch.matmul(bias, w[ATTENTION + "W_O"]).sum((1, 2))
        residual = torch.baddbmm(constant[:, None], pooled, moves)
        hidden = functional.gelu(torch.baddbmm(w["unembed.b_0"][:, None], residual, w["unembed.W_0"]))
        return torch.baddbmm(w["unembed.b_1"][:, None], hidden, w["unembed.W_1"])[..., 0]

    def _pooled(self, tokens: Tensor, asked: Tensor, own: slice) -> Float[Tensor, "seed example head inner"]:
        """Each head's mean of the features, by its attention, for the seeds in `own`."""
        w, asked = self.leaves, asked[own]
        features = tokens[own] if len(tokens) > 1 else tokens
        features = features.expand(len(asked), -1, -1, -1)  # [seed, example, position, inner]
        if "embed.W_in" in w:
            hidden = torch.baddbmm(w["embed.b_in"][own, None], features.flatten(1, 2), w["embed.W_in"][own]).relu()
            features = hidden.unflatten(1, features.shape[1:3])
        scores = torch.matmul(asked[:, None], features.transpose(2, 3))  # [seed, example, head, position]
        return torch.matmul(scores.softmax(-1), features)

    def losses(self, step: int) -> Float[Tensor, " seed"]:
        count = len(self._tokens)
        rows = torch.stack([torch.randint(count, (self.batch,), generator=own) for own in self.generators])
        rows = rows.to(self.device)
        tokens, targets = self._tokens, self._targets
        for prefix, own in self._shorter:
            if step < prefix.until:
                tokens, targets = tokens[:, : prefix.length], own
                break
        return (self.outputs(tokens[rows]) - targets[rows]).square().mean(-1)

    def measure(self) -> Measures:
        per_example = self._held.shape[1] * self.leaves["embed.W_E"].shape[1] * len(self.seeds)
        rows = max(1, CHUNK // per_example)
        total = torch.zeros(len(self.seeds), dtype=torch.float64)
        with torch.no_grad():
            for tokens, targets in zip(self._held.split(rows), self._held_targets.split(rows), strict=True):
                total += (self.outputs(tokens[None]) - targets).double().square().sum(-1).cpu()
        spread = self._held_targets.double().var(correction=0).cpu()
        return {"nmse": total / len(self._held) / spread}

    def state(self) -> dict[str, Tensor]:
        return {f"generator {seed}": own.get_state() for seed, own in zip(self.seeds, self.generators, strict=True)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        for seed, own in zip(self.seeds, self.generators, strict=True):
            own.set_state(state[f"generator {seed}"])

    def export(self, seed_index: int, weights: Mapping[str, Tensor] | None = None) -> HookedTransformer:
        """One seed as a HookedTransformer in the target's own units; `weights` are stacked leaves of a run."""
        stack = {**self.leaves, **(weights or {})}
        model = build(self.architecture, device=self.device)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name in stack:
                    parameter.copy_(stack[name].detach()[seed_index])
            rescale(model, self.data)
        return model


def rescale(model: HookedTransformer, data: RetrievalData) -> None:
    """Turn a model's answers from standard deviations of the training targets into the target's units, in place."""
    with torch.no_grad():
        readout = dict(model.unembed.named_parameters())
        readout["W_1"].mul_(data.sd)
        readout["b_1"].mul_(data.sd).add_(data.mean)
