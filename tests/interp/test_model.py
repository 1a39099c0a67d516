"""Running a model and leaving it as it was."""

import random

import numpy as np
import pytest
import torch

from headlab.interp.errors import RequestError
from headlab.interp.model import activations, head_weights, model_inputs, run, untouched, visible_keys
from headlab.models.hooked import Architecture, build, initialise
from tests.interp.bridges import ARCHITECTURES, bridge
from tests.interp.bridges import tokens as bridge_tokens

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


def test_a_hook_is_told_the_name_that_was_asked_for_on_every_model():
    """A bridge serves blocks.0.hook_resid_pre by the hook point blocks.0.hook_in."""
    names = ["blocks.0.hook_resid_pre", "blocks.1.attn.hook_z", "blocks.1.hook_mlp_out"]
    for architecture in ARCHITECTURES:
        model, seen = bridge(architecture), []
        run(model, bridge_tokens(2), [(name, lambda value, hook, seen=seen: seen.append(hook.name)) for name in names])
        assert seen == names


def test_an_edit_that_runs_the_mlp_does_not_fire_its_own_hook_again():
    for architecture in ARCHITECTURES:
        model, inputs, name = bridge(architecture), bridge_tokens(2), "blocks.0.hook_mlp_out"
        calls = []

        def again(value, hook, model=model, calls=calls):
            calls.append(hook.name)
            return model.blocks[0].mlp(value)

        edited = run(model, inputs, {name: again})
        output = activations(model, inputs, [name])[1][name]
        twice = model.blocks[0].mlp(output).detach()
        assert calls == [name]
        torch.testing.assert_close(edited, run(model, inputs, {name: lambda value, hook, new=twice: new}))


def test_a_bias_that_the_architecture_lacks_is_zero():
    weights = head_weights(bridge("llama"), 0)
    assert weights.b_Q.shape == weights.b_K.shape == weights.b_V.shape == (4, 4)
    assert not any(bias.any() for bias in (weights.b_Q, weights.b_K, weights.b_V, weights.b_O))
    assert head_weights(bridge("gpt2"), 0).b_Q.any()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(value):
    model = made()
    with torch.no_grad():
        model.blocks[1].attn.W_O[0, 0, 0] = value
    with pytest.raises(RequestError, match=r"'blocks.1.attn.W_O' hold NaN or infinity"), untouched(model):
        pass
    finite = made(dtype=torch.float32).to(torch.float16)
    with torch.no_grad():
        finite.embed.W_E.fill_(6e4)  # their sum overflows
    with untouched(finite):
        assert not finite.training


def test_inputs_are_tensors_ids_or_texts():
    model = made()
    assert model_inputs(model, TOKENS) is TOKENS
    assert model_inputs(model, [0, 1, 2]).tolist() == [[0, 1, 2]]
    assert model_inputs(model, [[0, 1], [2, 3]]).tolist() == [[0, 1], [2, 3]]
    reads = made()
    reads.tokenizer, reads.to_tokens = object(), lambda text: torch.tensor([[0, *map(int, text.split())]])
    assert model_inputs(reads, "3 4").tolist() == [[0, 3, 4]]
    assert model_inputs(reads, ["3 4", "5 6"]).tolist() == [[0, 3, 4], [0, 5, 6]]
    for inputs, words in (
        ("3 4", "no tokenizer"),
        ([], "at least one example"),
        ([[0, 1], [2]], "1 to 2 tokens"),
        (TOKENS.to("meta"), "on meta, the model on cpu"),
    ):
        with pytest.raises(RequestError, match=words):
            model_inputs(model, inputs)
    with pytest.raises(RequestError, match="on meta, the model on cpu"):
        run(model, TOKENS.to("meta"))


def test_an_attention_mask_hides_what_it_marks():
    for model in (made(positional_embedding_type="rotary", rotary_dim=4), bridge("native"), bridge("gpt2")):
        inputs = torch.tensor([[3, 4, 5, 6, 3]])
        other = inputs.clone()
        other[0, 0] = 2
        mask = torch.tensor([[0, 1, 1, 1, 1]])
        one, two = (run(model, each, attention_mask=mask)[:, 1:] for each in (inputs, other))
        torch.testing.assert_close(one, two)
        assert not torch.allclose(run(model, inputs)[:, 1:], run(model, other)[:, 1:])
        kept = activations(model, inputs, ["blocks.1.attn.hook_z"], attention_mask=mask)[1]
        assert list(kept) == ["blocks.1.attn.hook_z"]
    with pytest.raises(RequestError, match="answers NaN under this attention_mask: pad on the right"):
        run(bridge("llama"), inputs, attention_mask=mask)
    padded = run(bridge("llama"), inputs, attention_mask=mask.flip(1))[:, :-1]
    torch.testing.assert_close(padded, run(bridge("llama"), inputs[:, :-1]))


def test_instruments_work_inside_inference_mode():
    model, plain = made(), None
    for mode in (False, True):
        with torch.inference_mode(mode):
            inputs = TOKENS.clone()
            with untouched(model, gradients=True):
                leaf = {}

                def edit(value, hook, leaf=leaf):
                    leaf["z"] = torch.zeros_like(value).requires_grad_(True)
                    return value + leaf["z"]

                logits = run(model, inputs, {"blocks.0.attn.hook_z": edit})
                gradient = torch.autograd.grad(logits.sum(), leaf["z"])[0]
        plain = gradient if plain is None else plain
        torch.testing.assert_close(gradient, plain)


def test_keys_are_visible_by_the_mask_also_where_the_score_hook_holds_the_pattern():
    names = ["blocks.0.attn.hook_attn_scores", "blocks.0.attn.hook_pattern"]
    for architecture in ARCHITECTURES:
        model = bridge(architecture)
        kept = activations(model, bridge_tokens(2), names)[1]
        seen = visible_keys(model, *(kept[name] for name in names))
        assert torch.equal(seen, torch.ones(2, 4, 6, 6, dtype=torch.bool).tril())
    both = made(attention_dir="bidirectional")
    kept = activations(both, TOKENS, names)[1]
    assert visible_keys(both, *(kept[name] for name in names)).all()
