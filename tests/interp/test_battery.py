"""One list of checks that every instrument passes on every kind of model.

A new instrument is one line of INSTRUMENTS, a new kind of model one of MODELS.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from headlab.interp.ablation import ablate_heads
from headlab.interp.attribution import direct_logit_attribution
from headlab.interp.attribution_patching import estimate_patches
from headlab.interp.circuits import END, START, Edge, Node
from headlab.interp.discovery import fidelity
from headlab.interp.gradients import estimate_edges
from headlab.interp.interventions import Intervention
from headlab.interp.model import run
from headlab.interp.patching import patch_sweep
from headlab.interp.paths import patch_edges
from headlab.interp.roles import Role, score
from headlab.interp.sites import components_of, hook_name
from headlab.models.hooked import Architecture, build, initialise
from tests.interp.hand_built import random_model, tokens, two_heads

POSITIONS = 5


def metric(logits):
    return logits[:, -1, 2] - logits[:, -1, 0]


def raising(logits):
    raise ZeroDivisionError("the metric broke")


@dataclass(frozen=True)
class Kind:
    """How a kind of model is made, and pairs of runs for it. refuses: instruments that must say no to it."""

    make: Callable[[], Any]
    runs: Callable[[], tuple[torch.Tensor, torch.Tensor]]
    refuses: tuple[str, ...] = ()


def token_runs(length=POSITIONS, vocabulary=7):
    return lambda: tuple(tokens(4, seed=seed, positions=length, vocabulary=vocabulary) for seed in (1, 2))


def float_runs():
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(4, POSITIONS - 1, dtype=torch.float64, generator=generator) for _ in range(2))


def continuous(attention, **options):
    config = {"n_layers": 1, "n_heads": 2, "d_model": 8, "d_head": 4, "n_ctx": POSITIONS, "d_vocab": 7}
    config |= {"attn_only": True, "normalization_type": None}
    parts = {
        "embed": {"part": "BitEmbed"},
        "pos_embed": {"part": "FixedPositions"},
        "blocks.0.attn": {"part": attention, **options},
    }
    model = build(Architecture(config, parts), dtype=torch.float64)
    initialise(model, scale=0.5, seed=0)
    return model


def tied():
    config = {
        "n_layers": 2,
        "n_heads": 2,
        "d_model": 8,
        "d_head": 4,
        "n_ctx": POSITIONS,
        "d_vocab": 7,
        "attn_only": True,
    }
    model = build(
        Architecture({**config, "normalization_type": "LNPre"}, {"unembed": {"part": "TiedUnembed"}}),
        dtype=torch.float64,
    )
    initialise(model, scale=0.5, seed=0)
    return model


MODELS = {
    "two layers, two heads, no norm": Kind(
        lambda: random_model(d_model=16, d_head=8, n_ctx=10, d_vocab=12), token_runs(10, 12)
    ),
    "MLP and LayerNorm": Kind(lambda: random_model(attn_only=False, normalization_type="LN"), token_runs()),
    "rotary, RMSNorm, grouped key-values": Kind(
        lambda: random_model(
            n_heads=4,
            n_key_value_heads=2,
            normalization_type="RMS",
            positional_embedding_type="rotary",
            rotary_dim=4,
        ),
        token_runs(),
    ),
    "bidirectional": Kind(
        lambda: random_model(attention_dir="bidirectional", normalization_type="RMSPre"), token_runs()
    ),
    "tied unembedding": Kind(tied, token_runs()),
    "soft-capped scores": Kind(lambda: random_model(attn_scores_soft_cap=5.0), token_runs()),
    "endpoint selection by hand": Kind(lambda: two_heads(4), lambda: (endpoints(), endpoints().roll(1, 0))),
    "continuous tokens and a summary position": Kind(lambda: continuous("BlindClsAttention"), float_runs),
    "attention that is no softmax": Kind(lambda: continuous("MappedClsAttention", map="linear"), float_runs),
}


def endpoints():
    return torch.tensor([[0, 1, 4, 6], [2, 3, 5, 6], [1, 0, 5, 6], [3, 2, 4, 6]])


def some_edges(model):
    last = model.cfg.n_layers - 1
    return [Edge(START, Node("head", 0, 1), "v", 1), Edge(Node("head", last, 0), END, "end", model.cfg.n_ctx - 1)]


def of_roles(model, source, destination, metric):
    size = model(destination).shape[1]
    queries = torch.zeros(len(destination), size, dtype=torch.bool)
    queries[:, -1] = True
    targets = torch.zeros(len(destination), size, size, dtype=torch.bool)
    targets[:, -1, 1] = True
    return torch.as_tensor(score(model, [Role("second", destination, queries, targets)]).usage)


# name -> (model, source, destination, metric) -> effects, the last axis `example`.
INSTRUMENTS: dict[str, Callable[..., torch.Tensor]] = {
    "patch": lambda m, s, d, f: patch_sweep(m, s, d, f, component="z").effects[0],
    "patch by running": lambda m, s, d, f: patch_sweep(m, s, d, f, component="k", engine="expand").effects[0],
    "patch by mean": lambda m, s, d, f: patch_sweep(m, Intervention("mean", s), d, f, component="v").effects[0],
    "patch estimated": lambda m, s, d, f: estimate_patches(m, s, d, f, component="z").estimate.effects[0],
    "ablate": lambda m, s, d, f: ablate_heads(m, d, f, kind="zero").effect,
    "ablate by mean": lambda m, s, d, f: ablate_heads(m, d, f, kind="positional_mean", reference=s).effect,
    "edges": lambda m, s, d, f: patch_edges(m, d, f, Intervention("patch", s), edges=some_edges(m)).effect,
    "edges estimated": lambda m, s, d, f: estimate_edges(m, d, f, Intervention("patch", s), edges=some_edges(m)).effect,
    "fidelity": lambda m, s, d, f: fidelity(m, d, f, Intervention("patch", s), some_edges(m)).circuit,
    "attribution": lambda m, s, d, f: direct_logit_attribution(m, d, torch.tensor([2] * len(d))).heads.movedim(0, -1),
    "roles": of_roles,
}
WITH_METRIC = [name for name in INSTRUMENTS if name not in ("attribution", "roles")]
WITH_SOURCE = ["patch", "patch by running", "patch estimated", "edges", "edges estimated"]
# A mean is over the reference, which a single example's own run would change.
PER_EXAMPLE = [
    "patch",
    "patch by running",
    "patch estimated",
    "ablate",
    "edges",
    "edges estimated",
    "fidelity",
    "attribution",
]


def pairs(names):
    return [
        pytest.param(kind, name, id=f"{name} | {kind}")
        for kind, model in MODELS.items()
        for name in names
        if name not in model.refuses
    ]


@pytest.fixture(scope="module")
def made():
    return {name: kind.make() for name, kind in MODELS.items()}


def state(model):
    """All that an instrument must leave as it was."""
    # Python's own generator moves with the shape checks of these tests; test_model.py holds `untouched` to it.
    generators = (torch.get_rng_state().tolist(), np.random.get_state()[1].tolist())  # noqa: NPY002
    return {
        "training": [module.training for module in model.modules()],
        "parameters": [
            (name, value.dtype, value.device, value.requires_grad) for name, value in model.named_parameters()
        ],
        "values": [value.detach().clone() for value in model.parameters()],
        "gradients": [value.grad is None for value in model.parameters()],
        "hooks": [(name, len(point.fwd_hooks), len(point.bwd_hooks)) for name, point in model.hook_dict.items()],
        "torch hooks": [(len(m._forward_hooks), len(m._backward_hooks)) for m in model.modules()],
        "generators": generators,
        "grad mode": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
        "default dtype": torch.get_default_dtype(),
    }


def assert_same(before, after):
    for name, value in before.items():
        if name == "values":
            assert all(torch.equal(a, b) for a, b in zip(value, after[name], strict=True))
        else:
            assert value == after[name], name


@pytest.mark.parametrize(("kind", "name"), pairs(INSTRUMENTS))
def test_leaves_no_trace(made, kind, name):
    model, (source, destination) = made[kind], MODELS[kind].runs()
    model.train()
    model.blocks[0].eval()
    kept, logits = (source.clone(), destination.clone()), model(destination)
    before = state(model)
    found = INSTRUMENTS[name](model, source, destination, metric)
    assert torch.isfinite(found).all()
    assert not found.requires_grad
    assert_same(before, state(model))
    assert torch.equal(source, kept[0])
    assert torch.equal(destination, kept[1])
    assert torch.equal(model(destination), logits)
    model.eval()


@pytest.mark.parametrize(("kind", "name"), pairs(WITH_METRIC))
def test_leaves_no_trace_when_the_metric_raises(made, kind, name):
    model, (source, destination) = made[kind], MODELS[kind].runs()
    before, logits = state(model), model(destination)
    for failing in (raising, after(2)):
        with pytest.raises(ZeroDivisionError, match="the metric broke"):
            INSTRUMENTS[name](model, source, destination, failing)
    assert_same(before, state(model))
    assert torch.equal(model(destination), logits)


def after(calls):
    """A metric that breaks in mid-sweep."""
    count = [0]

    def breaking(logits):
        count[0] += 1
        return metric(logits) if count[0] < calls else raising(logits)

    return breaking


@pytest.mark.parametrize(("kind", "name"), pairs(INSTRUMENTS))
def test_hooks_of_the_reader_survive_and_act(made, kind, name):
    model, (source, destination) = made[kind], MODELS[kind].runs()
    plain = INSTRUMENTS[name](model, source, destination, metric)
    # Attribution needs z to be what the pattern and v make, edges need v to be what ln1 makes: both say so otherwise.
    hook = hook_name("v" if name == "attribution" else "z", 0)
    fired = []

    def weaken(value, hook):
        fired.append(value.shape[0])
        value = value.clone()
        value[:, :, 0] *= 0.25
        return value

    model.add_hook(hook, weaken)
    try:
        own = INSTRUMENTS[name](model, source, destination, metric)
        assert len(model.hook_dict[hook].fwd_hooks) == 1
        assert fired
        if name != "roles":
            assert not torch.allclose(own, plain)
    finally:
        model.reset_hooks()
    assert torch.allclose(INSTRUMENTS[name](model, source, destination, metric), plain)


@pytest.mark.parametrize(("kind", "name"), pairs(WITH_SOURCE))
def test_source_equal_to_destination_does_nothing(made, kind, name):
    model, (_, destination) = made[kind], MODELS[kind].runs()
    assert not INSTRUMENTS[name](model, destination, destination, metric).any()


@pytest.mark.parametrize(("kind", "name"), pairs(PER_EXAMPLE))
def test_batch_equals_singles(made, kind, name):
    model, (source, destination) = made[kind], MODELS[kind].runs()
    whole = INSTRUMENTS[name](model, source, destination, metric)
    for row in (0, len(destination) - 1):
        single = INSTRUMENTS[name](model, source[row, None], destination[row, None], metric)
        assert torch.allclose(single[..., 0], whole[..., row], atol=1e-10)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, model in MODELS.items() for name in model.refuses])
def test_what_is_not_defined_is_refused_in_one_sentence(made, kind, name):
    model, (source, destination) = made[kind], MODELS[kind].runs()
    before = state(model)
    with pytest.raises(ValueError, match="share 2 keys and values"):
        INSTRUMENTS[name](model, source, destination, metric)
    assert_same(before, state(model))


@pytest.mark.parametrize("kind", MODELS)
def test_every_component_can_be_patched_on_every_model(made, kind):
    model, (_, destination) = made[kind], MODELS[kind].runs()
    source = destination.roll(1, 0)
    for component in components_of(model):
        found = patch_sweep(model, source, destination, metric, component=component)
        reference = patch_sweep(model, source, destination, metric, component=component, engine="expand")
        assert torch.allclose(found.values, reference.values, atol=1e-10), component
        assert found.ran.any() or (kind, component) == ("endpoint selection by hand", "q")


@pytest.mark.parametrize("kind", MODELS)
def test_a_hook_that_never_fires_is_an_error(made, kind):
    model, (_, destination) = made[kind], MODELS[kind].runs()
    before = state(model)
    with pytest.raises(RuntimeError, match=r"never fired.*use_attn_result"):
        run(model, destination, {"blocks.0.attn.hook_result": lambda value, hook: value})
    with pytest.raises(KeyError, match=r"no hook 'blocks\.0\.hook_reesid_pre'.*blocks\.0\.hook_resid_pre"):
        run(model, destination, {"blocks.0.hook_reesid_pre": lambda value, hook: value})
    assert_same(before, state(model))
