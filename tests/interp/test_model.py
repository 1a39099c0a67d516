"""Running a model and leaving it as it was."""

import random

import numpy as np
import pytest
import torch

from headlab.interp.model import activations, head_weights, run, untouched
from headlab.models.hooked import Architecture, build, initialise

CONFIG = {"n_layers": 2, "n_heads": 4, "d_model": 16, "d_head": 4, "n_ctx": 5, "d_vocab": 7, "attn_only": True}
TOKENS = torch.tensor([[0, 1, 2, 3, 4], [6, 5, 4, 3, 2]])


def made(**more):
    model = build(Architecture({**CONFIG, "normalization_type": None, **more}))
    initialise(model, scale=0.4, seed=0)
    return model


def test_a_misspelt_hook_is_named_with_the_nearest_that_exist():
    with pytest.raises(KeyError, match=r"no hook 'blocks.0.attn.hook_zz'.*blocks.0.attn.hook_z"):
        run(made(), TOKENS, {"blocks.0.attn.hook_zz": lambda a, hook: a})


def test_a_hook_that_exists_and_never_fires_says_how_to_switch_it_on():
    with pytest.raises((RuntimeError, AssertionError), match="use_attn_result"):
        run(made(), TOKENS, {"blocks.0.attn.hook_result": lambda a, hook: a})


def test_activations_are_copies_and_only_those_asked_for():
    model = made()
    logits, kept = activations(model, TOKENS, ["blocks.0.attn.hook_z"])
    assert list(kept) == ["blocks.0.attn.hook_z"]
    kept["blocks.0.attn.hook_z"].zero_()
    torch.testing.assert_close(model(TOKENS), logits)


def test_grouped_key_values_are_expanded_to_query_heads():
    model = made(n_key_value_heads=2)
    weights = head_weights(model, 1)
    assert weights.W_K.shape == weights.W_Q.shape == (4, 16, 4)
    own = model.blocks[1].attn
    _, cache = model.run_with_cache(TOKENS)
    keys = cache["blocks.1.hook_resid_pre"] @ weights.W_K[3] + weights.b_K[3]
    torch.testing.assert_close(keys, cache["blocks.1.attn.hook_k"][:, :, 1])
    assert own.W_O.shape == weights.W_O.shape


def test_a_layer_that_does_not_exist_is_named():
    with pytest.raises(IndexError, match="layers 0 to 1"):
        head_weights(made(), 2)


def test_the_residual_stream_adds_up():
    model = made()
    names = ["blocks.0.hook_resid_pre", "blocks.0.hook_resid_post", "blocks.0.attn.hook_z"]
    _, kept = activations(model, TOKENS, names)
    weights = head_weights(model, 0)
    heads = torch.einsum("bphd,hdm->bpm", kept[names[2]], weights.W_O)
    torch.testing.assert_close(kept[names[0]] + heads + weights.b_O, kept[names[1]])


def test_an_instrument_leaves_no_trace_even_when_it_raises():
    model = made()
    model.train()
    model.blocks[0].eval()
    modes = [module.training for module in model.modules()]
    model(TOKENS).sum().backward()
    grad = model.W_E.grad.clone()
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    random.seed(3)
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002

    def body():
        with untouched(model, gradients=True):
            assert not model.training
            torch.rand(3), np.random.rand(3), random.random()  # noqa: NPY002
            model(TOKENS).sum().backward()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(model.W_E.grad, grad)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002
    assert random.getstate() == states[2]


def test_a_readers_own_hook_survives_and_acts():
    model = made()
    plain = model(TOKENS)
    model.add_hook("blocks.0.attn.hook_z", lambda z, hook: z * 0)
    with_hook = run(model, TOKENS, {"blocks.1.attn.hook_z": lambda z, hook: z})
    assert not torch.allclose(plain, with_hook)
    torch.testing.assert_close(model(TOKENS), with_hook)
    assert len(model.hook_dict["blocks.0.attn.hook_z"].fwd_hooks) == 1
