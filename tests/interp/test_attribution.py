import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from headlab.interp.attribution import direct_logit_attribution
from headlab.interp.errors import RequestError
from headlab.interp.model import activations, head_weights
from headlab.interp.weights import unembedding
from tests.interp.bridges import ARCHITECTURES, bridge
from tests.interp.bridges import tokens as bridge_tokens
from tests.interp.hand_built import arcs, random_model, tokens, two_heads


def test_two_by_two_model_worked_by_hand():
    model = random_model(n_layers=1, n_heads=1, d_model=2, d_head=2, n_ctx=2, d_vocab=2)
    identity = torch.eye(2, dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E.copy_(identity)
        model.blocks[0].attn.W_V[0].copy_(identity)
        model.blocks[0].attn.W_O[0].copy_(2 * identity)
        model.unembed.W_U.copy_(identity)
    # Scores are 0, so the last position averages both tokens; the output map doubles what it moves.
    found = direct_logit_attribution(model, torch.tensor([[0, 1]]), (torch.tensor([0]), torch.tensor([1])))
    assert found.heads.tolist() == [[[[1.0, -1.0]]]]
    assert found.embed.tolist() == [-1.0]
    assert found.positional.tolist() == found.constant.tolist() == [0.0]
    assert found.total.tolist() == found.logits.tolist() == [-1.0]


def test_endpoint_heads_write_their_own_endpoint():
    inputs, target, other, selector = arcs()
    found = direct_logit_attribution(two_heads(), inputs, (target, other))
    by_selector = found.by_factor(selector)
    table = torch.tensor([[float(by_selector[i][0, h].sum()) for i in range(2)] for h in range(2)])
    assert torch.allclose(table, torch.tensor([[0.4997, -0.0003], [-0.0003, 0.4997]]), atol=1e-4)
    assert float(by_selector[0][0, 0, 0]) > 0.49
    assert float(by_selector[1][0, 1, 1]) > 0.49


@pytest.mark.parametrize("norm", [None, "LN", "LNPre", "RMS", "RMSPre"])
@pytest.mark.parametrize("attn_only", [True, False])
def test_terms_add_up_to_the_logits(norm, attn_only):
    model = random_model(normalization_type=norm, attn_only=attn_only)
    inputs = tokens(3)
    directions = torch.randn(3, 7, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    position = torch.tensor([4, 0, -2])
    found = direct_logit_attribution(model, inputs, directions, position=position)
    logits = model(inputs)[torch.arange(3), position]
    assert torch.allclose(found.logits, (logits * directions).sum(-1), atol=1e-12)
    assert torch.allclose(found.total, found.logits, atol=1e-10)


def test_grouped_key_values_rotary_and_float32_add_up():
    model = random_model(
        n_heads=4, n_key_value_heads=2, positional_embedding_type="rotary", rotary_dim=4, dtype=torch.float32
    )
    found = direct_logit_attribution(model, tokens(4), torch.tensor([1, 2, 3, 4]))
    assert found.heads.shape == (4, 2, 4, 5)
    assert torch.equal(found.positional, torch.zeros(4))
    assert torch.allclose(found.total, found.logits, atol=1e-5)


def test_one_head_is_one_term():
    """Zeroing head 1.0's output moves the direction by its own term and no other, where no norm follows."""
    model, inputs, wanted = random_model(), tokens(3), torch.tensor([1, 2, 3])
    before = direct_logit_attribution(model, inputs, wanted)
    with torch.no_grad():
        model.blocks[1].attn.W_O[0].zero_()
    after = direct_logit_attribution(model, inputs, wanted)
    assert torch.allclose(before.logits - after.logits, before.by_head[:, 1, 0], atol=1e-12)
    assert torch.allclose(before.heads[:, 1, 1], after.heads[:, 1, 1], atol=1e-12)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), factor=st.floats(-3, 3))
def test_terms_are_linear_in_the_direction(seed, factor):
    model, inputs = random_model(normalization_type="LN"), tokens(2)
    generator = torch.Generator().manual_seed(seed)
    first, second = torch.randn(2, 2, 7, generator=generator, dtype=torch.float64)
    joint = direct_logit_attribution(model, inputs, first + factor * second)
    apart = [direct_logit_attribution(model, inputs, direction) for direction in (first, second)]
    assert torch.allclose(joint.heads, apart[0].heads + factor * apart[1].heads, atol=1e-10)


def test_a_head_that_reads_nothing_has_no_term():
    model = random_model()
    with torch.no_grad():
        model.blocks[0].attn.W_V.zero_()
        model.blocks[0].attn.b_V.zero_()
    found = direct_logit_attribution(model, tokens(3), torch.tensor([1, 2, 3]))
    assert float(found.heads[:, 0].abs().max()) == 0.0
    assert float(found.heads[:, 1].abs().max()) > 0.01


class Projection(nn.Module):
    """A read-out without W_U: every second coordinate."""

    def forward(self, residual):
        return residual[..., ::2]


class Squared(nn.Module):
    def forward(self, residual):
        return residual.square()


class Rectified(nn.Module):
    def forward(self, residual):
        return residual.relu()


class Pooled(nn.Module):
    def forward(self, residual):
        return residual.cumsum(1)


def test_a_replaced_linear_read_out_is_taken_as_it_is():
    model = random_model()
    model.unembed = Projection()
    found = direct_logit_attribution(model, tokens(3), torch.tensor([0, 1, 3]))
    assert torch.allclose(found.total, found.logits, atol=1e-12)


@pytest.mark.parametrize("read_out", [Squared, Rectified, Pooled])
def test_another_read_out_is_refused(read_out):
    model = random_model()
    model.unembed = read_out()
    with pytest.raises(RequestError, match="not linear in the final residual"):
        direct_logit_attribution(model, tokens(3), torch.tensor([0, 1, 3]))


def test_under_a_cap_the_logits_are_those_before_it():
    model, wanted = random_model(output_logits_soft_cap=1.0, normalization_type="LN"), torch.tensor([0, 1, 3])
    found = direct_logit_attribution(model, tokens(3), wanted)
    assert torch.allclose(torch.tanh(found.total), model(tokens(3))[torch.arange(3), -1, wanted], atol=1e-10)
    assert float(found.total.abs().max()) > 1
    assert found.notes == ("the model caps its logits at 1: these are the logits before the cap",)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("norm", [None, "LN", "RMS"])
def test_half_precision_has_an_answer_in_float32(dtype, norm):
    model = random_model(dtype=dtype, normalization_type=norm, attn_only=False, scale=0.3)
    exact = random_model(normalization_type=norm, attn_only=False, scale=0.3)
    with torch.no_grad():
        for one, other in zip(exact.parameters(), model.parameters(), strict=True):
            one.copy_(other)
    wanted = torch.tensor([0, 1, 3])
    found, expected = (direct_logit_attribution(each, tokens(3), wanted) for each in (model, exact))
    assert found.heads.dtype == found.logits.dtype == torch.float32
    size = float(expected.heads.abs().max())
    assert torch.allclose(found.heads, expected.heads.float(), atol=0.05 * size)
    assert size > 0.05


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_bridge_s_terms_add_up_and_a_head_s_is_its_own(architecture):
    """A head's term is what it writes at the position, over the final norm's scale, unembedded."""
    model, inputs, wanted = bridge(architecture), bridge_tokens(3), torch.tensor([3, 4, 5])
    found = direct_logit_attribution(model, inputs, wanted)
    logits = model(inputs)[torch.arange(3), -1, wanted]
    torch.testing.assert_close(found.logits, logits, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.total, logits, rtol=1e-5, atol=1e-5)

    whole = activations(model, inputs, ["blocks.1.hook_resid_post"])[1]["blocks.1.hook_resid_post"]
    z = activations(model, inputs, ["blocks.1.attn.hook_z"])[1]["blocks.1.attn.hook_z"][:, -1, 2]
    write = z @ head_weights(model, 1).W_O[2]
    centred = whole[:, -1] - whole[:, -1].mean(-1, keepdim=True) if architecture in ("native", "gpt2") else whole[:, -1]
    scale = (centred.square().mean(-1, keepdim=True) + model.cfg.eps).sqrt()
    expected = ((write / scale) @ unembedding(model))[torch.arange(3), wanted]
    torch.testing.assert_close(found.by_head[:, 1, 2], expected, rtol=1e-5, atol=1e-5)


def test_clipped_values_and_another_final_norm_add_up():
    for config in ({"clip_qkv": 0.3}, {"normalization_type": "LN", "final_rms": True}, {"normalization_type": "LNPre"}):
        model = random_model(**config)
        found = direct_logit_attribution(model, tokens(3), torch.tensor([0, 1, 3]))
        assert torch.allclose(found.logits, model(tokens(3))[torch.arange(3), -1, torch.tensor([0, 1, 3])], atol=1e-12)


def test_padding_is_seen_by_no_head():
    model, inputs = random_model(), tokens(2)
    mask = torch.ones_like(inputs)
    mask[:, :2] = 0
    found = direct_logit_attribution(model, inputs, torch.tensor([1, 2]), attention_mask=mask)
    assert not found.heads[..., :2].any()
    logits = model(inputs, attention_mask=mask)[torch.arange(2), -1, torch.tensor([1, 2])]
    assert torch.allclose(found.total, logits, atol=1e-10)


def test_a_norm_after_the_attention_is_refused():
    model = random_model(normalization_type="RMS", use_normalization_before_and_after=True)
    with pytest.raises(ValueError, match="do not add up to its attention output"):
        direct_logit_attribution(model, tokens(3), torch.tensor([0, 1, 3]))


@pytest.mark.parametrize(
    ("directions", "position", "error", "words"),
    [
        (torch.zeros(2, 7), -1, ValueError, r"\[example, vocabulary\] = \(3, 7\)"),
        (torch.tensor([0, 1]), -1, ValueError, "2 tokens for 3 examples"),
        (torch.tensor([0, 1, 7]), -1, IndexError, "ids go from 0 to 6"),
        (torch.tensor([0, 1, 2]), 5, IndexError, "positions 0 to 4"),
        (torch.tensor([0, 1, 2]), torch.tensor([1, 2]), ValueError, "2 positions for 3 examples"),
    ],
)
def test_what_does_not_fit_is_one_sentence(directions, position, error, words):
    with pytest.raises(error, match=words):
        direct_logit_attribution(random_model(), tokens(3), directions, position=position)


def test_nothing_of_the_model_is_touched():
    model = random_model(normalization_type="LN").train()
    state = torch.get_rng_state()
    seen = []
    model.blocks[0].hook_resid_pre.add_hook(lambda value, hook: seen.append(hook.name), is_permanent=True)
    before = model(tokens(2))
    direct_logit_attribution(model, tokens(2), torch.tensor([1, 2]))
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(model(tokens(2)), before)
    assert len(model.blocks[0].hook_resid_pre.fwd_hooks) == 1
    assert len(seen) > 2


def test_frame_holds_every_term_once():
    model = random_model(attn_only=False)
    found = direct_logit_attribution(model, tokens(3), torch.tensor([1, 2, 3]))
    frame = found.to_frame()
    assert torch.allclose(torch.tensor(frame.groupby("example").attribution.sum().values), found.logits, atol=1e-12)
    picked = frame.query("component == 'head' and example == 1 and layer == 1 and head == 0 and source == 3")
    assert picked.attribution.item() == float(found.heads[1, 1, 0, 3])
