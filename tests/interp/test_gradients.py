import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headlab.interp.circuits import END, START, Edge, Node
from headlab.interp.gradients import estimate_edges, saturation
from headlab.interp.interventions import Intervention
from headlab.interp.paths import patch_edges
from tests.interp.hand_built import arcs, random_model, tokens, two_heads

METHODS = ("eap", "eap-ig-inputs", "eap-ig-activations")


def first_token(logits):
    return logits[:, -1, 0] - 0.3 * logits[:, 0, 1]


def test_two_keys_worked_by_hand():
    """One query, two keys: moving the second key's score from 0 moves its weight 1/2 by the slope 1/4."""
    model = random_model(n_layers=1, n_heads=1, d_model=2, d_head=2, n_ctx=2, d_vocab=2, use_attn_scale=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E.copy_(torch.tensor([[1.0, 0.0], [1.0, 2.0]]))
        attention = model.blocks[0].attn
        attention.W_Q[0, 0, 0] = 1.0
        attention.b_K[0, 0] = 0.0
        attention.W_K[0, 1, 0] = 3.0
        attention.W_V[0, 1, 1] = 1.0
        attention.W_O[0, 1, 1] = 1.0
        model.unembed.W_U[1, 1] = 1.0
    put = Intervention("patch", torch.tensor([[0, 1]]))
    found = estimate_edges(model, torch.tensor([[0, 0]]), lambda logits: logits[:, -1, 1], put, exact=True)
    effects = dict(zip(map(str, found.edges), found.effect[:, 0].tolist(), strict=True))
    # The key alone changes by 3 * 2 = 6, and all values are 0: no effect. The value changes by 2, at weight 1/2.
    assert effects["start -> 0.0.k@1"] == 0.0
    assert effects["start -> 0.0.v@1"] == -1.0
    assert effects["start -> end@1"] == -2.0
    assert torch.equal(found.effect, found.exact)
    # With a value of 2 at the second position, its key's slope is 1/4 * 2 a unit of score.
    back = estimate_edges(
        model,
        torch.tensor([[0, 1]]),
        lambda logits: logits[:, -1, 1],
        Intervention("patch", torch.tensor([[0, 0]])),
        edges=[Edge(START, Node("head", 0, 0), "k", 1)],
        exact=True,
    )
    weight = float(torch.tensor(6.0, dtype=torch.float64).sigmoid())
    assert back.effect.item() == pytest.approx(2 * weight * (1 - weight) * 6)
    assert back.exact is not None
    assert back.exact.item() == pytest.approx(2 * (weight - 0.5))


@pytest.mark.parametrize("method", METHODS)
def test_exact_where_the_model_is_linear(method):
    """With constant attention, no norm and no MLP every effect is linear in what is replaced."""
    model = random_model()
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_Q.zero_()
            block.attn.b_Q.zero_()
    found = estimate_edges(
        model, tokens(3), first_token, Intervention("patch", tokens(3, seed=1)), method=method, steps=2, exact=True
    )
    assert found.exact is not None
    assert torch.allclose(found.effect, found.exact, atol=1e-12)
    assert float(found.effect.abs().max()) > 0.1


@pytest.mark.parametrize("config", [{"normalization_type": "LN", "attn_only": False}, {"n_layers": 3}])
def test_eap_is_the_derivative_of_patching(config):
    """The reference is a run whose embeddings are moved a little, so little that the estimate is the effect."""
    model, inputs = random_model(**config), tokens(3)
    moved = random_model(**config)
    step = 1e-6
    with torch.no_grad():
        moved.embed.W_E.add_(step * torch.randn(7, 8, generator=torch.Generator().manual_seed(5), dtype=torch.float64))

    class Shifted(Intervention):
        def values(self, model, destination, run, **options):
            return super().values(moved, destination, run, **options)

    put = Shifted("patch", inputs)
    found = estimate_edges(model, inputs, first_token, put, exact=True)
    assert found.exact is not None
    size = float(found.effect.abs().max())
    assert size > 1e-7
    assert torch.allclose(found.effect, found.exact, atol=1e-3 * size)


def test_integrated_gradients_over_inputs_are_complete():
    """The estimates of all edges out of the start add up to the whole change between the two runs."""
    model, inputs, source = random_model(normalization_type="LN", attn_only=False), tokens(3), tokens(3, seed=1)
    put = Intervention("patch", source)
    found = estimate_edges(model, inputs, first_token, put, method="eap-ig-inputs", steps=40)
    start = torch.tensor([edge.source == START for edge in found.edges])
    expected = (first_token(model(inputs)) - first_token(model(source))).detach()
    assert torch.allclose(found.effect[start].sum(0), expected, atol=1e-3 * float(expected.abs().max()))


def test_integrated_activations_are_exact_for_the_last_edges():
    """An edge into the end of a model with a final norm: the integral along its own source is the effect itself."""
    model = random_model(n_layers=1, n_heads=1, normalization_type="LN")
    edge = Edge(Node("head", 0, 0), END, "end", 4)
    put = Intervention("patch", tokens(3, seed=1))

    def last(logits):
        return logits[:, -1, 0]

    errors = {
        method: (
            lambda found: float((found.effect - found.exact).abs().max()),
            estimate_edges(model, tokens(3), last, put, method=method, steps=50, edges=[edge], exact=True),
        )
        for method in ("eap", "eap-ig-activations")
    }
    measured = {method: error(found) for method, (error, found) in errors.items()}
    assert measured["eap-ig-activations"] < 1e-4
    assert measured["eap"] > 10 * measured["eap-ig-activations"]


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 1000), method=st.sampled_from(METHODS))
def test_the_run_itself_as_source_changes_nothing(seed, method):
    model, inputs = random_model(seed=seed, n_layers=1), tokens(2, seed=seed)
    found = estimate_edges(model, inputs, first_token, Intervention("patch", inputs), method=method, steps=2)
    assert not found.effect.any()


def test_saturated_heads_are_named_and_their_estimates_are_too_small():
    inputs, target, other, _ = arcs()
    rows = torch.arange(len(inputs))

    def difference(logits):
        return logits[rows, 3, target] - logits[rows, 3, other]

    put = Intervention("positional_mean", inputs)
    key = Edge(START, Node("head", 0, 0), "k", 2)
    soft, hard = (
        estimate_edges(two_heads(M=sink), inputs, difference, put, edges=[key], exact=True) for sink in (2.0, 16.0)
    )
    assert soft.warning is None
    assert hard.warning is not None
    assert "0.0 (50%), 0.1 (50%)" in hard.warning
    assert hard.exact is not None
    assert float(hard.scores()) < 1e-4 * float(hard.exact.abs().mean())
    assert saturation(two_heads(M=16.0), inputs).tolist() == [[0.5, 0.5]]
    assert not saturation(random_model(scale=0.1), tokens(4)).any()


def test_a_row_with_one_key_is_not_saturated():
    model = random_model(n_ctx=1, n_layers=1)
    assert not saturation(model, tokens(3, positions=1)).any()


def test_the_exact_effect_is_that_of_patching():
    model, inputs, put = random_model(), tokens(2), Intervention("resample", tokens(5, seed=1), seed=3)
    found = estimate_edges(model, inputs, first_token, put, exact=True)
    patched = patch_edges(model, inputs, first_token, put)
    assert found.edges == patched.edges
    assert found.exact is not None
    assert torch.equal(found.exact, patched.effect)
    assert "exact" in found.to_frame().columns
    assert found.engine == "gradient"


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"method": "guess"}, KeyError, "choose one of eap"),
        ({"steps": 0}, ValueError, "at least 1"),
        ({"metric": lambda logits: (logits[:, -1, 0] > 0).double()}, ValueError, "has no gradient"),
        ({"metric": lambda logits: (logits[:, -1, 0] * 0).sqrt()}, ValueError, "is not finite"),
        ({"edges": [Edge(START, END, "end", 9)]}, IndexError, "no such position"),
    ],
)
def test_what_cannot_be_estimated_is_one_sentence(change, error, words):
    options = {"metric": first_token, **change}
    with pytest.raises(error, match=words):
        estimate_edges(random_model(), tokens(2), intervention=Intervention("zero"), **options)


def test_nothing_of_the_model_is_touched():
    model, inputs = random_model(normalization_type="LN").train(), tokens(2)
    before, state = model(inputs), torch.get_rng_state()
    estimate_edges(model, inputs, first_token, Intervention("zero"), method="eap-ig-activations", steps=2)
    assert model.training
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(model(inputs), before)
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(point.fwd_hooks for point in model.hook_dict.values())
