"""Many seeds of one small encoder trained together: every product of weights is one batched product over seeds.

What is computed is what the HookedTransformer computes, in another order: the norms' scales are folded into the
weights that follow them, queries, keys and values are one product, and where only the CLS is read the last layer asks
only there. In bfloat16 the products run in that precision; the residual stream, the norms and the loss stay in float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from headlab.interp.errors import RequestError
from headlab.models.classifier.architecture import start
from headlab.models.hooked import Architecture, HookedTransformer, build
from headlab.models.learner import Measures

CHUNK = 1 << 14  # tokens of one pass that measures
EPS = 1e-5  # of HookedTransformer's norms


@dataclass(frozen=True)
class Data:
    """What is trained on and what is held out: tokens, and for each sequence the class or the place that is right."""

    train: Float[Tensor, "example position feature"]
    targets: Int[Tensor, " example"]
    held: Float[Tensor, "other position feature"]
    held_targets: Int[Tensor, " other"]


class EncoderLearner:
    """Stacked seeds of a `class_reader` or a `place_reader`, as headlab.models.training.fit takes them.

    Each seed goes through the training sequences in its own order, `batch` a step, each once before any comes again.
    Leaves carry HookedTransformer's names; `export` gives one seed as a HookedTransformer. The loss is the
    cross-entropy of the batch. Measures, over whole sets: `accuracy`, `held_accuracy`, `held_rank` (mean reciprocal
    rank of what is right) and `rank`.
    """

    stacked = True

    def __init__(
        self,
        architecture: Architecture,
        data: Data,
        *,
        seeds: Sequence[int],
        batch: int = 64,
        device: str = "cpu",
        precision: torch.dtype = torch.float32,
    ) -> None:
        if not 1 <= batch <= len(data.train):
            raise RequestError(f"batch = {batch}: a step takes 1 to {len(data.train)} of the training sequences")
        self.seeds, self.architecture, self.batch, self.device = tuple(seeds), architecture, batch, device
        self.precision = precision
        self.places = architecture.parts["embed"]["part"] == "QueryEmbed"
        models = [start(architecture, seed=seed, device=device) for seed in self.seeds]
        named = [dict(model.named_parameters()) for model in models]
        self.leaves = {
            name: torch.stack([own[name].detach() for own in named]).requires_grad_(True)
            for name, parameter in named[0].items()
            if parameter.requires_grad
        }
        self.layers = architecture.config["n_layers"]
        self._tokens, self._targets = data.train.to(device, precision), data.targets.to(device)
        self._held, self._held_targets = data.held.to(device, precision), data.held_targets.to(device)
        self._per_pass = len(data.train) // batch

    def parameters(self) -> dict[str, Tensor]:
        return dict(self.leaves)

    def outputs(self, tokens: Float[Tensor, "#seed example position feature"]) -> Float[Tensor, "seed example answer"]:
        """The logits of the classes at the CLS, or of the candidates."""
        w, low = self.leaves, self.precision
        seeds, (examples, given) = len(self.seeds), tokens.shape[1:3]
        flat = tokens.expand(seeds, -1, -1, -1).reshape(seeds, examples * given, -1)
        x = torch.bmm(flat, w["embed.W_E"].to(low)).float() + w["embed.b_E"][:, None]
        x = x.view(seeds, examples, given, -1)
        mark = w["embed.c0"][:, None, None]
        if self.places:
            x = torch.cat([x[:, :, :-1], x[:, :, -1:] + mark], dim=2)
        else:
            x = torch.cat([x, mark.expand(-1, examples, -1, -1)], dim=2) + w["pos_embed.W_pos"][:, None]
        for layer in range(self.layers):
            x = self._layer(x, f"blocks.{layer}.", at_cls=not self.places and layer == self.layers - 1)
        x = x[:, :, :-1] if self.places else x[:, :, -1:]
        weight, bias = _folded(w, "ln_final", w["unembed.W_U"], w["unembed.b_U"])
        answers = torch.baddbmm(bias[:, None], _normal(x).flatten(1, 2), weight)
        return answers.view(seeds, examples, -1)

    def _layer(self, x: Tensor, name: str, at_cls: bool) -> Tensor:
        """One layer on x [seed, example, position, model]; at_cls: only its last position is wanted."""
        w, low = self.leaves, self.precision
        seeds, examples, _, model = x.shape
        heads, size = w[name + "attn.W_Q"].shape[1], w[name + "attn.W_Q"].shape[3]
        scale = size**-0.5

        def joined(letters: str, factors: Sequence[float]) -> tuple[Tensor, Tensor]:
            weight = [w[f"{name}attn.W_{c}"].transpose(1, 2).flatten(2) * f for c, f in zip(letters, factors)]
            bias = [w[f"{name}attn.b_{c}"].flatten(1) * f for c, f in zip(letters, factors)]
            return _folded(w, name + "ln1", torch.cat(weight, 2), torch.cat(bias, 1))

        normal = _normal(x).to(low)

        def asked(at: Tensor, letters: str, factors: Sequence[float]) -> tuple[Tensor, ...]:
            weight, bias = (part.to(low) for part in joined(letters, factors))
            found = torch.baddbmm(bias[:, None], at.flatten(1, 2), weight)
            split = found.view(seeds * examples, at.shape[2], len(letters), heads, size)
            return tuple(part.reshape(-1, at.shape[2], size) for part in split.permute(2, 0, 3, 1, 4).contiguous())

        if at_cls:
            (q,), (k, v) = asked(normal[:, :, -1:], "Q", [scale]), asked(normal, "KV", [1.0, 1.0])
            x = x[:, :, -1:]
        else:
            q, k, v = asked(normal, "QKV", [scale, 1.0, 1.0])
        z = torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(-1), v)  # [seed * example * head, query, d_head]
        queries = x.shape[2]
        z = z.view(seeds, examples, heads, queries, size).transpose(2, 3).reshape(seeds, examples * queries, -1)
        out, bias = w[name + "attn.W_O"].flatten(1, 2).to(low), w[name + "attn.b_O"]
        x = x + (torch.bmm(z, out).float() + bias[:, None]).view(seeds, examples, queries, model)
        weight, bias = _folded(w, name + "ln2", w[name + "mlp.W_in"], w[name + "mlp.b_in"])
        hidden = torch.baddbmm(bias.to(low)[:, None], _normal(x).to(low).flatten(1, 2), weight.to(low)).relu()
        out, bias = w[name + "mlp.W_out"].to(low), w[name + "mlp.b_out"]
        return x + (torch.bmm(hidden, out).float() + bias[:, None]).view_as(x)

    def rows(self, step: int) -> Int[Tensor, "seed batch"]:
        """The training sequences of one step. A function of the seed and the step alone."""
        turn, place = divmod(step, self._per_pass)
        orders = [
            torch.randperm(len(self._tokens), generator=torch.Generator().manual_seed(1_000_003 * (seed + 1) + turn))
            for seed in self.seeds
        ]
        return torch.stack([order[place * self.batch : (place + 1) * self.batch] for order in orders])

    def losses(self, step: int) -> Float[Tensor, " seed"]:
        rows = self.rows(step).to(self.device)
        answers, targets = self.outputs(self._tokens[rows]), self._targets[rows]
        each = functional.cross_entropy(answers.flatten(0, 1), targets.flatten(), reduction="none")
        return each.view(targets.shape).mean(1)

    def measure(self) -> Measures:
        found = {}
        for prefix, tokens, targets in (
            ("", self._tokens, self._targets),
            ("held_", self._held, self._held_targets),
        ):
            ranks = self.ranks(tokens, targets)
            found[prefix + "accuracy"] = (ranks == 1).double().mean(1)
            found[prefix + "rank"] = (1 / ranks.double()).mean(1)
        return found

    def ranks(
        self, tokens: Float[Tensor, "example position feature"], targets: Int[Tensor, " example"]
    ) -> Int[Tensor, "seed example"]:
        """The rank of what is right, from 1; whatever ties with it stands before it."""
        rows = max(1, CHUNK // tokens.shape[1])
        found = []
        with torch.no_grad():
            for some, right in zip(tokens.split(rows), targets.split(rows), strict=True):
                answers = self.outputs(some[None])
                own = answers.gather(2, right.expand(len(self.seeds), -1)[..., None])
                found.append((answers >= own).sum(2))
        return torch.cat(found, 1).cpu()

    def state(self) -> dict[str, Tensor]:
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        if state:
            raise RequestError("these learners keep no state of their own")

    def export(self, seed_index: int, weights: Mapping[str, Tensor] | None = None) -> HookedTransformer:
        """One seed as a HookedTransformer; `weights` are stacked leaves of a run."""
        stack = {**self.leaves, **(weights or {})}
        model = build(self.architecture, device=self.device)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name in stack:
                    parameter.copy_(stack[name].detach()[seed_index])
        return model


def _normal(x: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], eps=EPS)


def _folded(w: Mapping[str, Tensor], norm: str, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """What follows a norm, [seed, model, out] and [seed, out], with the norm's scale and shift taken in."""
    return weight * w[norm + ".w"][..., None], bias + torch.bmm(w[norm + ".b"][:, None], weight)[:, 0]
