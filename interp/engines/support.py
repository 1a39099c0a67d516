"""Which models the cone's block arithmetic is true for; the others run through `expand`."""

from __future__ import annotations

from typing import Any

import torch

from headlab.interp.model import HookedModel

LIBRARY = "transformer_lens."


class Unsupported(Exception):
    """The cone does not model this architecture; the message says which part of it, for the result's notes."""


_ABSENT: dict[str, str] = {
    "parallel_attn_mlp": "attention and MLP in parallel",
    "use_local_attn": "local attention",
    "use_qk_norm": "normalised queries and keys",
    "use_attention_sinks": "attention sinks",
    "use_logn_attn": "log-n attention",
    "use_dynamic_ntk_rope": "dynamic rotary scaling",
    "use_normalization_before_and_after": "a norm after each block",
    "load_in_4bit": "4-bit weights",
    "clip_qkv": "clipped queries, keys and values",
}
_ATTENTION_METHODS = (
    "forward",
    "calculate_qkv_matrices",
    "calculate_attention_scores",
    "calculate_z_scores",
    "apply_causal_mask",
    "apply_rotary",
)
_NORMS = ("LayerNorm", "LayerNormPre", "RMSNorm", "RMSNormPre")


def is_hooked_transformer(model: HookedModel, *, subclass: bool = False) -> bool:
    """Whether the model is the library's HookedTransformer itself, or one of its subclasses where they are allowed."""
    kinds = type(model).__mro__ if subclass else (type(model),)
    return any(kind.__name__ == "HookedTransformer" and kind.__module__.startswith(LIBRARY) for kind in kinds)


def reader_hooks(model: HookedModel) -> list[str]:
    """The names of modules that carry a hook of the reader's own. A bridge has hooks of its own on its modules, so
    that only its hook points count."""
    if not is_hooked_transformer(model):
        return [name for name, point in model.hook_dict.items() if getattr(point, "fwd_hooks", None)]
    modules: Any = model
    return [name for name, module in modules.named_modules() if module._forward_hooks or module._forward_pre_hooks]


def plain_unembed(model: Any) -> bool:
    """Whether the unembedding is the library's own: linear, and each position by itself."""
    return type(model.unembed).__module__.startswith(LIBRARY)


def require_supported(model: HookedModel) -> None:
    """Raise Unsupported where the model is not a HookedTransformer whose blocks are residual + attention + MLP.

    A subclass of the library's attention may change the mask alone: the mask is read from the run.
    """
    if not is_hooked_transformer(model):
        raise Unsupported(f"a {type(model).__name__}")
    if hooked := reader_hooks(model):
        raise Unsupported(f"a model that carries hooks of its own, at {hooked[0]}")
    cfg = model.cfg
    for field, reason in _ABSENT.items():
        if getattr(cfg, field, None):
            raise Unsupported(reason)
    if cfg.attn_scores_soft_cap > 0 or cfg.output_logits_soft_cap > 0:
        raise Unsupported("soft-capped scores or logits")
    if cfg.positional_embedding_type not in ("standard", "rotary"):
        raise Unsupported(f"{cfg.positional_embedding_type} positions")
    if "Olmo" in (cfg.original_architecture or ""):
        raise Unsupported(f"the block of {cfg.original_architecture}")
    if cfg.dtype not in (torch.float32, torch.float64):
        raise Unsupported(f"{cfg.dtype} arithmetic")
    if getattr(cfg, "n_devices", 1) > 1:
        raise Unsupported("a model on several devices")
    blocks: Any = model.blocks  # type: ignore[attr-defined]
    for block in blocks:
        _require_block(block, cfg)
    _require_norm(getattr(model, "ln_final", None))


def _require_block(block: Any, cfg: Any) -> None:
    if not type(block).__module__.startswith(LIBRARY):
        raise Unsupported(f"a block of its own, {type(block).__name__}")
    attention = type(block.attn)
    for method in _ATTENTION_METHODS:
        home = getattr(getattr(attention, method, None), "__module__", "")
        if not home.startswith(LIBRARY):
            raise Unsupported(f"an attention of its own, {attention.__name__}.{method}")
    norms = [block.ln1] if cfg.attn_only else [block.ln1, block.ln2]
    for norm in norms:
        _require_norm(norm)
    if not cfg.attn_only and not type(block.mlp).__module__.startswith(LIBRARY):
        raise Unsupported(f"an MLP of its own, {type(block.mlp).__name__}")


def _require_norm(norm: Any) -> None:
    kind = type(norm)
    if norm is None or isinstance(norm, torch.nn.Identity):
        return
    if not (kind.__name__ in _NORMS and kind.__module__.startswith(LIBRARY)):
        raise Unsupported(f"a norm of its own, {kind.__name__}")
