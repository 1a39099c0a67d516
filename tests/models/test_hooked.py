"""The door to transformer-lens: what it builds, and what it leaves as it was."""

import copy
import json
import warnings

import numpy as np
import pytest
import torch
import transformer_lens.patching
from transformer_lens import ActivationCache, HookedTransformer

from headlab.models.hooked import Architecture, build, initialise

CONFIG = {
    "n_layers": 1,
    "n_heads": 2,
    "d_model": 16,
    "d_head": 8,
    "n_ctx": 4,
    "d_vocab": 11,
    "attn_only": True,
    "normalization_type": "LNPre",
}
TIED = Architecture(CONFIG, {"unembed": {"part": "TiedUnembed"}})
TOKENS = torch.tensor([[0, 1, 8, 10], [3, 2, 9, 10]])


def made(architecture=TIED, seed=0, **options):
    model = build(architecture, **options)
    initialise(model, scale=0.3, seed=seed)
    return model


def test_it_is_literally_a_hooked_transformer_and_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = made()
    assert isinstance(model, HookedTransformer)
    assert not model.training
    logits, cache = model.run_with_cache(TOKENS)
    assert isinstance(cache, ActivationCache)
    assert cache["blocks.0.attn.hook_pattern"].shape == (2, 2, 4, 4)
    zeroed = model.run_with_hooks(TOKENS, fwd_hooks=[("blocks.0.attn.hook_z", lambda z, hook: z * 0)])
    assert not torch.allclose(zeroed, logits)


def test_transformer_lens_own_patching_works_on_it_unchanged():
    model = made()
    _, cache = model.run_with_cache(TOKENS)
    effect = transformer_lens.patching.get_act_patch_attn_head_out_by_pos(
        model, TOKENS.flip(0), cache, lambda logits: logits[:, -1, 0].mean()
    )
    assert effect.shape == (1, 4, 2)
    assert torch.isfinite(effect).all()


def test_no_generator_moves_and_a_seed_in_the_config_has_no_part():
    # Python's own generator is left out: the shape checks of the tests draw from it.
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    made(Architecture({**CONFIG, "seed": 3}))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


def test_the_draw_depends_on_seed_and_names_alone():
    one, same, other = made(seed=1), made(seed=1), made(seed=2)
    for name, value in one.state_dict().items():
        assert torch.equal(value, same.state_dict()[name])
    assert not torch.equal(one.W_E, other.W_E)
    precise = made(seed=1, dtype="float64")
    torch.testing.assert_close(precise.W_E.float(), one.W_E)
    assert precise(TOKENS).dtype == torch.float64
    assert all(not value.any() for name, value in one.named_parameters() if name.rsplit(".", 1)[-1].startswith("b_"))


def test_norm_weights_start_at_one_and_their_biases_at_zero():
    model = made(Architecture({**CONFIG, "normalization_type": "LN"}))
    assert (model.ln_final.w == 1).all()
    assert (model.ln_final.b == 0).all()
    assert (model.blocks[0].ln1.w == 1).all()


def test_a_tied_unembedding_is_one_tensor_with_one_gradient():
    model = made()
    assert model.W_U.data_ptr() == model.W_E.data_ptr()
    assert "unembed.W_U" not in model.state_dict()
    model(TOKENS)[:, -1, 7].sum().backward()
    assert model.W_E.grad[7].abs().sum() > 0  # token 7 is read out and never an input
    assert model.unembed.b_U.grad is None
    twin = copy.deepcopy(model)
    twin.embed.W_E.data.zero_()
    assert not twin.W_U.any()
    assert model.W_U.any()


def test_an_architecture_survives_json():
    again = Architecture.from_json(json.loads(json.dumps(TIED.to_json())))
    assert again == TIED
    for one, other in zip(made().parameters(), made(again).parameters(), strict=True):
        assert torch.equal(one, other)


def test_frozen_parameters_do_not_train_and_are_not_drawn():
    model = made(Architecture(CONFIG, frozen=("unembed.b_U", "blocks.*.attn.W_K")))
    assert not model.blocks[0].attn.W_K.requires_grad
    assert not model.blocks[0].attn.W_K.any()
    assert model.blocks[0].attn.W_Q.requires_grad


@pytest.mark.parametrize(
    ("architecture", "options", "said"),
    [
        (Architecture(CONFIG, {"unembed": {"part": "Glued"}}), {}, "unknown part 'Glued': there are"),
        (Architecture(CONFIG, {"middle": {"part": "TiedUnembed"}}), {}, "no slot 'middle'"),
        (TIED, {"dtype": "int8"}, "unknown dtype 'int8'"),
    ],
)
def test_what_does_not_exist_is_named(architecture, options, said):
    with pytest.raises(KeyError, match=said):
        build(architecture, **options)
