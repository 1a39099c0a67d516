"""Language models of the Llama family out of a GGUF file, as HookedTransformers, without a download.

GGUF is the file format of llama.cpp: metadata and (often quantised) tensors in one file. What is read: architecture
`llama` (RMSNorm, rotary positions, gated SiLU, grouped key-value heads, tied or own unembedding) with the byte-level
BPE tokenizers `gpt-2` and `smollm`. What is not read is refused: other architectures, scaled or partial rotary
embeddings, biases, mixtures of experts, tensors that this module does not know.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from headlab.interp.errors import MissingFile, MissingPackage, RequestError
from headlab.models.hooked import Architecture, HookedTransformer, build

if TYPE_CHECKING:
    from gguf import GGUFReader

DIGITS_APART = {"smollm": True, "gpt-2": False}  # pre-tokenizers that are read: does each digit stand alone?
_LAYER = {
    "attn_norm.weight": "ln1.w",
    "attn_q.weight": "attn.W_Q",
    "attn_k.weight": "attn.W_K",
    "attn_v.weight": "attn.W_V",
    "attn_output.weight": "attn.W_O",
    "ffn_norm.weight": "ln2.w",
    "ffn_up.weight": "mlp.W_in",
    "ffn_gate.weight": "mlp.W_gate",
    "ffn_down.weight": "mlp.W_out",
}


def load_gguf(
    path: str | Path, *, context: int | None = None, device: str = "cpu", dtype: torch.dtype | str = torch.float32
) -> HookedTransformer:
    """The language model in a GGUF file as a HookedTransformer in evaluation mode, with its tokenizer.

    Quantised tensors are dequantised: the model is the one that llama.cpp runs, not the one before quantisation.

    Args:
        path: the file.
        context: positions that the model is built for, at most 256 where none are named; memory of the attention mask
            grows with its square.
        device: where the model goes.
        dtype: its number format, a torch dtype or its name.

    Raises:
        MissingFile: no file at `path`.
        MissingPackage: the package `gguf` is not installed.
        RequestError: not a GGUF file, a truncated one, or a model that this module does not read; says which.

    Example:
        >>> model = load_gguf("SmolLM2-135M-Instruct.Q4_1.gguf")  # doctest: +SKIP
        >>> model.to_str_tokens("The capital of France is")  # doctest: +SKIP
        ['The', ' capital', ' of', ' France', ' is']
    """
    reader = _open(Path(path))
    architecture = _architecture(reader, context)
    model = build(architecture, device=device, dtype=dtype)
    parameters = dict(model.named_parameters())
    names = _names(reader, architecture.config)
    with torch.no_grad():
        for tensor in reader.tensors:
            try:
                values = torch.from_numpy(_dequantised(tensor))
            except (ValueError, NotImplementedError) as error:
                raise RequestError(f"{path}: the tensor '{tensor.name}' cannot be read: {error}") from error
            for name in names[tensor.name]:
                shaped = _in_our_layout(name, values, architecture.config)
                if shaped.shape != parameters[name].shape:
                    raise RequestError(
                        f"{path}: the tensor '{tensor.name}' has the shape {tuple(values.shape)}, which does not fit "
                        f"'{name}' of shape {tuple(parameters[name].shape)}: the file is damaged or of another model"
                    )
                parameters[name].copy_(shaped)
    tokenizer = _tokenizer(reader)
    if tokenizer is not None:
        # Not `set_tokenizer`: it loads the tokenizer again from a hub to make it prepend a BOS token.
        tokenizer.padding_side = "right"
        model.tokenizer, model.cfg.tokenizer_prepends_bos = tokenizer, False
        model.cfg.default_prepend_bos = bool(_field(reader, "tokenizer.ggml.add_bos_token", False))
    return model


def _open(path: Path) -> GGUFReader:
    if not path.is_file():
        raise MissingFile(f"there is no file {path}")
    try:
        from gguf import GGUFReader
    except ImportError:
        raise MissingPackage("reading GGUF files needs the package gguf: pip install 'headlab[lm]'") from None
    try:
        reader = GGUFReader(path)
        for tensor in reader.tensors:
            _ = tensor.data.shape
        ends = max((int(t.data_offset) + int(t.n_bytes) for t in reader.tensors), default=0)
    except Exception as error:  # the reader's own errors are of many classes: what is wrong is the file
        reason = " ".join(str(error).split()) or type(error).__name__
        raise RequestError(f"{path} is not a whole GGUF file ({reason}): download or copy it again") from error
    if not reader.tensors or path.stat().st_size < ends:
        raise RequestError(f"{path} is not a whole GGUF file (tensors are missing): download or copy it again")
    return reader


def _field(reader: GGUFReader, name: str, default: Any = None) -> Any:
    field = reader.get_field(name)
    return default if field is None else field.contents()


def _required(reader: GGUFReader, name: str) -> Any:
    value = _field(reader, name)
    if value is None:
        raise RequestError(f"the GGUF file has no field '{name}': it is damaged or of an older format")
    return value


def _architecture(reader: GGUFReader, context: int | None) -> Architecture:
    kind = _required(reader, "general.architecture")
    if kind != "llama":
        raise RequestError(f"the GGUF file holds a model of the architecture '{kind}': only 'llama' is read")
    if _field(reader, "llama.expert_count", 0):
        raise RequestError("the GGUF file holds a mixture of experts: only dense models are read")
    scaling = [name for name in reader.fields if name.startswith("llama.rope.scaling")]
    if scaling and _field(reader, "llama.rope.scaling.type") not in (None, "none"):
        raise RequestError(f"the GGUF file scales its rotary embedding ({scaling[0]}): only plain rotary ones are read")
    heads, width = _required(reader, "llama.attention.head_count"), _required(reader, "llama.embedding_length")
    d_head = _field(reader, "llama.attention.key_length", width // heads)
    rotary = _field(reader, "llama.rope.dimension_count", d_head)
    if rotary != d_head or _field(reader, "llama.attention.value_length", d_head) != d_head:
        raise RequestError(
            f"the GGUF file rotates {rotary} of {d_head} dimensions of a head, or its values have another width than "
            "its keys: only heads of one width that are rotated whole are read"
        )
    longest = int(_required(reader, "llama.context_length"))
    context = min(256, longest) if context is None else context
    if not 1 <= context <= longest:
        raise RequestError(f"a context of {context} positions: the model was made for 1 to {longest}")
    groups = _field(reader, "llama.attention.head_count_kv", heads)
    embedding = next((t for t in reader.tensors if t.name == "token_embd.weight"), None)
    if embedding is None:
        raise RequestError("the GGUF file has no tensor 'token_embd.weight': it is damaged or holds no whole model")
    return Architecture(
        {
            "model_name": str(_field(reader, "general.name", "llama")),
            "n_layers": int(_required(reader, "llama.block_count")),
            "n_heads": int(heads),
            "n_key_value_heads": int(groups) if groups != heads else None,
            "d_model": int(width),
            "d_head": int(d_head),
            "d_mlp": int(_required(reader, "llama.feed_forward_length")),
            "d_vocab": int(embedding.shape[-1]),
            "n_ctx": context,
            "act_fn": "silu",
            "gated_mlp": True,
            "normalization_type": "RMS",
            "final_rms": True,
            "eps": float(_required(reader, "llama.attention.layer_norm_rms_epsilon")),
            "positional_embedding_type": "rotary",
            "rotary_dim": int(d_head),
            "rotary_base": float(_field(reader, "llama.rope.freq_base", 10000.0)),
            "rotary_adjacent_pairs": False,
            "default_prepend_bos": False,
        }
    )


def _names(reader: GGUFReader, config: Any) -> dict[str, tuple[str, ...]]:
    """Which of the model's parameters each tensor of the file fills."""
    own = any(tensor.name == "output.weight" for tensor in reader.tensors)
    names: dict[str, tuple[str, ...]] = {
        "token_embd.weight": ("embed.W_E",) if own else ("embed.W_E", "unembed.W_U"),
        "output_norm.weight": ("ln_final.w",),
    }
    if own:
        names["output.weight"] = ("unembed.W_U",)
    for layer in range(config["n_layers"]):
        for theirs, ours in _LAYER.items():
            if config["n_key_value_heads"] is not None:
                ours = ours.replace("W_K", "_W_K").replace("W_V", "_W_V")
            names[f"blk.{layer}.{theirs}"] = (f"blocks.{layer}.{ours}",)
    have = [tensor.name for tensor in reader.tensors]
    unknown, missing = [name for name in have if name not in names], sorted(set(names) - set(have))
    if unknown or missing:
        what = f"has the tensor '{unknown[0]}', which is not read" if unknown else f"lacks the tensor '{missing[0]}'"
        raise RequestError(f"the GGUF file {what}: only plain Llama models without biases are read")
    return names


def _dequantised(tensor: Any) -> np.ndarray:
    """The tensor as float32, [output, input] as PyTorch lays out a linear layer."""
    from gguf.quants import dequantize

    return np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)


def _in_our_layout(name: str, values: Tensor, config: Any) -> Tensor:
    last, d_head = name.rsplit(".", 1)[-1].lstrip("_"), config["d_head"]
    if last in ("W_Q", "W_K"):
        # llama.cpp stores the two halves of a head's rotary pairs interleaved; TransformerLens, as Hugging Face, apart.
        paired = values.unflatten(0, (-1, d_head // 2, 2))
        return paired.transpose(1, 2).flatten(1, 2).transpose(1, 2)
    if last == "W_V":
        return values.unflatten(0, (-1, d_head)).transpose(1, 2)
    if last == "W_O":
        return values.T.unflatten(0, (-1, d_head))
    return values if last in ("w", "W_E") else values.T


def _tokenizer(reader: GGUFReader) -> Any:
    """A byte-level BPE tokenizer made from the file's vocabulary and merges; None where the file has none."""
    kind = _field(reader, "tokenizer.ggml.model")
    if kind is None:
        return None
    pre = _field(reader, "tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or pre not in DIGITS_APART:
        raise RequestError(
            f"the GGUF file's tokenizer is '{kind}' with the splitting rule '{pre}': read are gpt2 with "
            f"{', '.join(DIGITS_APART)}"
        )
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens, types = _required(reader, "tokenizer.ggml.tokens"), _field(reader, "tokenizer.ggml.token_type", [])
    merges = [tuple(merge.split(" ")) for merge in _required(reader, "tokenizer.ggml.merges")]
    plain = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=merges))
    digits = [pre_tokenizers.Digits(individual_digits=True)] if DIGITS_APART[pre] else []
    plain.pre_tokenizer = pre_tokenizers.Sequence([*digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    plain.decoder = decoders.ByteLevel()
    special = [token for token, type_ in zip(tokens, types) if type_ == _CONTROL]
    plain.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    numbers = {name: _field(reader, f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos", "unknown", "padding")}
    by_role = {name: tokens[number] for name, number in numbers.items() if number is not None}
    return PreTrainedTokenizerFast(
        tokenizer_object=plain,
        bos_token=by_role.get("bos"),
        eos_token=by_role.get("eos"),
        unk_token=by_role.get("unknown"),
        pad_token=by_role.get("padding", by_role.get("eos")),
        clean_up_tokenization_spaces=False,
    )


_CONTROL = 3  # GGUF's type number of control tokens
