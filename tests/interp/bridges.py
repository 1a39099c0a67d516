"""Small random TransformerBridges of transformer-lens, one an architecture, built offline from a configuration."""

from __future__ import annotations

import warnings
from typing import Any

import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge
    from transformer_lens.model_bridge.sources import build_bridge_from_module

# Width 16, two layers, four heads of width 4, MLP 24, vocabulary 11, context 12; Llama, Qwen3 and Gemma share keys and
# values between two heads.
_SIZES: dict[str, Any] = {
    "vocab_size": 11,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
    "attn_implementation": "eager",
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
_FOREIGN: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": (
        "GPT2",
        {
            "vocab_size": 11,
            "n_embd": 16,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 12,
            "n_inner": 24,
            "attn_implementation": "eager",
            "bos_token_id": 0,
            "eos_token_id": 1,
        },
    ),
    "llama": ("Llama", _SIZES),
    "qwen3": ("Qwen3", _SIZES),
    "gemma": ("Gemma", _SIZES),
}
ARCHITECTURES = ("native", *_FOREIGN)


def bridge(architecture: str, *, dtype: torch.dtype = torch.float64, seed: int = 0, **native: Any) -> Any:
    """A random bridge of `ARCHITECTURES`: 2 layers, 4 heads, d_model 16, d_head 4, 11 tokens, 12 positions."""
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        if architecture == "native":
            options: dict[str, Any] = {
                "n_layers": 2,
                "n_heads": 4,
                "d_model": 16,
                "d_head": 4,
                "d_mlp": 24,
                "d_vocab": 11,
                "n_ctx": 12,
                "act_fn": "gelu",
                "normalization_type": "LN",
                "seed": seed,
                **native,
            }
            made = TransformerBridge.boot_native(TransformerBridgeConfig(**options), dtype=dtype)
        else:
            name, options = _FOREIGN[architecture]
            config = getattr(transformers, f"{name}Config")(**options)
            module = getattr(transformers, f"{name}ForCausalLM" if name != "GPT2" else "GPT2LMHeadModel")(config)
            made = build_bridge_from_module(
                module.to(dtype).eval(), type(module).__name__, hf_config=config, dtype=dtype
            )
        made = made.eval()
        generator = torch.Generator().manual_seed(seed + 1)
        with torch.no_grad():  # larger than an initialisation, so that attention is not uniform
            for parameter in made.parameters():
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.add_((0.3 * noise).to(parameter))
    return made


def tokens(count: int, *, seed: int = 0, positions: int = 6) -> torch.Tensor:
    """Random tokens [example, position] of the bridges' vocabulary."""
    return torch.randint(3, 11, (count, positions), generator=torch.Generator().manual_seed(seed))
