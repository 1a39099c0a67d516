import pytest
import torch
from torch import nn

from headlab.analyses.bench import equality as bench_equality
from headlab.analyses.bench import patching as bench_patching
from headlab.analyses.bench.equality import difference, our_values, peer_values, random_case
from headlab.interp.engines import Cone, Expand, Unsupported, entry
from headlab.interp.engines.cells import Cells
from headlab.interp.engines.entry import first_block, hooks_for
from headlab.interp.model import activations, untouched
from headlab.interp.patching import patch_sweep
from headlab.interp.sites import grid, hook_name
from tests.interp.hand_built import random_model, tokens


def score(logits):
    return logits[:, -1, 2] - logits[:, -1, 4]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    monkeypatch.setattr(bench_equality.peer, "tqdm", lambda rows, **options: rows)


@pytest.mark.parametrize("block", range(20))
def test_equal_to_transformer_lens_on_200_random_configs(block):
    """Each config takes its turn at a few of the sweeps; the benchmark runs all of them on each."""
    for seed in range(10 * block, 10 * block + 10):
        case = random_case(seed)
        sweeps = list(case.sweeps())
        for turn in range(2):
            component, by, function = sweeps[(seed + turn * 7) % len(sweeps)]
            expected = peer_values(case, function)
            for engine in ("cone", "expand") if turn == 0 else ("cone",):
                found, used = our_values(case, component, by, engine)
                assert used == engine
                assert difference(found, expected) < 1e-10, (seed, component, by, engine)


@pytest.mark.parametrize("seed", range(12))
def test_single_precision_is_as_near_as_the_peer(seed):
    exact, single = random_case(seed), random_case(seed, torch.float32)
    normed = exact.config["normalization_type"] is not None
    sweeps = list(exact.sweeps())
    for component, by, function in (sweeps[seed % len(sweeps)], sweeps[(seed + 5) % len(sweeps)]):
        expected, theirs = peer_values(exact, function), peer_values(single, function)
        found, _ = our_values(single, component, by, "cone")
        if normed:
            assert difference(found, theirs) < 1e-5
        else:
            assert difference(found, expected) <= max(2 * difference(theirs, expected), 1e-6)


FALLBACKS = {
    "soft-capped scores": {"attn_scores_soft_cap": 5.0},
    "soft-capped logits": {"output_logits_soft_cap": 2.0},
    "ALiBi": {"positional_embedding_type": "alibi"},
    "parallel attention and MLP": {"attn_only": False, "parallel_attn_mlp": True},
    "local attention": {"use_local_attn": True, "attn_types": ["global", "local"], "window_size": 2},
    "normalised queries and keys": {"use_qk_norm": True, "normalization_type": "RMS"},
    "attention sinks": {"use_attention_sinks": True},
    "a norm after each block": {
        "attn_only": False,
        "use_normalization_before_and_after": True,
        "normalization_type": "RMS",
    },
    "half precision": {"dtype": torch.bfloat16},
}


@pytest.mark.parametrize("name", FALLBACKS)
def test_a_cone_that_does_not_model_the_architecture_falls_back_and_says_so(name):
    config = dict(FALLBACKS[name])
    dtype = config.pop("dtype", torch.float64)
    model = random_model(dtype=dtype, **config)
    source, destination = tokens(2, seed=1), tokens(2)
    result = patch_sweep(model, source, destination, score, component="z", engine="cone", read=(-1,))
    assert result.engine == "expand"
    assert "the cone does not model" in result.notes[0]
    names = [hook_name("z", layer) for layer in range(2)]
    held = activations(model, source, names)[1]
    tolerance = 1e-10 if dtype == torch.float64 else 0.1
    for layer, head, position in ((0, 1, 2), (1, 0, 4)):

        def edit(z, hook, layer=layer, head=head, position=position):
            z = z.clone()
            z[:, position, head] = held[names[layer]][:, position, head]
            return z

        logits = model.run_with_hooks(destination, fwd_hooks=[(names[layer], edit)])
        expected = score(logits).detach()
        assert torch.allclose(result.values[0, layer, head, position], expected, rtol=tolerance, atol=tolerance)


def cone_and_reference(model, inputs, component="v", **options):
    source, destination = inputs
    cone = patch_sweep(model, source, destination, score, component=component, **options)
    reference = patch_sweep(model, source, destination, score, component=component, engine="expand", **options)
    assert torch.allclose(cone.values, reference.values, atol=1e-11)
    assert (reference.values != reference.destination[:, None, None, None]).any()
    return cone


class EncodeAndAppend(nn.Module):
    """Continuous tokens, and a summary position at the end: one position more than the input has."""

    def __init__(self, width):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.W = nn.Parameter(torch.randn(2, width, generator=generator, dtype=torch.float64))
        self.cls = nn.Parameter(torch.randn(width, generator=generator, dtype=torch.float64))

    def forward(self, x):
        return torch.cat([x @ self.W, self.cls.expand(x.shape[0], 1, -1)], 1)


class NoPositions(nn.Module):
    def forward(self, x, *rest):
        return torch.zeros(x.shape[0], x.shape[1] + 1, 8, dtype=x.dtype)


@pytest.fixture
def float_inputs():
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(3, 4, 2, generator=generator, dtype=torch.float64) for _ in range(2))


@pytest.mark.parametrize("component", ["resid_pre", "z", "q", "k", "v", "pattern"])
def test_continuous_tokens_with_a_summary_position_stay_on_the_cone(float_inputs, component):
    model = random_model()
    model.embed, model.pos_embed = EncodeAndAppend(8), NoPositions()
    model.setup()
    options = (
        {}
        if component == "resid_pre"
        else {"by": ("layer", "head", "destination" if component == "pattern" else "position")}
    )
    result = patch_sweep(model, *float_inputs, score, component=component, read=(-1,), **options)
    reference = patch_sweep(model, *float_inputs, score, component=component, read=(-1,), engine="expand", **options)
    assert result.engine == "cone"
    assert result.values.shape[-2] == 5
    assert torch.allclose(result.values, reference.values, atol=1e-11)


class ProductReadout(nn.Module):
    """A read-out that is not linear but takes each position by itself."""

    def __init__(self, cfg):
        super().__init__()
        self.W_U = nn.Parameter(torch.randn(8, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
        self.b_U = nn.Parameter(torch.zeros(7, dtype=torch.float64))

    def forward(self, residual):
        return (residual @ self.W_U) * residual.sum(-1, keepdim=True)


class MixedReadout(ProductReadout):
    """A read-out that looks at all positions."""

    def forward(self, residual):
        return residual @ self.W_U + residual.mean(1, keepdim=True) @ self.W_U


@pytest.mark.parametrize("by", [("layer", "head", "destination"), ("layer", "head", "destination", "source")])
@pytest.mark.parametrize("read", [None, (-1,)])
def test_a_read_out_of_its_own_is_called_as_it_is(by, read):
    model = random_model()
    model.unembed = ProductReadout(model.cfg)
    inputs = tokens(3, seed=1), tokens(3)
    result = patch_sweep(model, *inputs, score, component="pattern", by=by, read=read)
    reference = patch_sweep(model, *inputs, score, component="pattern", by=by, read=read, engine="expand")
    assert result.engine == "cone"
    assert torch.allclose(result.values, reference.values, atol=1e-11)


@pytest.mark.parametrize("read", [None, (-1,), (0, -1)])
def test_a_read_out_that_mixes_positions_falls_back(read):
    model = random_model(n_layers=1)
    model.unembed = MixedReadout(model.cfg)
    inputs = tokens(3, seed=1), tokens(3)
    result = patch_sweep(model, *inputs, score, component="z", read=read)
    assert result.engine == "expand"
    assert "unpatched logits" in result.notes[0]
    names = [hook_name("z", 0)]
    held = activations(model, inputs[0], names)[1][names[0]]

    def edit(z, hook):
        z = z.clone()
        z[:, 1, 0] = held[:, 1, 0]
        return z

    expected = score(model.run_with_hooks(inputs[1], fwd_hooks=[(names[0], edit)])).detach()
    assert torch.allclose(result.values[0, 0, 0, 1], expected, atol=1e-11)


def test_an_attention_of_its_own_falls_back_and_a_mask_of_its_own_does_not():
    from transformer_lens.components import Attention

    from headlab.models.parts import BlindClsAttention

    class Sharper(Attention):
        def calculate_attention_scores(self, q, k):
            return 2 * super().calculate_attention_scores(q, k)

    inputs = tokens(3, seed=1), tokens(3)
    for kind, engine in ((Sharper, "expand"), (BlindClsAttention, "cone")):
        model = random_model()
        for layer, block in enumerate(model.blocks):
            own = kind(model.cfg, "global", layer).double()
            own.load_state_dict(block.attn.state_dict())
            block.attn = own
        model.setup()
        for component in ("resid_pre", "q", "k", "v", "z"):
            result = patch_sweep(model, *inputs, score, component=component, read=(-1,))
            reference = patch_sweep(model, *inputs, score, component=component, engine="expand", read=(-1,))
            assert result.engine == engine
            assert torch.allclose(result.values, reference.values, atol=1e-11)


def test_a_bidirectional_model_reaches_backwards():
    model = random_model(attention_dir="bidirectional", n_layers=3)
    result = patch_sweep(model, tokens(3, seed=1), tokens(3), lambda logits: logits[:, 0, 1], component="z", read=(0,))
    assert result.engine == "cone"
    assert result.ran[:2].all()
    assert result.ran[2].tolist() == [[True] + [False] * 4] * 2


def test_readers_hooks_survive_and_act_and_run_one_cell_at_a_time():
    model, inputs = random_model(), (tokens(3, seed=1), tokens(3))
    plain = patch_sweep(model, *inputs, score, component="z", read=(-1,))
    seen = []

    def double(value, hook):
        seen.append(value.shape[0])
        return 2 * value

    model.add_hook("blocks.0.hook_attn_out", double)
    result = patch_sweep(model, *inputs, score, component="z", read=(-1,))
    assert result.engine == "expand"
    assert any("hooks of its own" in note for note in result.notes)
    assert set(seen) == {3}
    assert torch.allclose(result.destination[0], score(model(inputs[1])).detach(), atol=1e-12)
    assert not torch.allclose(result.values, plain.values)
    assert len(model.hook_dict["blocks.0.hook_attn_out"].fwd_hooks) == 1
    model.reset_hooks()
    assert torch.equal(patch_sweep(model, *inputs, score, component="z", read=(-1,)).values, plain.values)


def test_a_model_that_cannot_repeat_inside_a_run_is_repeated_from_its_inputs():
    model, inputs = random_model(), (tokens(3, seed=1), tokens(3))

    class Fixed(nn.Module):
        """A norm that knows the batch of the embedding."""

        def __init__(self, embed):
            super().__init__()
            self.embed = embed

        def forward(self, x):
            self.rows = x.shape[0]
            return self.embed(x)

    model.embed = Fixed(model.embed)

    class Last(nn.Module):
        def __init__(self, unembed, embed):
            super().__init__()
            self.unembed, self.b_U, self._embed = unembed, unembed.b_U, (embed,)

        def forward(self, x):
            if x.shape[0] != self._embed[0].rows:
                raise RuntimeError("the batch changed on the way")
            return self.unembed(x)

    model.unembed = Last(model.unembed, model.embed)
    expected = patch_sweep(random_model(), *inputs, score, component="z")
    result = patch_sweep(model, *inputs, score, component="z", engine="expand")
    assert torch.allclose(result.values, expected.values, atol=1e-12)


@pytest.mark.parametrize("attn_only", [True, False])
def test_residual_stream_is_the_sum_of_what_is_written(attn_only):
    """What the cone's arithmetic rests on: residual before + heads + b_O (+ MLP) = residual after."""
    model = random_model(attn_only=attn_only, normalization_type="LN")
    names = [hook_name(name, 1) for name in ("resid_pre", "z", "resid_post")]
    names += [] if attn_only else [hook_name("mlp_out", 1)]
    held = activations(model, tokens(4), names)[1]
    z = held[hook_name("z", 1)]
    heads = sum(z[:, :, head] @ model.W_O[1, head] for head in range(2))
    total = held[hook_name("resid_pre", 1)] + heads + model.b_O[1]
    if not attn_only:
        total = total + held[hook_name("mlp_out", 1)]
    assert torch.allclose(total, held[hook_name("resid_post", 1)], atol=1e-6)


def test_an_edit_of_queries_leaves_keys_and_values():
    model, inputs = random_model(normalization_type="LN"), (tokens(3, seed=1), tokens(3))
    only_q = cone_and_reference(model, inputs, "q", read=(-1,))
    names = [f"blocks.0.attn.hook_{part}" for part in "qkv"]
    held = activations(model, inputs[0], names)[1]
    seen = {}

    def edit(q, hook):
        q = q.clone()
        q[:, 2, 1] = held[names[0]][:, 2, 1]
        return q

    def keep(value, hook):
        seen[hook.name] = value.detach().clone()

    logits = model.run_with_hooks(inputs[1], fwd_hooks=[(names[0], edit), (names[1], keep), (names[2], keep)])
    plain = activations(model, inputs[1], names)[1]
    assert torch.equal(seen[names[1]], plain[names[1]])
    assert torch.equal(seen[names[2]], plain[names[2]])
    assert torch.allclose(only_q.values[0, 0, 1, 2], score(logits).detach(), atol=1e-12)


def test_work_is_close_to_the_least_that_is_needed():
    case = bench_patching.SpeedCase("", {}, 32, 2, "z", ("layer", "position", "head"))
    model = random_model(
        n_layers=4, n_heads=4, d_model=64, d_head=16, n_ctx=32, attn_only=False, d_mlp=256, normalization_type="LN"
    )
    result = patch_sweep(
        model, tokens(2, seed=1, positions=32), tokens(2, positions=32), score, component="z", by=case.by, read=(-1,)
    )
    least = bench_patching.least_work(model, range(4), case)
    assert 1.0 <= result.work / least <= 1.5


def test_cone_checks_itself_at_construction():
    model, inputs = random_model(), tokens(3)
    with untouched(model):
        logits, held = activations(model, inputs, hooks_for(model, "z", (0, 1)))
        first = first_block("z", (0, 1))
        assert torch.equal(Cone(model, [4], logits[:, [4]], held, first=first).baseline, logits[:, [4]])
        with pytest.raises(Unsupported, match="unpatched logits are"):
            Cone(model, [4], logits[:, [4]] + 1e-3, held, first=first)


def test_expand_splits_long_sweeps_into_chunks():
    model, inputs = random_model(), (tokens(3, seed=1), tokens(3))
    hooks = [hook_name("z", layer) for layer in range(2)]
    with untouched(model):
        logits, old = activations(model, inputs[1], hooks)
        _, new = activations(model, inputs[0], hooks)
        cells = Cells(grid(model, "z", position_count=5), old, new)
        small = Expand(model, inputs[1], [4], logits[:, [4]], cells, budget=1)
        large = Expand(model, inputs[1], [4], logits[:, [4]], cells)
        parts = list(small.sweep(0, torch.arange(10)))
        ((_, whole),) = large.sweep(0, torch.arange(10))
    assert len(parts) == 10
    assert torch.allclose(torch.cat([logits for _, logits in parts]), whole, atol=1e-12)


@pytest.fixture(scope="module")
def bridge():
    from transformer_lens.model_bridge import TransformerBridge

    config = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_head": 8, "n_ctx": 10, "d_vocab": 12, "d_mlp": 32}
    return TransformerBridge.boot_native(
        {**config, "act_fn": "gelu", "normalization_type": "LN", "seed": 0}, device="cpu"
    )


def test_a_bridge_runs_through_expand(bridge):
    runs = tuple(tokens(3, seed=seed, positions=10, vocabulary=12) for seed in (1, 2))
    for component in ("resid_pre", "resid_mid", "resid_post"):
        # A bridge hands an edit of resid_mid to the MLP alone: here it reaches every reader.
        result = patch_sweep(bridge, *runs, score, component=component, by=("layer",))
        assert result.engine == "expand"
        assert result.notes == ("the cone does not model a TransformerBridge: the model itself was run (expand)",)
        assert torch.allclose(result.normalised(), torch.ones(2), atol=1e-4)
    for component in ("attn_out", "mlp_out", "z", "q", "k", "v"):
        whole = patch_sweep(bridge, *runs, score, component=component, positions=[-1])
        assert whole.effects.any()
        single = patch_sweep(bridge, runs[0][:1], runs[1][:1], score, component=component, positions=[-1])
        assert torch.allclose(single.values[..., 0], whole.values[..., 0], atol=1e-5)
    hook = bridge.hook_dict["blocks.0.attn.hook_z"]
    assert not getattr(hook, "fwd_hooks", None)


def test_a_bridge_whose_pattern_cannot_be_edited_says_so(bridge):
    runs = tuple(tokens(3, seed=seed, positions=10, vocabulary=12) for seed in (1, 2))
    with pytest.raises(ValueError, match="edits of pattern do nothing on this TransformerBridge: patch z"):
        patch_sweep(bridge, *runs, score, component="pattern")


@pytest.mark.parametrize("norm", [None, "LN", "LNPre", "RMS", "RMSPre"])
@pytest.mark.parametrize("read", [None, (-1,), (1, -1)])
def test_pattern_maps_of_one_layer_have_a_closed_form(norm, read, monkeypatch):
    model, inputs = random_model(n_layers=1, normalization_type=norm), (tokens(3, seed=1), tokens(3))
    by = ("layer", "head", "destination", "source")
    calls = []
    formula = entry.closed_form
    monkeypatch.setattr(entry, "closed_form", lambda *given: calls.append(formula(*given)) or calls[-1])
    found = patch_sweep(model, *inputs, score, component="pattern", by=by, read=read)
    assert callable(calls[0])
    reference = patch_sweep(model, *inputs, score, component="pattern", by=by, read=read, engine="expand")
    assert torch.allclose(found.values, reference.values, atol=1e-11)
    assert found.effects.any()


@pytest.mark.parametrize("component", ["z", "k", "pattern"])
def test_a_cone_that_went_wrong_is_caught_on_random_cells_and_the_model_is_run(component, monkeypatch):
    model, runs = random_model(n_layers=3, attn_only=False, normalization_type="LN"), (tokens(3, seed=1), tokens(3))
    right = patch_sweep(model, *runs, score, component=component, read=[-1])
    before = torch.get_rng_state()
    placed = Cone._onward
    monkeypatch.setattr(Cone, "_onward", lambda self, *given: placed(self, *given) * (1.0 + 0.01 * self.broken))
    monkeypatch.setattr(Cone, "broken", False, raising=False)
    check = Cone._check
    monkeypatch.setattr(Cone, "_check", lambda self: check(self) or setattr(self, "broken", True))
    unguarded = patch_sweep(model, *runs, score, component=component, read=[-1], recheck=0)
    assert unguarded.engine == "cone"
    assert not torch.allclose(unguarded.values, right.values, atol=1e-4)
    result = patch_sweep(model, *runs, score, component=component, read=[-1])
    assert result.engine == "expand"
    assert f"a cell of {component} in layer" in result.notes[0]
    assert "run again" in result.notes[0]
    assert torch.allclose(result.values, right.values, atol=1e-11)
    assert torch.equal(torch.get_rng_state(), before)


def test_rechecked_cells_are_counted_as_work_and_can_be_left_out():
    model, runs = random_model(n_layers=3), (tokens(3, seed=1), tokens(3))
    checked, twice, unchecked = (
        patch_sweep(model, *runs, score, component="z", read=[-1], recheck=count) for count in (1, 2, 0)
    )
    assert torch.equal(checked.values, unchecked.values)
    weights = 3 * 4 * 8 * 8
    one_run = 3 * (5 * (weights + 2 * 3 * 2 * 4 * 5) + 8 * 7)
    assert checked.work - unchecked.work == one_run
    assert twice.work - unchecked.work == 2 * one_run
