"""The transformers of this task, on paper."""

from __future__ import annotations

from headlab.interp.errors import RequestError
from headlab.models.hooked import Architecture
from headlab.models.tree.task import TreeTask
from headlab.models.tree.tokens import TYPES

CONTEXT = 2048  # pair tokens have no position table: a long context costs nothing


def architecture(
    task: TreeTask,
    *,
    heads: int,
    layers: int = 1,
    d_model: int = 128,
    d_head: int = 32,
    scaled: bool = True,
    frozen: tuple[str, ...] = (),
    context: int | None = None,
) -> Architecture:
    """Attention-only layers without norm. Pair tokens: three tables and no positions; plain tokens: learned positions.

    scaled: divide scores by sqrt(d_head). context: positions at most; 2048 for pair tokens, the task's longest sequence
    for plain ones. Raises ValueError for a task whose sequences are longer, or for no heads or layers.
    """
    if heads < 1 or layers < 1:
        raise RequestError(f"{heads} heads in {layers} layers: both must be 1 or more")
    plain = task.form == "plain"
    context = context or (task.layout.length if plain else CONTEXT)
    task.require_context(context)
    labels = len(task.tokens.inputs)
    config = {
        "n_layers": layers,
        "n_heads": heads,
        "d_model": d_model,
        "d_head": d_head,
        "n_ctx": context,
        "d_vocab": labels + 1 if plain else len(TYPES) + 2 * labels,
        "d_vocab_out": len(task.vocabulary),
        "attn_only": True,
        "normalization_type": None,
        "use_attn_scale": scaled,
    }
    parts = (
        {}
        if plain
        else {
            "embed": {"part": "PairEmbed", "types": len(TYPES), "labels": labels},
            "pos_embed": {"part": "NoPosition"},
        }
    )
    return Architecture(config, parts, frozen)
