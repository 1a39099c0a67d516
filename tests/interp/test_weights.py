"""Circuits in token space against what the model itself computes, for every kind of model there is here."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headlab.interp.errors import OutOfRange, RequestError
from headlab.interp.model import activations, head_weights
from headlab.interp.weights import (
    copying_score,
    normalise_rows,
    ov_circuit,
    qk_circuit,
    residual_rows,
    singular,
    top_tokens,
    unembedding,
    written_rows,
)
from tests.interp.bridges import ARCHITECTURES, bridge
from tests.interp.bridges import tokens as bridge_tokens
from tests.interp.hand_built import arcs, random_model, tokens, two_heads

NORMS = [None, "LN", "LNPre", "RMS", "RMSPre"]


def test_circuits_of_the_two_head_construction():
    n = 5
    model = two_heads(n)
    rows = residual_rows(model, arcs(n)[0][:1])[0]
    u, v, _, _ = arcs(n)[0][0].tolist()
    scores = qk_circuit(model, 0, rows[3:], rows)
    # head 0 sees M times the first switch of (u, v, selector '1', '#'), head 1 the second
    torch.testing.assert_close(scores[:, 0], 8.0 * torch.tensor([[0, -1, -1, 0], [-1, 0, 1, 0]], dtype=torch.float64))
    logits = ov_circuit(model, 0, rows)
    assert logits.shape == (2, 4, n + 3)
    assert logits[0, 0].argmax() == u
    assert logits[1, 1].argmax() == v
    assert not logits[:, 2:].any()


@pytest.mark.parametrize("norm", NORMS)
def test_qk_circuit_gives_the_model_s_own_scores(norm):
    model = random_model(normalization_type=norm, n_heads=4, n_key_value_heads=2)
    inputs = tokens(3)
    _, held = activations(model, inputs, ["blocks.0.attn.hook_attn_scores"])
    rows = residual_rows(model, inputs)
    below = torch.ones(5, 5).tril().bool()
    for example in range(3):
        made = qk_circuit(model, 0, rows[example], rows[example])
        expected = held["blocks.0.attn.hook_attn_scores"][example]
        torch.testing.assert_close(made[:, below], expected[:, below])


@pytest.mark.parametrize("norm", NORMS)
def test_written_rows_are_what_a_head_writes_when_it_sees_one_token(norm):
    model = random_model(normalization_type=norm, n_heads=4, n_key_value_heads=2, n_layers=1)
    inputs = tokens(4, positions=1)
    _, held = activations(model, inputs, ["blocks.0.hook_attn_out"])
    written = written_rows(model, 0, residual_rows(model, inputs)[:, 0]).sum(0) + head_weights(model, 0).b_O
    torch.testing.assert_close(written, held["blocks.0.hook_attn_out"][:, 0])


@pytest.mark.parametrize("final_rms", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_ov_circuit_adds_up_to_the_logits_behind_the_frozen_norm(norm, final_rms):
    model = random_model(normalization_type=norm, n_layers=1, final_rms=final_rms)
    inputs = tokens(6, positions=1)
    names = ["blocks.0.hook_resid_pre"] + (["ln_final.hook_scale"] if norm else [])
    logits, held = activations(model, inputs, names)
    before = held["blocks.0.hook_resid_pre"][:, 0]
    total = ov_circuit(model, 0, before).sum(0) + (before + head_weights(model, 0).b_O) @ unembedding(model)
    total = total / held["ln_final.hook_scale"][:, 0] if norm else total
    # what is left of the logits is the bias behind the norm, the same for every token
    left = logits[:, 0] - total
    torch.testing.assert_close(left, left[:1].expand_as(left))


def test_rows_may_be_taken_as_they_are():
    model = random_model(normalization_type="LN")
    rows = residual_rows(model, tokens(1))[0]
    normed = normalise_rows(model, model.blocks[0].ln1, rows)
    torch.testing.assert_close(qk_circuit(model, 0, normed, normed, normalise=False), qk_circuit(model, 0, rows, rows))
    torch.testing.assert_close(ov_circuit(model, 0, normed, normalise=False), ov_circuit(model, 0, rows))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_weights_are_computed_in_float32(dtype):
    model = random_model(dtype=dtype, normalization_type="LN")
    rows = residual_rows(model, tokens(2))[0]
    assert rows.dtype == dtype
    exact = random_model(dtype=torch.float64, normalization_type="LN")
    with torch.no_grad():
        for one, other in zip(exact.parameters(), model.parameters(), strict=True):
            one.copy_(other)
    for circuit in (lambda m, r: qk_circuit(m, 1, r, r), lambda m, r: ov_circuit(m, 1, r)):
        made = circuit(model, rows)
        assert made.dtype == torch.float32
        torch.testing.assert_close(made, circuit(exact, rows.double()).float(), rtol=1e-4, atol=1e-4)


@given(st.integers(0, 1000), st.sampled_from([(6, 2, 7), (3, 3, 3), (2, 5, 4)]))
@settings(max_examples=15, deadline=None)
def test_singular_vectors_rebuild_the_circuit(seed, shape):
    rows, rank, columns = shape
    generator = torch.Generator().manual_seed(seed)
    left, right = torch.randn(4, rows, rank, generator=generator), torch.randn(4, rank, columns, generator=generator)
    U, S, V = singular(left, right)
    torch.testing.assert_close(U @ torch.diag_embed(S) @ V.mT, left @ right, rtol=1e-4, atol=1e-5)
    assert (S[:, :-1] >= S[:, 1:]).all()
    torch.testing.assert_close(V.mT @ V, torch.eye(V.shape[-1]).expand(4, -1, -1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(S, torch.linalg.svdvals(left @ right)[:, : S.shape[1]], rtol=1e-4, atol=1e-5)


def test_singular_values_of_half_precision_are_float32():
    left = torch.randn(5, 2, generator=torch.Generator().manual_seed(0)).bfloat16()
    U, S, V = singular(left, left.T)
    assert U.dtype == S.dtype == V.dtype == torch.float32
    torch.testing.assert_close(U @ torch.diag(S) @ V.T, left.float() @ left.float().T)


def own_scores(model, inputs, layer):
    """The model's scores before the softmax [example, head, query, key], up to a constant of each row."""
    names = [f"blocks.{layer}.attn.hook_{name}" for name in ("attn_scores", "pattern")]
    cache = activations(model, inputs, names)[1]
    scores, pattern = (cache[name] for name in names)
    return pattern.log() if torch.equal(scores, pattern) else scores


def require_own_scores(model, inputs, layer, tolerance):
    """QK circuits of the rows that stand before the layer are the scores there, at the offset that they stand at."""
    rotary = model.cfg.positional_embedding_type == "rotary"
    name = f"blocks.{layer}.hook_resid_pre"
    rows = activations(model, inputs, [name])[1][name]
    expected = own_scores(model, inputs, layer)
    count = rows.shape[1]
    found = torch.full_like(expected, torch.nan)
    for example in range(len(rows)):
        for offset in range(count) if rotary else [None]:
            scores = qk_circuit(model, layer, rows[example], rows[example], offset=offset)
            for query in range(count):
                for key in range(query + 1) if offset is None else [query - offset] * (query >= offset):
                    found[example, :, query, key] = scores[:, query, key]
    below = torch.ones(count, count).tril().bool()
    difference = (found - expected)[:, :, below]
    first = (found - expected)[:, :, :, :1].expand_as(found)[:, :, below]  # what a softmax does not feel
    assert float((difference - first).abs().max()) < tolerance
    assert float(expected[:, :, below].std()) > 100 * tolerance


@pytest.mark.parametrize(
    "config",
    [
        {"clip_qkv": 0.4},
        {"attn_scores_soft_cap": 0.5},
        {"positional_embedding_type": "rotary", "rotary_dim": 4},
        {"positional_embedding_type": "rotary", "rotary_dim": 2, "clip_qkv": 0.4},
        {"positional_embedding_type": "rotary", "rotary_dim": 4, "use_qk_norm": True, "normalization_type": "RMS"},
        {"normalization_type": "LN", "final_rms": True, "use_attn_scale": False},
    ],
)
def test_scores_of_every_kind_are_the_model_s_own(config):
    require_own_scores(random_model(n_heads=4, n_key_value_heads=2, **config), tokens(2), 1, 1e-9)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_bridge_s_circuits_are_its_own_scores_and_writes(architecture):
    model = bridge(architecture)
    for layer in (0, 1):
        require_own_scores(model, bridge_tokens(2, positions=4), layer, 1e-5)
        names = [f"blocks.{layer}.hook_resid_pre", f"blocks.{layer}.hook_attn_out"]
        before, written = activations(model, bridge_tokens(4, positions=1), names)[1].values()
        found = written_rows(model, layer, before[:, 0]).sum(0) + head_weights(model, layer).b_O
        torch.testing.assert_close(found, written[:, 0], rtol=1e-5, atol=1e-5)
    names = ["blocks.1.hook_resid_post"]
    logits, cache = activations(model, bridge_tokens(4, positions=1), names)
    rows = cache[names[0]][:, 0]
    centred = rows - rows.mean(-1, keepdim=True) if architecture in ("native", "gpt2") else rows
    size = (centred.square().mean(-1, keepdim=True) + model.cfg.eps).sqrt()
    left = logits[:, 0] - rows @ unembedding(model) / size
    torch.testing.assert_close(left, left[:1].expand_as(left), rtol=1e-4, atol=1e-5)


def test_rotation_is_left_out_or_stated():
    model = random_model(positional_embedding_type="rotary", rotary_dim=4)
    rows = torch.randn(3, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    content = qk_circuit(model, 0, rows, rows, offset="content")
    torch.testing.assert_close(content, qk_circuit(model, 0, rows, rows, offset=0))
    assert not torch.allclose(content, qk_circuit(model, 0, rows, rows, offset=3))
    with pytest.raises(RequestError, match="give offset, a number of positions, or offset='content'"):
        qk_circuit(model, 0, rows, rows)
    with pytest.raises(OutOfRange, match="give 0 to 4"):
        qk_circuit(model, 0, rows, rows, offset=5)
    with pytest.raises(RequestError, match="standard positions: leave it out"):
        qk_circuit(random_model(), 0, rows, rows, offset=1)


def test_values_are_clipped_where_the_model_clips_them():
    model = random_model(n_layers=1, clip_qkv=0.3)
    inputs = tokens(4, positions=1)
    before, written = activations(model, inputs, ["blocks.0.hook_resid_pre", "blocks.0.hook_attn_out"])[1].values()
    found = written_rows(model, 0, before[:, 0]).sum(0) + head_weights(model, 0).b_O
    torch.testing.assert_close(found, written[:, 0])
    with pytest.raises(RequestError, match="clips its values"):
        copying_score(model, 0, model.W_E)


@pytest.mark.parametrize(
    "config",
    [
        {"normalization_type": "RMS", "use_normalization_before_and_after": True},
        {"normalization_type": "RMS", "use_normalization_before_and_after": True, "attn_only": False},
    ],
)
def test_a_norm_behind_the_heads_has_no_ov_circuit(config):
    model = random_model(**config)
    for circuit in (ov_circuit, written_rows, partial(top_tokens, k=1), copying_score):
        with pytest.raises(RequestError, match="a norm or a factor stands behind the heads in layer 1"):
            circuit(model, 1, model.W_E)
    require_own_scores(model, tokens(2), 1, 1e-9)


def test_chosen_heads_are_the_rows_of_all():
    model = random_model(n_heads=4, n_key_value_heads=2)
    rows = residual_rows(model, tokens(1))[0]
    torch.testing.assert_close(ov_circuit(model, 1, rows, heads=[3, 0]), ov_circuit(model, 1, rows)[[3, 0]])
    torch.testing.assert_close(qk_circuit(model, 1, rows, rows, heads=[2]), qk_circuit(model, 1, rows, rows)[[2]])
    for heads, error in (([4], OutOfRange), ([], RequestError)):
        with pytest.raises(error, match="head"):
            ov_circuit(model, 0, rows, heads=heads)


@pytest.mark.parametrize("norm", ["LN", "RMSPre"])
def test_top_tokens_and_copying_are_those_of_the_whole_matrix(norm, monkeypatch):
    model = random_model(normalization_type=norm, n_heads=4, n_key_value_heads=2)
    whole = ov_circuit(model, 0, model.W_E)
    monkeypatch.setattr("headlab.interp.weights.CHUNK", 20)  # blocks of two rows
    found = top_tokens(model, 0, model.W_E, k=3)
    assert found.heads == (0, 1, 2, 3)
    torch.testing.assert_close(found.logits, whole.sort(-1, descending=True).values[..., :3])
    assert torch.equal(found.tokens, whole.argsort(-1, descending=True)[..., :3])
    one = top_tokens(model, 0, model.W_E, k=1, heads=[2])
    assert torch.equal(one.tokens[0], found.tokens[2, :, :1])
    weights = head_weights(model, 0)
    without_bias = whole - (weights.b_V.unsqueeze(1) @ weights.W_O) @ unembedding(model)
    eigenvalues = torch.linalg.eigvals(without_bias)
    expected = eigenvalues.real.sum(-1) / eigenvalues.abs().sum(-1)
    torch.testing.assert_close(copying_score(model, 0, model.W_E), expected)
    with pytest.raises(OutOfRange, match="7 tokens"):
        top_tokens(model, 0, model.W_E, k=8)
    with pytest.raises(RequestError, match="one row per token"):
        copying_score(model, 0, model.W_E[1:])


def test_copying_is_one_for_a_head_that_copies_and_nothing_for_one_that_writes_nothing():
    model = random_model(n_layers=1, d_model=8, d_head=8)
    with torch.no_grad():
        for weight in (model.embed.W_E, model.unembed.W_U):
            weight.copy_(torch.eye(*weight.shape))
        attention = model.blocks[0].attn
        attention.W_V[:] = torch.eye(8, dtype=torch.float64)
        attention.W_O[0], attention.W_O[1] = 3 * torch.eye(8), -torch.eye(8)
    torch.testing.assert_close(copying_score(model, 0, model.W_E), torch.tensor([1.0, -1.0], dtype=torch.float64))
    with torch.no_grad():
        attention.W_O.zero_()
    assert not copying_score(model, 0, model.W_E).any()


def test_a_large_vocabulary_asks_for_no_matrix_of_its_square():
    model = random_model(d_vocab=49_152, d_head=4, n_layers=1, dtype=torch.float32)
    with pytest.raises(RequestError, match=r"take 18 GiB: choose heads or rows, or use top_tokens"):
        ov_circuit(model, 0, model.W_E)
    assert top_tokens(model, 0, model.W_E[:512], k=2).tokens.shape == (2, 512, 2)
    assert copying_score(model, 0, model.W_E).shape == (2,)


def test_scores_that_do_not_come_from_rows_alone_are_refused():
    rows = torch.zeros(2, 8, dtype=torch.float64)
    with pytest.raises(RequestError, match="alibi positions"):
        qk_circuit(random_model(positional_embedding_type="alibi"), 0, rows, rows)
    assert ov_circuit(random_model(positional_embedding_type="alibi"), 0, rows).shape == (2, 2, 7)
    with pytest.raises(IndexError, match="layers 0 to 1"):
        qk_circuit(random_model(), 2, rows, rows)
