"""The logit lens and the layers' terms, against sums written out by hand and against transformer-lens' own."""

import pytest
import torch

from headlab.interp.depth import layer_attribution, logit_lens
from headlab.interp.errors import OutOfRange
from headlab.models.hooked import Architecture, build, initialise

SIZE = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_head": 8, "n_ctx": 6, "d_vocab": 11, "act_fn": "gelu"}
KINDS = {
    "attention only, no norm": {"attn_only": True, "normalization_type": None},
    "MLP, LN": {"d_mlp": 24, "normalization_type": "LN"},
    "gated, RMS": {"d_mlp": 24, "gated_mlp": True, "act_fn": "silu", "normalization_type": "RMS", "final_rms": True},
    "capped": {"d_mlp": 24, "normalization_type": "RMS", "output_logits_soft_cap": 3.0},
}


def model_of(kind, scale=0.5):
    made = build(Architecture({**SIZE, **KINDS[kind]}), dtype=torch.float64)
    initialise(made, scale=scale, seed=1)
    return made


@pytest.fixture
def tokens():
    return torch.randint(11, (3, 6), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_depth_is_the_model_s_answer(kind, tokens):
    model = model_of(kind)
    right, wrong = tokens[:, 0], tokens[:, 1]
    lens = logit_lens(model, tokens, (right, wrong), positions=[-1, 2])
    with torch.no_grad():
        logits = model(tokens)
    rows = torch.arange(3)
    expected = logits[rows, :, right] - logits[rows, :, wrong]
    torch.testing.assert_close(lens.values[:, -1], expected[:, [5, 2]])
    assert torch.equal(lens.best[:, -1], logits.argmax(-1)[:, [5, 2]])
    torch.testing.assert_close(lens.probability[:, -1], logits.softmax(-1).amax(-1)[:, [5, 2]])
    assert lens.positions == (5, 2)


@pytest.mark.parametrize("kind", ["attention only, no norm", "MLP, LN", "gated, RMS"])
def test_every_depth_by_hand(kind, tokens):
    model = model_of(kind)
    lens = logit_lens(model, tokens, tokens[:, 0])
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens)
        stack, labels = cache.accumulated_resid(apply_ln=False, incl_mid=not model.cfg.attn_only, return_labels=True)
        expected = torch.stack(
            [model.unembed(model.ln_final(each) if hasattr(model, "ln_final") else each) for each in stack], 1
        )
    assert len(labels) == len(lens.depths)
    picked = expected[
        torch.arange(3)[:, None, None], torch.arange(len(labels))[:, None], torch.arange(6), tokens[:, :1, None]
    ]
    torch.testing.assert_close(lens.values, picked)
    assert len(lens.to_frame()) == lens.values.numel()
    assert "svg" in lens.render(position_names=list("abcdef"))._repr_html_()


def test_without_a_norm_the_accumulated_terms_are_the_lens(tokens):
    model = model_of("attention only, no norm")
    terms = layer_attribution(model, tokens, tokens[:, 0], position=3)
    lens = logit_lens(model, tokens, tokens[:, 0], positions=[3])
    attention_only_depths = terms.accumulated[:, ::2]  # an MLP that is not there adds a depth that changes nothing
    torch.testing.assert_close(attention_only_depths, lens.values[..., 0])


@pytest.mark.parametrize("kind", ["MLP, LN", "gated, RMS"])
def test_terms_add_up_and_each_is_its_own(kind, tokens):
    model = model_of(kind)
    terms = layer_attribution(model, tokens, tokens[:, 0])
    with torch.no_grad():
        logits, cache = model.run_with_cache(tokens)
        rows = torch.arange(3)
        torch.testing.assert_close(terms.accumulated[:, -1], logits[rows, -1, tokens[:, 0]])
        direction = model.ln_final.w * model.W_U.T[tokens[:, 0]] if kind == "gated, RMS" else None
        if direction is not None:
            scale = cache["ln_final.hook_scale"][:, -1]
            mlp = (cache["blocks.1.hook_mlp_out"][:, -1] / scale * direction).sum(-1)
            torch.testing.assert_close(terms.mlps[:, 1], mlp)
    frame = terms.to_frame()
    assert frame["attribution"].sum() == pytest.approx(
        float((terms.accumulated[:, -1] - terms.start - terms.constant).mean()), abs=1e-9
    )
    assert "svg" in terms.render()._repr_html_()


def test_nothing_written_means_a_flat_lens(tokens):
    model = model_of("MLP, LN")
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_O.zero_()
            block.mlp.W_out.zero_()
    lens = logit_lens(model, tokens, tokens[:, 0])
    assert float((lens.values - lens.values[:, :1]).abs().max()) < 1e-12


def test_a_position_that_does_not_exist(tokens):
    with pytest.raises(OutOfRange, match="0 to 5"):
        logit_lens(model_of("MLP, LN"), tokens, tokens[:, 0], positions=[6])
