import pytest
import torch

from headlab.interp.ablation import ablate_heads
from headlab.interp.interventions import donors
from headlab.interp.model import activations, run
from tests.interp.hand_built import arcs, random_model, tokens, two_heads


def last_logit(logits):
    return logits[:, -1, 2]


@pytest.fixture(scope="module")
def model():
    return random_model(n_heads=3, n_layers=2)


def zeroed(head):
    def edit(z, hook):
        z = z.clone()
        z[:, :, head] = 0
        return z

    return edit


def test_zero_ablation_of_a_head_is_z_set_to_zero(model):
    inputs = tokens(4)
    result = ablate_heads(model, inputs, last_logit, kind="zero")
    assert result.groups == tuple(((layer, head),) for layer in range(2) for head in range(3))
    base = last_logit(model(inputs))
    for row, ((layer, head),) in enumerate(result.groups):
        cut = last_logit(run(model, inputs, {f"blocks.{layer}.attn.hook_z": zeroed(head)}))
        assert torch.allclose(result.effect[row], (base - cut).detach(), atol=1e-12)


def test_one_head_changes_and_no_other(model):
    inputs, name = tokens(4), "blocks.0.hook_attn_out"
    seen = {}

    def spy(logits):
        return last_logit(logits)

    def record(value, hook):
        seen["out"] = value.detach().clone()

    model.add_hook(name, record)
    try:
        ablate_heads(model, inputs, spy, kind="zero", groups=[[(0, 1)]])
    finally:
        model.reset_hooks()
    z = activations(model, inputs, ["blocks.0.attn.hook_z"])[1]["blocks.0.attn.hook_z"]
    others = sum(z[:, :, head] @ model.W_O[0, head] for head in (0, 2))
    # Zero means zero values: b_V goes with the head, the shared b_O stays.
    assert model.b_V[0].abs().min() > 0
    assert model.b_O[0].abs().min() > 0
    assert torch.allclose(seen["out"], (others + model.b_O[0]).detach(), atol=1e-12)


def test_means_and_resamples_are_over_the_reference(model):
    inputs, reference = tokens(5), tokens(9, seed=3)
    name = "blocks.1.attn.hook_z"
    held = activations(model, reference, [name])[1][name]
    drawn = donors(5, seed=11, available=9)
    expected = {
        "mean": held.mean((0, 1)).expand(5, 5, -1, -1),
        "positional_mean": held.mean(0).expand(5, -1, -1, -1),
        "resample": held[drawn],
    }
    base = last_logit(model(inputs))
    for kind, value in expected.items():
        result = ablate_heads(model, inputs, last_logit, kind=kind, reference=reference, seed=11, groups=[[(1, 2)]])

        def edit(z, hook, value=value):
            return torch.cat([z[:, :, :2], value[:, :, 2:]], 2)

        assert torch.allclose(
            result.effect[0], (base - last_logit(run(model, inputs, {name: edit}))).detach(), atol=1e-12
        )
        assert result.kind == kind
        assert result.reference is reference
        assert "over 9 examples" in result.intervention


def test_groups_are_ablated_together(model):
    inputs, pair = tokens(4), [(0, 1), (1, 2)]
    result = ablate_heads(model, inputs, last_logit, kind="zero", groups=[pair, [(1, 2), (0, 1), (0, 1)]])
    both = run(model, inputs, {"blocks.0.attn.hook_z": zeroed(1), "blocks.1.attn.hook_z": zeroed(2)})
    assert torch.allclose(result.effect[0], (last_logit(model(inputs)) - last_logit(both)).detach(), atol=1e-12)
    assert torch.equal(result.effect[0], result.effect[1])
    assert result.to_frame()["layer"].isna().all()


def test_two_heads_of_endpoint_selection_split_by_selector():
    model = two_heads(5)
    inputs, target, _, selector = arcs(5)
    rows = torch.arange(len(inputs))

    def accuracy(logits):
        final = logits[:, -1]
        others = final.clone()
        others[rows, target] = -torch.inf
        return (final[rows, target] > others.max(-1).values).double()

    result = ablate_heads(model, inputs, accuracy, kind="zero")
    assert result.baseline.eq(1).all()
    by_selector = result.by_factor(selector)
    kept = [[1 - float(by_selector[level][head]) for level in (0, 1)] for head in (0, 1)]
    assert kept == [[0, 1], [1, 0]]
    matched = ablate_heads(
        model, inputs, accuracy, kind="matched_resample", reference=inputs, factors={"selector": selector}, seed=0
    )
    by_selector = matched.by_factor(selector)
    for head in (0, 1):
        assert by_selector[1 - head][head] == 0
        assert by_selector[head][head] > 0.6
    frame = matched.to_frame({"selector": selector})
    assert list(frame.columns) == [
        "group", "layer", "head", "example", "baseline", "ablated", "effect", "kind", "metric", "selector",
    ]  # fmt: skip
    assert len(frame) == 2 * len(inputs)
    assert ((frame.baseline - frame.ablated) == frame.effect).all()


def test_an_ablation_that_missed_is_said_to_have_missed(model):
    result = ablate_heads(model, tokens(3), lambda logits: logits[:, 0, 0] * 0, kind="zero")
    assert result.warning is not None
    assert "exactly 0" in result.warning
    assert ablate_heads(model, tokens(3), last_logit, kind="zero").warning is None


def test_float_inputs_of_a_task_pass():
    from torch import nn

    model = random_model(n_layers=1)

    class Encoder(nn.Module):
        def forward(self, x):
            return x

    model.embed, model.pos_embed.W_pos.data = Encoder(), model.pos_embed.W_pos.data
    inputs = torch.randn(3, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model.pos_embed = nn.Module()
    model.pos_embed.forward = lambda x, *rest: torch.zeros_like(x)  # type: ignore[method-assign]
    assert ablate_heads(model, inputs, last_logit, kind="mean", reference=inputs).effect.shape == (2, 3)


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"kind": "mean"}, ValueError, "mean needs reference data"),
        ({"kind": "resample"}, ValueError, "resample needs reference data"),
        ({"kind": "matched_resample", "reference": tokens(3)}, ValueError, "needs factors"),
        ({"kind": "drop"}, KeyError, "unknown kind"),
        ({"kind": "patch"}, KeyError, "patch_sweep"),
        ({"kind": "zero", "layers": [2]}, IndexError, "layer 2 does not exist"),
        ({"kind": "zero", "groups": [[(0, 3)]]}, IndexError, "head 3 does not exist: there are heads 0 to 2"),
        ({"kind": "zero", "groups": [[(5, 0)]]}, IndexError, "layer 5 does not exist"),
        ({"kind": "zero", "groups": [[]]}, ValueError, "at least one"),
        ({"kind": "zero", "groups": [[(0, 0)]], "layers": [0]}, ValueError, "not both"),
        ({"kind": "positional_mean", "reference": tokens(3)[:, :4]}, ValueError, "same length"),
    ],
)
def test_a_wrong_request_is_one_sentence(model, options, error, told):
    with pytest.raises(error, match=told):
        ablate_heads(model, tokens(3), last_logit, **options)


@pytest.mark.parametrize(
    ("metric", "told"),
    [
        (lambda logits: logits[:, -1], r"returned shape \[3, 7\]: return one number per example, shape \[3\]"),
        (lambda logits: logits.mean(), r"returned shape \[\]"),
        (lambda logits: logits.mean().item(), "returned a float: .* without .item"),
        (lambda logits: logits[:, -1, 0] * torch.nan, "returned nan for example 0"),
        (lambda logits: logits[:, -1, 0] / 0, "returned -?inf for example 0"),
        (lambda logits: logits.sub_(1)[:, -1, 0], "edits the logits in place"),
    ],
)
def test_a_metric_gives_one_finite_number_per_example(model, metric, told):
    with pytest.raises(ValueError, match=told):
        ablate_heads(model, tokens(3), metric, kind="zero")


def test_by_factor_needs_one_level_each(model):
    result = ablate_heads(model, tokens(3), last_logit, kind="zero")
    with pytest.raises(ValueError, match="2 levels were given for 3 examples"):
        result.by_factor(torch.tensor([0, 1]))


def test_positions_and_read_choose_where_heads_are_replaced_and_what_is_seen(model):
    inputs = tokens(4)

    def zero_at(z, hook):
        z = z.clone()
        z[:, [1, 3], 2] = 0
        return z

    cut = run(model, inputs, {"blocks.0.attn.hook_z": zero_at})
    expected = (model(inputs) - cut)[:, 4, 2] - (model(inputs) - cut)[:, 2, 5]
    result = ablate_heads(
        model,
        inputs,
        lambda logits: logits[:, 0, 2] - logits[:, 1, 5],
        kind="zero",
        groups=[[(0, 2)]],
        positions=[3, 1],
        read=[-1, 2],
    )
    assert result.engine == "cone"
    assert result.read == (4, 2)
    assert torch.allclose(result.effect[0], expected.detach(), atol=1e-12)
