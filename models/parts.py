"""The parts of a HookedTransformer that a task replaces: embeddings, read-outs, attention.

Each part keeps the attribute names of the part it stands in for (`W_E`, `W_U`, `b_U`, ...), so that hooks, caching
and `state_dict` work as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from transformer_lens.components import Attention
from transformer_lens.hook_points import HookPoint

from headlab.interp.errors import RequestError
from headlab.models.attention_maps import attention_map, require_attention_map
from headlab.models.encoders import EncodedEmbed, PlacedEmbed, QueryEmbed, activation_function
from headlab.models.outer import Outer


class TiedUnembed(nn.Module):
    """An unembedding that IS the embedding's transpose: one tensor, one gradient, one optimiser state.

    `b_U` is frozen at 0, which keeps a one-head model inside the class of the ESP theorem.
    """

    def __init__(self, cfg: Any, model: Any) -> None:
        super().__init__()
        self.cfg = cfg
        # A tuple hides the embedding from the module tree (its weights are saved once) yet deepcopy still follows it.
        self._embed = (model.embed,)
        self.b_U = nn.Parameter(torch.zeros(cfg.d_vocab_out, dtype=cfg.dtype), requires_grad=False)
        self.hook_in = HookPoint()
        self.hook_out = HookPoint()

    @property
    def W_U(self) -> Float[Tensor, "model vocabulary"]:
        return self._embed[0].W_E.T

    def forward(self, residual: Float[Tensor, "batch position model"]) -> Float[Tensor, "batch position vocabulary"]:
        return self.hook_out(self.hook_in(residual) @ self.W_U + self.b_U)


class BlindClsAttention(Attention):
    """Causal attention whose last position does not read itself: a summary token that sees only the sequence."""

    def _make_causal_mask(
        self, query_ctx_length: int, key_ctx_length: int, past_kv_pos_offset: int, device: torch.device
    ) -> Tensor:
        mask = super()._make_causal_mask(query_ctx_length, key_ctx_length, past_kv_pos_offset, device).clone()
        mask[..., -1, -1] = False
        return mask


class PairEmbed(nn.Module):
    """The sum of three tables: one for a token's type, one for each of the two labels that it carries.

    Takes tokens [batch, position, 3] as (type, a, b). The tables' sizes are options, in that order; cfg.d_vocab counts
    the rows of all three, in which `W_E` lists them.
    """

    def __init__(self, cfg: Any, model: Any, *, types: int, labels: int) -> None:
        super().__init__()
        self.cfg = cfg
        if cfg.d_vocab != types + 2 * labels:
            raise RequestError(f"d_vocab is {cfg.d_vocab}, not the {types} + 2 * {labels} rows of the three tables")
        self.W_T = nn.Parameter(torch.zeros(types, cfg.d_model, dtype=cfg.dtype))
        self.W_A = nn.Parameter(torch.zeros(labels, cfg.d_model, dtype=cfg.dtype))
        self.W_B = nn.Parameter(torch.zeros(labels, cfg.d_model, dtype=cfg.dtype))

    @property
    def W_E(self) -> Float[Tensor, "vocabulary model"]:
        """The rows of the three tables, one after the other."""
        return torch.cat([self.W_T, self.W_A, self.W_B])

    def forward(self, tokens: Int[Tensor, "batch position 3"]) -> Float[Tensor, "batch position model"]:
        kind, a, b = tokens.unbind(-1)
        return self.W_T[kind] + self.W_A[a] + self.W_B[b]


class NoPosition(nn.Module):
    """A positional embedding of zeros: the order of the tokens shows in the causal mask alone."""

    def __init__(self, cfg: Any, model: Any) -> None:
        super().__init__()
        self.cfg = cfg

    @property
    def W_pos(self) -> Float[Tensor, "position model"]:
        """Zeros, for whoever reads the weights."""
        return torch.zeros(self.cfg.n_ctx, self.cfg.d_model, dtype=self.cfg.dtype, device=self.cfg.device)

    def forward(
        self, tokens: Shaped[Tensor, "batch position *rest"], past_kv_pos_offset: int = 0, attention_mask: Any = None
    ) -> Float[Tensor, "batch position model"]:
        size = (*tokens.shape[:2], self.cfg.d_model)
        return torch.zeros(size, dtype=self.cfg.dtype, device=tokens.device)


class MappedClsAttention(BlindClsAttention):
    """`BlindClsAttention` whose weights come from its scores by another map than softmax (models.attention_maps).

    Hooks fire as ever; `hook_pattern` then holds weights that may be negative and need not sum to 1.
    """

    def __init__(self, cfg: Any, kind: str = "global", layer: int | None = None, *, map: str = "linear") -> None:
        super().__init__(cfg, kind, layer)
        require_attention_map(map)
        self.map = map

    def forward(
        self,
        query_input: Tensor,
        key_input: Tensor,
        value_input: Tensor,
        past_kv_cache_entry: Any = None,
        additive_attention_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_bias: Tensor | None = None,
    ) -> Float[Tensor, "batch position model"]:
        if past_kv_cache_entry is not None or position_bias is not None:
            raise RequestError("attention with a map of its own takes neither a key-value cache nor a position bias")
        q, k, v = self.calculate_qkv_matrices(query_input, key_input, value_input)
        scores = self.apply_causal_mask(self.calculate_attention_scores(q, k), 0, attention_mask)
        if additive_attention_mask is not None:
            scores = scores + additive_attention_mask
        scores = self.hook_attn_scores(scores)
        pattern = self.hook_pattern(attention_map(scores, self.map))
        z = self.calculate_z_scores(v, pattern)
        result = torch.einsum("bqhr,hrm->bqhm", z, self.W_O)
        if self.cfg.use_attn_result:
            result = self.hook_result(result)
        return result.sum(dim=2) + self.b_O


class BitEmbed(nn.Module):
    """Numbers along one direction, and a CLS of zero at the end: position i holds x_i * W_E[0].

    Takes floats [batch, position] and gives one position more.
    """

    def __init__(self, cfg: Any, model: Any) -> None:
        super().__init__()
        self.cfg = cfg
        self.W_E = nn.Parameter(torch.zeros(1, cfg.d_model, dtype=cfg.dtype))

    def forward(self, bits: Float[Tensor, "batch position"]) -> Float[Tensor, "batch position+1 model"]:
        return F.pad(bits.to(self.W_E)[..., None] * self.W_E[0], (0, 0, 0, 1))


class VectorEmbed(nn.Module):
    """The whole input as ONE token whose vector it is, padded with zeros to d_model."""

    def __init__(self, cfg: Any, model: Any, *, size: int) -> None:
        super().__init__()
        self.cfg = cfg
        self.size = size

    @property
    def W_E(self) -> Float[Tensor, "feature model"]:
        """Feature f is axis f of the residual stream."""
        return torch.eye(self.size, self.cfg.d_model, dtype=self.cfg.dtype, device=self.cfg.device)

    def forward(self, vectors: Float[Tensor, "batch feature"]) -> Float[Tensor, "batch 1 model"]:
        return (vectors.to(self.cfg.dtype) @ self.W_E)[:, None]


class FixedPositions(nn.Module):
    """Position vectors for a sequence of fixed length: all n_ctx rows of `W_pos`, whatever shape the input has."""

    def __init__(self, cfg: Any, model: Any) -> None:
        super().__init__()
        self.cfg = cfg
        self.W_pos = nn.Parameter(torch.zeros(cfg.n_ctx, cfg.d_model, dtype=cfg.dtype))

    def forward(
        self, tokens: Shaped[Tensor, "batch ..."], past_kv_pos_offset: int = 0, attention_mask: Any = None
    ) -> Float[Tensor, "batch position model"]:
        return self.W_pos.expand(tokens.shape[0], -1, -1)


class ProductUnembed(nn.Module):
    """One output: `sign` times the product of `count` residual coordinates, the first of which is `first`.

    There is no W_U: what a head writes has no part of the output to itself.
    """

    def __init__(self, cfg: Any, model: Any, *, first: int, count: int, sign: float = -1.0) -> None:
        super().__init__()
        self.cfg = cfg
        self.first, self.count, self.sign = first, count, sign
        self.hook_in = HookPoint()
        self.hook_out = HookPoint()

    def forward(self, residual: Float[Tensor, "batch position model"]) -> Float[Tensor, "batch position 1"]:
        factors = self.hook_in(residual)[..., self.first : self.first + self.count]
        return self.hook_out(self.sign * factors.prod(dim=-1, keepdim=True))


class PolynomialUnembed(nn.Module):
    """One output: a polynomial of successive residual coordinates, the first of which is `first`.

    coefficients, exponents: as in headlab.models.outer.Outer. There is no W_U.
    """

    def __init__(
        self,
        cfg: Any,
        model: Any,
        *,
        first: int,
        coefficients: Sequence[float],
        exponents: Sequence[Sequence[int]],
    ) -> None:
        super().__init__()
        self.cfg = cfg
        self.first = first
        self.outer = Outer.from_options({"coefficients": coefficients, "exponents": exponents})
        self.hook_in = HookPoint()
        self.hook_out = HookPoint()

    def forward(self, residual: Float[Tensor, "batch position model"]) -> Float[Tensor, "batch position 1"]:
        z = self.hook_in(residual)[..., self.first : self.first + self.outer.coordinates]
        return self.hook_out(self.outer(z)[..., None])


class NetworkUnembed(nn.Module):
    """A read-out that is a network: hidden layers of the given sizes, then d_vocab_out outputs.

    Layer k is x W_k + b_k; all but the last are followed by `activation`. There is no W_U.
    """

    def __init__(self, cfg: Any, model: Any, *, hidden: Sequence[int], activation: str = "gelu") -> None:
        super().__init__()
        self.cfg = cfg
        self.layers = len(hidden) + 1
        self.activation = activation_function(activation)
        sizes = (cfg.d_model, *hidden, cfg.d_vocab_out)
        for layer in range(self.layers):
            shape = sizes[layer : layer + 2]
            self.register_parameter(f"W_{layer}", nn.Parameter(torch.zeros(shape, dtype=cfg.dtype)))
            self.register_parameter(f"b_{layer}", nn.Parameter(torch.zeros(shape[1], dtype=cfg.dtype)))
        self.hook_in = HookPoint()
        self.hook_out = HookPoint()

    def forward(self, residual: Float[Tensor, "batch position model"]) -> Float[Tensor, "batch position output"]:
        x = self.hook_in(residual)
        for layer in range(self.layers):
            x = x @ getattr(self, f"W_{layer}") + getattr(self, f"b_{layer}")
            if layer < self.layers - 1:
                x = self.activation(x)
        return self.hook_out(x)


# What a checkpoint may name as a part: slot names are those of HookedTransformer's own attributes.
PARTS: dict[str, type[nn.Module]] = {
    "TiedUnembed": TiedUnembed,
    "BlindClsAttention": BlindClsAttention,
    "PairEmbed": PairEmbed,
    "NoPosition": NoPosition,
    "MappedClsAttention": MappedClsAttention,
    "BitEmbed": BitEmbed,
    "VectorEmbed": VectorEmbed,
    "FixedPositions": FixedPositions,
    "ProductUnembed": ProductUnembed,
    "EncodedEmbed": EncodedEmbed,
    "PlacedEmbed": PlacedEmbed,
    "QueryEmbed": QueryEmbed,
    "PolynomialUnembed": PolynomialUnembed,
    "NetworkUnembed": NetworkUnembed,
}
