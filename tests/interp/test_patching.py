import io
import warnings
from contextlib import redirect_stdout
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from headlab.interp.interventions import Intervention
from headlab.interp.model import activations, run
from headlab.interp.patching import patch_contrast, patch_sweep
from tests.interp.hand_built import arcs, random_model, tokens, two_heads


def score(logits):
    return logits[:, -1, 2] - logits[:, -1, 4]


def tail(logits):
    return logits[:, 0, 1] + logits[:, -1, 3] ** 2


@pytest.fixture(scope="module")
def model():
    return random_model(normalization_type="LN", attn_only=False)


@pytest.fixture(scope="module")
def runs():
    return tokens(6, seed=1), tokens(6, seed=2)


def own_metric(metric, model, inputs):
    return metric(model(inputs)).detach()


@pytest.mark.parametrize("engine", ["cone", "expand"])
def test_the_whole_residual_stream_gives_the_source_logits(model, runs, engine):
    for component in ("resid_pre", "resid_mid", "resid_post"):
        result = patch_sweep(model, *runs, score, component=component, by=("layer",), engine=engine)
        assert result.engine == engine
        assert torch.allclose(result.values[0], own_metric(score, model, runs[0]).expand(2, -1), atol=1e-12)
        assert torch.allclose(result.normalised(), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("engine", ["cone", "expand"])
@pytest.mark.parametrize("component", ["resid_pre", "resid_mid", "attn_out", "mlp_out", "z", "q", "k", "v", "pattern"])
def test_source_equal_to_destination_is_a_no_op_to_the_bit(model, runs, component, engine):
    result = patch_sweep(model, runs[1], runs[1], score, component=component, engine=engine)
    assert not result.effects.any()
    assert not result.ran.any()
    assert result.normalised() is None
    assert "nothing to recover" in result.why_not()
    assert not torch.isnan(result.values).any()


def test_one_cell_by_hand(model, runs):
    source, destination = runs
    name = "blocks.0.attn.hook_z"
    z = activations(model, source, [name])[1][name]

    def edit(value, hook):
        value = value.clone()
        value[:, 3, 1] = z[:, 3, 1]
        return value

    expected = score(run(model, destination, {name: edit})).detach()
    found = patch_sweep(model, source, destination, score, component="z", layers=[0], heads=[1], positions=[3])
    assert found.axes == ("layer", "head", "position")
    assert found.labels == {"layer": (0,), "head": (1,), "position": (3,)}
    assert found.values.shape == (1, 1, 1, 1, 6)
    assert torch.allclose(found.values[0, 0, 0, 0], expected, atol=1e-12)
    assert torch.allclose(
        found.effect()[0, 0, 0], (expected - own_metric(score, model, destination)).mean(), atol=1e-12
    )


def test_source_goes_into_destination_and_not_the_other_way(model, runs):
    there = patch_sweep(model, *runs, score, component="resid_pre", layers=[1])
    back = patch_sweep(model, *runs[::-1], score, component="resid_pre", layers=[1])
    assert torch.allclose(there.destination, back.source)
    assert torch.allclose(there.source, back.destination)
    assert torch.allclose(there.destination[0], own_metric(score, model, runs[1]))
    assert not torch.allclose(there.values, back.values)


def test_noising_counts_what_is_lost(model, runs):
    contrast = SimpleNamespace(
        source=runs[0], destination=runs[1], read=(-1,), metrics={"score": score, "other": score}
    )
    denoised = patch_contrast(model, contrast, component="resid_post", by=("layer",), metric="score")
    noised = patch_contrast(model, contrast, component="resid_post", by=("layer",), metric="score", direction="noising")
    gap = (own_metric(score, model, runs[0]) - own_metric(score, model, runs[1])).mean()
    for result in (denoised, noised):
        assert torch.allclose(result.effect(), gap.expand(2), atol=1e-12)
        assert result.gap() == pytest.approx(float(gap))
        assert torch.allclose(result.normalised(), torch.ones(2, dtype=torch.float64))
    assert torch.allclose(noised.destination[0], own_metric(score, model, runs[0]))
    assert noised.direction == "noising"
    with pytest.raises(KeyError, match="no metric 'x': there are score, other"):
        patch_contrast(model, contrast, component="z", metric="x")


def test_several_metrics_in_one_sweep(model, runs):
    both = patch_sweep(model, *runs, {"a": score, "b": tail}, component="z", read=(0, -1))
    for name, metric in (("a", score), ("b", tail)):
        alone = patch_sweep(model, *runs, metric, component="z", read=(0, -1))
        assert torch.equal(both.effect(name), alone.effect())
    with pytest.raises(KeyError, match="no metric 'c': there are a, b"):
        both.effect("c")


def test_read_positions_are_what_the_metric_sees(model, runs):
    seen = []

    def watch(logits):
        seen.append(logits.shape[-2])
        return logits[:, 0, 1] - logits[:, 1, 0]

    by_name = patch_sweep(model, *runs, watch, component="z", read=(3, 1))
    assert set(seen) == {2}
    assert by_name.read == (3, 1)
    whole = patch_sweep(model, *runs, lambda logits: logits[:, 3, 1] - logits[:, 1, 0], component="z")
    assert torch.allclose(by_name.values, whole.values, atol=1e-12)


def test_cells_that_cannot_act_are_not_run_and_equal_the_baseline(model, runs):
    result = patch_sweep(model, *runs, score, component="z", read=(-2,), by=("layer", "position", "head"))
    assert result.ran.tolist() == [[[True] * 2] * 4 + [[False] * 2], [[False] * 2] * 3 + [[True] * 2] + [[False] * 2]]
    assert torch.equal(result.values[0][~result.ran], result.destination[0].expand(int((~result.ran).sum()), -1))
    shared = runs[1].clone()
    shared[:, 2] = (shared[:, 2] + 1) % 7
    prefix = patch_sweep(model, shared, runs[1], score, component="resid_pre")
    assert prefix.ran.tolist() == [[False, False, True, False, False], [False, False, True, True, True]]
    maps = patch_sweep(model, *runs, score, component="pattern", by=("layer", "head", "destination", "source"))
    causal = torch.ones(5, 5).tril().bool()
    assert not maps.ran[..., ~causal].any()
    assert maps.ran[0, 0, 1:][causal[1:]].all()


def test_an_intervention_stands_in_for_the_source(model, runs):
    destination = runs[1]
    zero = patch_sweep(model, Intervention("zero"), destination, score, component="z", by=("layer", "head"))

    def edit(value, hook):
        return torch.cat([torch.zeros_like(value[:, :, :1]), value[:, :, 1:]], 2)

    expected = score(run(model, destination, {"blocks.1.attn.hook_z": edit})).detach()
    assert torch.allclose(zero.values[0, 1, 0], expected, atol=1e-12)
    assert zero.source is None
    assert zero.normalised() is None
    assert "there is no source run" in zero.why_not()
    assert zero.replaced_by == "zero"
    mean = patch_sweep(model, Intervention("mean", runs[0]), destination, score, component="resid_pre")
    assert mean.replaced_by == "mean over 6 examples"
    as_patch = patch_sweep(model, Intervention("patch", runs[0]), destination, score, component="resid_pre")
    assert torch.equal(as_patch.values, patch_sweep(model, *runs, score, component="resid_pre").values)


def test_batch_equals_singles(model, runs):
    whole = patch_sweep(model, *runs, score, component="k", read=(-1,))
    for row in (0, 5):
        single = patch_sweep(model, runs[0][row, None], runs[1][row, None], score, component="k", read=(-1,))
        assert torch.allclose(single.values[..., 0], whole.values[..., row], atol=1e-12)


def test_two_heads_of_endpoint_selection_are_found():
    model = two_heads(5)
    inputs, target, other, selector = arcs(5)
    source = inputs.clone()
    source[:, 2] = 5 + 1 - selector
    rows = torch.arange(len(inputs))

    def now_wanted(logits):
        return logits[rows, -1, other] - logits[rows, -1, target]

    result = patch_sweep(model, source, inputs, now_wanted, component="z", read=(-1,), positions=[-1])
    share = result.normalised()
    assert share[0].flatten().tolist() == pytest.approx([0.5, 0.5], abs=1e-3)
    assert result.interval()[0].min() > 0
    assert result.p_values().max() < 1e-3
    key = patch_sweep(model, source, inputs, now_wanted, component="k", read=(-1,), by=("layer", "position"))
    # The selector is read through the keys of its own position, and nowhere else.
    assert key.normalised()[0].tolist() == pytest.approx([0, 0, 1, 0], abs=1e-3)
    assert result.top(1)[0][0] in ({"layer": 0, "head": 0, "position": 3}, {"layer": 0, "head": 1, "position": 3})


def test_intervals_and_p_values_know_nothing_from_something(model):
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(12, generator=generator, dtype=torch.float64)
    effects = torch.stack([noise - noise.mean(), noise + 3, torch.zeros(12), torch.ones(12)]).double()
    result = patch_sweep(
        model, tokens(12, seed=1), tokens(12), score, component="resid_pre", layers=[0], positions=[0, 1, 2, 3]
    )
    from dataclasses import replace

    result = replace(result, values=(effects + result.destination)[None, None])
    low, high = result.interval()
    p = result.p_values()
    assert low[0, 0] < 0 < high[0, 0]
    assert low[0, 1] > 0
    assert (low[0, 2], high[0, 2]) == (0, 0)
    assert np.allclose((low[0, 3], high[0, 3]), 1)
    assert p[0, 0] > 0.9
    assert p[0, 1] == pytest.approx(2 / 2**12)
    assert p[0, 2] == 1
    again = result.interval()
    assert (again[0] == low).all()
    one = patch_sweep(model, tokens(1, seed=1), tokens(1), score, component="resid_pre")
    assert (one.p_values() == 1).all()
    assert np.isnan(one.interval()).all()  # one example shows no spread
    with pytest.raises(ValueError, match="between 0 and 1"):
        one.interval(confidence=1.0)


def test_frame_is_tidy(model, runs):
    result = patch_sweep(
        model, *runs, {"a": score, "b": tail}, component="z", by=("layer", "position", "head"), read=(0, -1)
    )
    frame = result.to_frame()
    assert list(frame.columns) == [
        "layer", "position", "head", "metric", "value", "effect", "low", "high", "normalised", "ran",
    ]  # fmt: skip
    assert len(frame) == 2 * 2 * 5 * 2
    row = frame.query("metric == 'b' and layer == 1 and position == 4 and head == 0").iloc[0]
    assert row.effect == pytest.approx(float(result.effect("b")[1, 4, 0]))
    assert row.low <= row.effect <= row.high
    long = result.to_frame(per_example=True)
    assert len(long) == len(frame) * 6
    assert long.groupby(["metric", "layer", "position", "head"]).effect.mean().loc["b", 1, 4, 0] == pytest.approx(
        row.effect
    )
    nothing = patch_sweep(model, runs[1], runs[1], score, component="z").to_frame()
    assert nothing.normalised.isna().all()
    assert nothing.effect.eq(0).all()


def test_grid_picture_says_what_it_shows(model, runs):
    figure = patch_sweep(model, *runs, score, component="z", read=(-1,)).render(
        position_names=["u", "v", "w", "<x>", "#"]
    )
    assert "&lt;x&gt;" in figure.wide.content
    assert "z patched: score recovered" in figure.title
    flat = patch_sweep(model, *runs, score, component="resid_pre", by=("layer",), read=(-1,)).render()
    assert flat.wide.content
    maps = patch_sweep(model, *runs, score, component="pattern", by=("layer", "head", "destination", "source")).render()
    assert maps.wide.content.count("layer 1, head 0") == 1
    assert patch_sweep(model, runs[1], runs[1], score, component="z", read=(-1,)).render().wide.content


def test_progress_bar_stays_off_stdout(model, runs):
    shown = io.StringIO()
    with redirect_stdout(shown):
        patch_sweep(model, *runs, score, component="z", progress=True)
    assert shown.getvalue() == ""


def test_any_axes_can_be_left_whole(model, runs):
    for component, by in (("z", ("layer", "position")), ("q", ("layer",)), ("pattern", ("layer", "source"))):
        cone = patch_sweep(model, *runs, tail, component=component, by=by, positions=[1, 2, 4], read=(0, -1))
        reference = patch_sweep(
            model, *runs, tail, component=component, by=by, positions=[1, 2, 4], read=(0, -1), engine="expand"
        )
        assert cone.engine == "cone"
        assert cone.values.shape == reference.values.shape
        assert torch.allclose(cone.values, reference.values, atol=1e-12), component


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (tokens(6)[:, :4], r"source has shape \[6, 4\] and the destination \[6, 5\]: .* same length and batch"),
        (tokens(5), r"source has shape \[5, 5\]"),
    ],
)
def test_runs_must_be_of_one_length_and_batch(model, runs, source, told):
    with pytest.raises(ValueError, match=told):
        patch_sweep(model, source, runs[1], score, component="z")


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"component": "zz"}, KeyError, "unknown component"),
        ({"component": "z", "layers": [7]}, IndexError, "layer 7 does not exist: there are layers 0 to 1"),
        ({"component": "z", "heads": [2]}, IndexError, "head 2 does not exist"),
        ({"component": "z", "positions": [9]}, IndexError, "position 9 does not exist"),
        ({"component": "z", "read": [9]}, IndexError, "position 9 does not exist"),
        ({"component": "z", "read": []}, ValueError, "no position was given"),
        ({"component": "z", "by": ("layer", "destination")}, KeyError, "no axis 'destination'"),
        ({"component": "z", "engine": "fast"}, KeyError, "unknown engine 'fast'"),
        ({"component": "z", "direction": "both"}, KeyError, "unknown direction 'both'"),
    ],
)
def test_a_wrong_request_is_one_sentence(model, runs, options, error, told):
    with pytest.raises(error, match=told):
        patch_sweep(model, *runs, score, **options)


def test_no_metric_is_an_error(model, runs):
    with pytest.raises(ValueError, match="no metric was given"):
        patch_sweep(model, *runs, {}, component="z")


@pytest.mark.parametrize(
    ("metric", "told"),
    [
        (lambda logits: logits[:, -1], r"returned shape \[6, 7\]: return one number per example, shape \[6\]"),
        (lambda logits: logits[:, -1, 0].mean(), r"returned shape \[\]"),
        (lambda logits: logits[0, -1, 0].item(), "returned a float: .* without .item"),
        (lambda logits: logits[:, -1, 0] * torch.nan, "returned nan for example 0"),
        (lambda logits: logits.mul_(2)[:, -1, 0], "edits the logits in place"),
    ],
)
@pytest.mark.parametrize("engine", ["cone", "expand"])
def test_a_metric_that_breaks_the_contract_is_refused(model, runs, metric, told, engine):
    with pytest.raises(ValueError, match=told):
        patch_sweep(model, *runs, metric, component="z", engine=engine)


def test_a_metric_that_is_nan_on_a_patched_run_only_is_refused(model, runs):
    limit = float(torch.stack([own_metric(score, model, inputs) for inputs in runs]).max())
    extreme = patch_sweep(model, *runs, score, component="z")
    assert float(extreme.values.max()) > limit

    def above(logits):
        return torch.where(score(logits) > limit + 1e-9, torch.nan, score(logits))

    with pytest.raises(ValueError, match="returned nan"):
        patch_sweep(model, *runs, above, component="z")


def test_a_metric_that_cannot_be_vmapped_is_looped(model, runs):
    def with_item(logits):
        return logits[:, -1, 2] - float(logits[0, -1, 0].item())

    result = patch_sweep(model, *runs, with_item, component="z", read=(-1,))
    plain = patch_sweep(model, *runs, lambda logits: logits[:, -1, 2] - logits[0, -1, 0], component="z", read=(-1,))
    assert torch.allclose(result.values, plain.values, atol=1e-12)
    assert any("was looped over cells" in note for note in result.notes)
    assert not plain.notes


def test_dropout_is_off_and_training_mode_comes_back(runs):
    model = random_model()
    model.embed = torch.nn.Sequential(model.embed, torch.nn.Dropout(0.5))
    expected = patch_sweep(model, *runs, score, component="resid_pre").values
    model.train()
    model.blocks[1].eval()
    state = torch.get_rng_state()
    found = patch_sweep(model, *runs, score, component="resid_pre")
    assert torch.equal(found.values, expected)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert model.embed[1].training
    assert not model.blocks[1].training


def test_no_warning_reaches_the_reader(model, runs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        patch_sweep(model, *runs, score, component="v", read=(-1,))


def test_memory_is_flat_over_many_sweeps(model, runs):
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    for _ in range(5):
        patch_sweep(model, *runs, score, component="z", read=(-1,))
    before = resident()
    for _ in range(10):
        patch_sweep(model, *runs, score, component="z", read=(-1,))
    assert resident() - before < 20 << 20


def test_a_cache_is_a_source(model, runs):
    from_inputs = patch_sweep(model, *runs, score, component="z", read=[-1])
    _, cache = model.run_with_cache(runs[0])
    result = patch_sweep(model, cache, runs[1], score, component="z", read=[-1])
    assert torch.allclose(result.values, from_inputs.values)
    assert result.source is None
    assert "a cached run" in result.why_not()
    with pytest.raises(KeyError, match=r"no 'blocks\.0\.attn\.hook_q'"):
        patch_sweep(model, {"blocks.0.attn.hook_z": runs[0]}, runs[1], score, component="q")
    z = {name: cache[name] for name in ("blocks.0.attn.hook_z", "blocks.1.attn.hook_z")}
    short, broken = {name: z[name][:, 1:] for name in z}, {name: z[name] * torch.nan for name in z}
    with pytest.raises(ValueError, match=r"of shape \[6, 4, 2, 4\], the destination \[6, 5, 2, 4\]"):
        patch_sweep(model, short, runs[1], score, component="z")
    with pytest.raises(ValueError, match=r"NaN or infinity in 'blocks\.0\.attn\.hook_z'"):
        patch_sweep(model, broken, runs[1], score, component="z")


def test_lists_of_ids_are_inputs(model, runs):
    listed = patch_sweep(model, runs[0].tolist(), runs[1].tolist(), score, component="z")
    assert torch.equal(listed.values, patch_sweep(model, *runs, score, component="z").values)


def test_a_caller_in_inference_mode_gets_the_same_numbers(model, runs):
    expected = patch_sweep(model, *runs, score, component="k", read=[-1])
    with torch.inference_mode():
        inside = patch_sweep(model, *(run.clone() for run in runs), score, component="k", read=[-1])
    assert torch.equal(inside.values, expected.values)


def test_weights_that_are_not_finite_are_refused_by_name():
    broken = random_model()
    with torch.no_grad():
        broken.blocks[1].attn.W_V[0, 0, 0] = torch.inf
    with pytest.raises(ValueError, match=r"'blocks\.1\.attn\.W_V' hold NaN or infinity"):
        patch_sweep(broken, tokens(2, seed=1), tokens(2), score, component="z")
