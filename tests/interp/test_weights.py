"""Circuits in token space against what the model itself computes, for every kind of model there is here."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headlab.interp.model import activations, head_weights
from headlab.interp.weights import (
    normalise_rows,
    ov_circuit,
    qk_circuit,
    residual_rows,
    singular,
    unembedding,
    written_rows,
)
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


@pytest.mark.parametrize("norm", NORMS)
def test_ov_circuit_adds_up_to_the_logits_behind_the_frozen_norm(norm):
    model = random_model(normalization_type=norm, n_layers=1)
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


def test_scores_that_do_not_come_from_rows_alone_are_refused():
    rotary = random_model(positional_embedding_type="rotary", rotary_dim=4)
    rows = torch.zeros(2, 8, dtype=torch.float64)
    with pytest.raises(ValueError, match="rotary positions"):
        qk_circuit(rotary, 0, rows, rows)
    assert ov_circuit(rotary, 0, rows).shape == (2, 2, 7)
    with pytest.raises(IndexError, match="layers 0 to 1"):
        qk_circuit(random_model(), 2, rows, rows)
