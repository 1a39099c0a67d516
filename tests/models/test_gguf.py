"""A random Llama of Hugging Face's own code, written to GGUF by llama.cpp's rules, comes back with the same logits."""

import numpy as np
import pytest
import torch

from headlab.interp.errors import MissingFile, RequestError
from headlab.models.gguf import load_gguf

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed: pip install 'headlab[lm]'")
SIZES = {"n_layers": 2, "heads": 4, "groups": 2, "width": 32, "mlp": 64, "vocabulary": 60}


def llama(*, groups: int = 2, tied: bool = True, seed: int = 0):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=SIZES["vocabulary"],
        hidden_size=SIZES["width"],
        intermediate_size=SIZES["mlp"],
        num_hidden_layers=SIZES["n_layers"],
        num_attention_heads=SIZES["heads"],
        num_key_value_heads=groups,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        rope_theta=5000.0,
        tie_word_embeddings=tied,
        attn_implementation="eager",
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, mean=1.0 if parameter.ndim == 1 else 0.0, std=0.3)
    return model


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's own permutation of query and key rows."""
    return weight.reshape(heads, 2, -1, weight.shape[-1]).swapaxes(1, 2).reshape(weight.shape)


def write(path, model, *, architecture="llama", quantised=False, extra=(), leave_out=(), fields=(), tokenizer=None):
    config = model.config
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_context_length(64)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(5000.0)
    for name, value in fields:
        writer.add_string(name, value)
    if tokenizer is not None:
        tokens, merges, pre = tokenizer
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_list(tokens)
        writer.add_token_merges(merges)
        writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(0)
    tensors = {"token_embd.weight": model.model.embed_tokens.weight, "output_norm.weight": model.model.norm.weight}
    if not config.tie_word_embeddings:
        tensors["output.weight"] = model.lm_head.weight
    for number, layer in enumerate(model.model.layers):
        attention, mlp = layer.self_attn, layer.mlp
        tensors |= {
            f"blk.{number}.attn_norm.weight": layer.input_layernorm.weight,
            f"blk.{number}.attn_q.weight": attention.q_proj.weight,
            f"blk.{number}.attn_k.weight": attention.k_proj.weight,
            f"blk.{number}.attn_v.weight": attention.v_proj.weight,
            f"blk.{number}.attn_output.weight": attention.o_proj.weight,
            f"blk.{number}.ffn_norm.weight": layer.post_attention_layernorm.weight,
            f"blk.{number}.ffn_up.weight": mlp.up_proj.weight,
            f"blk.{number}.ffn_gate.weight": mlp.gate_proj.weight,
            f"blk.{number}.ffn_down.weight": mlp.down_proj.weight,
        }
    for name, tensor in [*tensors.items(), *extra]:
        if name in leave_out:
            continue
        values = tensor.detach().numpy().astype(np.float32)
        if name.endswith("attn_q.weight"):
            values = interleaved(values, config.num_attention_heads)
        if name.endswith("attn_k.weight"):
            values = interleaved(values, config.num_key_value_heads)
        if quantised and values.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q8_0
            with torch.no_grad():
                blocks = gguf.quants.quantize(values, kind)
                tensor.copy_(torch.from_numpy(_undone(gguf.quants.dequantize(blocks, kind), name, config)))
            writer.add_tensor(name, blocks, raw_dtype=kind)
        else:
            writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _undone(values: np.ndarray, name: str, config) -> np.ndarray:
    heads = config.num_attention_heads if name.endswith("attn_q.weight") else config.num_key_value_heads
    if not name.endswith(("attn_q.weight", "attn_k.weight")):
        return values
    return values.reshape(heads, -1, 2, values.shape[-1]).swapaxes(1, 2).reshape(values.shape)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("tied", [True, False])
def test_logits_are_hugging_faces_own(tmp_path, groups, tied):
    theirs = llama(groups=groups, tied=tied)
    model = load_gguf(write(tmp_path / "m.gguf", theirs), context=20)
    tokens = torch.arange(40).view(2, 20) * 7 % SIZES["vocabulary"]
    with torch.no_grad():
        expected = theirs(tokens).logits
        assert expected.std() > 0.1
        torch.testing.assert_close(model(tokens), expected, atol=2e-5, rtol=1e-4)


def test_quantised_tensors_are_the_file_s_own(tmp_path):
    theirs = llama(tied=False)
    path = write(tmp_path / "q.gguf", theirs, quantised=True)  # `theirs` now holds the rounded weights
    tokens = torch.arange(20)[None]
    with torch.no_grad():
        torch.testing.assert_close(load_gguf(path)(tokens), theirs(tokens).logits, atol=2e-5, rtol=1e-4)


def test_the_permutation_matters(tmp_path):
    theirs = llama()
    model = load_gguf(write(tmp_path / "m.gguf", theirs))
    tokens = torch.arange(20)[None]
    with torch.no_grad():
        before = model(tokens)
        for block in model.blocks:
            block.attn.W_Q.copy_(block.attn.W_Q.unflatten(2, (2, -1)).transpose(2, 3).flatten(2))
        assert (model(tokens) - before).abs().max() > 1e-3


def test_the_tokenizer_splits_as_the_file_says(tmp_path):
    pieces = ["<|end|>", "a", "b", "1", "2", "Ġ", "ab", "Ġab", "12"]
    tokens = [*pieces, *(f"unused{i}" for i in range(SIZES["vocabulary"] - len(pieces)))]
    merges = ["a b", "Ġ ab", "1 2"]
    for pre, expected in (("smollm", ["ab", "1", "2", " ab"]), ("gpt-2", ["ab", "12", " ab"])):
        model = load_gguf(write(tmp_path / f"{pre}.gguf", llama(), tokenizer=(tokens, merges, pre)))
        assert model.to_str_tokens("ab12 ab") == expected
        assert model.to_str_tokens("<|end|>ab") == ["<|end|>", "ab"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"architecture": "gpt2"}, "architecture 'gpt2': only 'llama'"),
        ({"fields": [("llama.rope.scaling.type", "yarn")]}, "scales its rotary embedding"),
        ({"extra": [("blk.0.attn_q.bias", torch.zeros(32))]}, "'blk.0.attn_q.bias', which is not read"),
        ({"leave_out": ("blk.1.ffn_up.weight",)}, "lacks the tensor 'blk.1.ffn_up.weight'"),
        ({"leave_out": ("token_embd.weight",)}, "no tensor 'token_embd.weight'"),
        ({"fields": [("tokenizer.ggml.model", "llama")]}, "tokenizer is 'llama'"),
    ],
)
def test_what_is_not_read_is_refused_in_a_sentence(tmp_path, change, sentence):
    with pytest.raises(RequestError, match=sentence):
        load_gguf(write(tmp_path / "m.gguf", llama(), **change))


def test_damaged_files_are_refused_in_a_sentence(tmp_path):
    whole = write(tmp_path / "m.gguf", llama())
    data = whole.read_bytes()
    for size in (0, 3, 30, 400, len(data) // 2, len(data) - 5000):
        (tmp_path / "cut.gguf").write_bytes(data[:size])
        with pytest.raises(RequestError, match="not a whole GGUF file"):
            load_gguf(tmp_path / "cut.gguf")
    (tmp_path / "other.gguf").write_bytes(b"PK\x03\x04" + data[4:])
    with pytest.raises(RequestError, match="not a whole GGUF file"):
        load_gguf(tmp_path / "other.gguf")
    with pytest.raises(MissingFile, match="there is no file"):
        load_gguf(tmp_path / "none.gguf")
    with pytest.raises(RequestError, match="1 to 64"):
        load_gguf(whole, context=65)
