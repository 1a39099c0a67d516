"""The transformers and networks of sparse parity, on paper and with weights.

The attention model has d positions and a CLS; its residual stream holds the position vector in the first m axes, the
bit in axis m, and what head h found in axis m + h at the CLS. All that trains is b_Q, the queries. It is the two-query
model of Han and Ghoshdastidar (arXiv 2502.07553) for two targets, term by term.
"""

from __future__ import annotations

from typing import Any

import torch

from headlab.interp.errors import RequestError
from headlab.models.attention_maps import require_attention_map
from headlab.models.hooked import Architecture, HookedTransformer, build
from headlab.models.xor.ensemble import Ensemble
from headlab.models.xor.task import XorTask

QUERIES = "blocks.0.attn.b_Q"
FROZEN = (
    "embed.*",
    "pos_embed.*",
    "blocks.0.attn.W_*",
    "blocks.0.attn.b_K",
    "blocks.0.attn.b_V",
    "blocks.0.attn.b_O",
)
LONGEST = 2048  # every position's query is computed, so that memory grows as the square of the length


def architecture(task: XorTask, width: int, kind: str = "softmax") -> Architecture:
    """One layer with a head per target: d_model = m + heads, d_head = m, one trainable tensor, b_Q.

    Raises ValueError for a width below 1 or more than 2048 bits, whose training needs no transformer
    (headlab.models.xor.population).
    """
    require_attention_map(kind)
    heads = len(task.targets)
    if width < 1:
        raise RequestError(f"width m = {width}: position vectors need at least 1 dimension")
    if task.bits > LONGEST:
        raise RequestError(
            f"{task.bits} bits are too long for a transformer, which computes every position's attention "
            f"(at most {LONGEST}); the population loss has no such limit"
        )
    attention = {"part": "BlindClsAttention"} if kind == "softmax" else {"part": "MappedClsAttention", "map": kind}
    return Architecture(
        config={
            "n_layers": 1,
            "n_heads": heads,
            "d_model": width + heads,
            "d_head": width,
            "n_ctx": task.bits + 1,
            "d_vocab": 1,
            "d_vocab_out": 1,
            "attn_only": True,
            "normalization_type": None,
            "use_attn_scale": False,
        },
        parts={
            "embed": {"part": "BitEmbed"},
            "pos_embed": {"part": "FixedPositions"},
            "blocks.0.attn": attention,
            "unembed": {"part": "ProductUnembed", "first": width, "count": heads, "sign": -1.0},
        },
        frozen=FROZEN,
    )


def to_model(
    models: Ensemble, row: int = 0, *, device: str = "cpu", dtype: torch.dtype | str | None = None
) -> HookedTransformer:
    """The HookedTransformer of one seed of an ensemble, in the ensemble's dtype unless another is named.

    Raises ValueError for a task that is too long (see `architecture`).
    """
    heads, width = models.queries.shape[1:]
    model = build(architecture(models.task, width, models.kind), device=device, dtype=dtype or models.queries.dtype)
    attention = model.blocks[0].attn
    with torch.no_grad():
        model.embed.W_E[0, width] = 1.0
        model.pos_embed.W_pos[: models.task.bits, :width] = models.positions[row].to(model.pos_embed.W_pos)
        attention.W_K[:, :width] = torch.eye(width)
        attention.W_V[:, width, 0] = 1.0
        for head in range(heads):
            attention.W_O[head, 0, width + head] = 1.0
        attention.b_Q.copy_(models.queries[row])
    return model


def from_model(model: HookedTransformer, task: XorTask, seed: int = 0) -> Ensemble:
    """The ensemble of one that a model's weights describe: the inverse of `to_model`.

    Raises ValueError where the model is not an attention model of this task.
    """
    attention: Any = model.blocks[0].attn
    heads = len(task.targets)
    expected = architecture(task, model.cfg.d_head)
    if (model.cfg.n_heads, model.cfg.d_model, model.cfg.n_ctx) != tuple(
        expected.config[name] for name in ("n_heads", "d_model", "n_ctx")
    ):
        raise RequestError(f"the model is not an attention model of {task.bits} bits and {heads} targets")
    width = model.cfg.d_head
    return Ensemble(
        task=task,
        seeds=(seed,),
        positions=model.pos_embed.W_pos.detach()[None, : task.bits, :width].clone(),
        queries=attention.b_Q.detach()[None].clone(),
        kind=getattr(attention, "map", "softmax"),
    )


def feedforward_architecture(task: XorTask, neurons: int) -> Architecture:
    """A network of one hidden ReLU layer over the bits, as a HookedTransformer of one position without attention.

    The bits are the first d axes of the residual stream, the answer is axis d: of the layer's weights those into and
    out of these count, neurons * d + 2 * neurons + 1 of them (4 d + 9 for four neurons). Raises ValueError for no
    neuron.
    """
    if neurons < 1:
        raise RequestError(f"{neurons} neurons: a hidden layer needs at least 1")
    return Architecture(
        config={
            "n_layers": 1,
            "n_heads": 1,
            "d_model": task.bits + 1,
            "d_head": 1,
            "d_mlp": neurons,
            "act_fn": "relu",
            "n_ctx": 1,
            "d_vocab": task.bits,
            "d_vocab_out": 1,
            "attn_only": False,
            "normalization_type": None,
        },
        parts={
            "embed": {"part": "VectorEmbed", "size": task.bits},
            "pos_embed": {"part": "FixedPositions"},
            "unembed": {"part": "ProductUnembed", "first": task.bits, "count": 1, "sign": 1.0},
        },
        frozen=("pos_embed.*", "blocks.0.attn.*"),
    )


def is_feedforward(design: Architecture) -> bool:
    """Whether an architecture of this task is the feed-forward network."""
    return design.parts["embed"]["part"] == "VectorEmbed"
