import pytest
import torch

from headlab.interp.attribution_patching import estimate_patches
from headlab.interp.interventions import Intervention
from headlab.interp.patching import patch_sweep
from tests.interp.hand_built import arcs, random_model, tokens, two_heads

COMPONENTS = ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out", "z", "q", "k", "v", "pattern")


def first_token(logits):
    return logits[:, -1, 0] - 0.3 * logits[:, 0, 1]


@pytest.mark.parametrize("component", COMPONENTS)
def test_small_patches_have_the_effect_of_the_estimate(component):
    """The other run is the same one with embeddings moved a little: what is left is of second order."""
    model, inputs = random_model(normalization_type="LN", attn_only=False), tokens(3)
    moved = random_model(normalization_type="LN", attn_only=False)
    with torch.no_grad():
        moved.embed.W_E.add_(1e-6 * torch.randn(7, 8, generator=torch.Generator().manual_seed(5), dtype=torch.float64))

    class Moved(Intervention):
        def values(self, model, destination, run, *masks, **options):
            return super().values(moved, destination, run, *masks, **options)

        def drawn(self, destination, *masks, **options):
            return torch.arange(len(destination))

    put = Moved("resample", inputs)
    by = ("layer", "head", "destination", "source") if component == "pattern" else None
    found = estimate_patches(model, put, inputs, first_token, component=component, by=by, exact=True)
    assert found.exact is not None
    assert found.estimate.axes == found.exact.axes
    size = float(found.exact.effects.abs().max())
    assert size > 1e-8
    assert torch.allclose(found.estimate.effects, found.exact.effects, atol=1e-3 * size)


@pytest.mark.parametrize(
    "options",
    [
        {"component": "z", "by": ("head", "layer")},
        {"component": "z", "heads": [1], "positions": [0, 4], "by": ("position", "layer")},
        {"component": "pattern", "sources": [0, 1], "by": ("layer", "destination")},
        {"component": "resid_pre", "layers": [1], "read": (4, 0)},
        {"component": "k", "direction": "noising"},
    ],
)
def test_exact_where_the_metric_is_linear_in_the_site(options):
    """The last layer without norm, MLP or change of attention is linear; the first one is not and is left out."""
    model, inputs, source = random_model(n_layers=1), tokens(3), tokens(3, seed=1)
    if options["component"] == "k":
        with torch.no_grad():
            model.blocks[0].attn.W_Q.zero_()
            model.blocks[0].attn.b_Q.zero_()

    def linear(logits):
        return logits[:, 0, 0] - logits[:, -1, 3]

    options = {**options, "layers": [0]}
    if options["component"] == "resid_pre":
        options["component"] = "resid_post"
    found = estimate_patches(model, source, inputs, linear, exact=True, **options)
    exact = patch_sweep(model, source, inputs, linear, **options)
    assert torch.allclose(found.estimate.effects, exact.effects, atol=1e-12)
    assert found.estimate.axes == exact.axes
    assert torch.equal(found.estimate.source, exact.source)


def test_two_metrics_and_the_frame():
    model, inputs, source = random_model(), tokens(3), tokens(3, seed=1)
    metrics = {"first": first_token, "second": lambda logits: logits[:, -1, 2]}
    found = estimate_patches(model, source, inputs, metrics, component="z", exact=True)
    assert found.estimate.values.shape == (2, 2, 2, 5, 3)
    frame = found.to_frame()
    assert len(frame) == 2 * 20
    correlation = found.correlation("second")
    assert correlation is not None
    assert 0.5 < correlation <= 1.0
    assert estimate_patches(model, source, inputs, metrics, component="z").correlation() is None


def test_the_run_itself_as_source_changes_nothing():
    model, inputs = random_model(normalization_type="LN"), tokens(3)
    found = estimate_patches(model, inputs, inputs, first_token, component="v", exact=True)
    assert not found.estimate.effects.any()
    assert found.correlation() is None


def test_saturated_heads_are_named():
    inputs, target, other, selector = arcs()
    rows = torch.arange(len(inputs))
    flipped = inputs.clone()
    flipped[:, 2] = inputs[:, 2] + 1 - 2 * selector

    def difference(logits):
        return logits[rows, 0, target] - logits[rows, 0, other]

    found = estimate_patches(
        two_heads(M=16.0), flipped, inputs, difference, component="k", read=(3,), direction="noising", exact=True
    )
    assert found.warning is not None
    assert "0.0 (50%)" in found.warning
    assert found.warning in found.estimate.notes
    assert found.exact is not None
    at = (0, 0, 2)
    assert abs(float(found.estimate.effect()[at])) < 1e-3 * abs(float(found.exact.effect()[at]))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"component": "zz"}, KeyError, "unknown component"),
        ({"layers": [7]}, IndexError, "layer 7"),
        ({"direction": "sideways"}, KeyError, "denoising or noising"),
        ({"source": tokens(3)[:, :3]}, ValueError, "same length and batch"),
        ({"metrics": {}}, ValueError, "no metric"),
        ({"metrics": lambda logits: (logits[:, -1, 0] > 0).double()}, ValueError, "has no gradient"),
        ({"metrics": lambda logits: (logits[:, -1, 0] * 0).sqrt()}, ValueError, "is not finite"),
    ],
)
def test_what_cannot_be_estimated_is_one_sentence(change, error, words):
    options = {"source": tokens(3, seed=1), "metrics": first_token, "component": "z", **change}
    source, metrics = options.pop("source"), options.pop("metrics")
    with pytest.raises(error, match=words):
        estimate_patches(random_model(), source, tokens(3), metrics, **options)


def test_nothing_of_the_model_is_touched():
    model, inputs = random_model(normalization_type="LN").train(), tokens(2)
    before, state = model(inputs), torch.get_rng_state()
    estimate_patches(model, tokens(2, seed=1), inputs, first_token, component="q")
    assert model.training
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(model(inputs), before)
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(point.fwd_hooks for point in model.hook_dict.values())
