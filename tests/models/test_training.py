import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from headlab.models.checkpoints import Checkpoint, load, load_training, save, save_training
from headlab.models.hooked import Architecture, build, initialise
from headlab.models.losses import cross_entropy, generalised_cross_entropy, loss_function, squared_error
from headlab.models.recipe import recorded_steps
from headlab.models.training import ModelLearner, Recipe, clip_gradients, fit, learning_rate

ARCHITECTURE = Architecture(
    {"n_layers": 1, "n_heads": 2, "d_model": 8, "d_head": 4, "n_ctx": 4, "d_vocab": 7, "attn_only": True},
    {"unembed": {"part": "TiedUnembed"}},
    ("unembed.b_U",),
)
INPUTS = torch.tensor([[u, v, 4 + i, 6] for u in range(4) for v in range(4) for i in (0, 1)])
TARGETS = torch.tensor([(u, v)[i] for u in range(4) for v in range(4) for i in (0, 1)])


def single(seed=0):
    """A small HookedTransformer on drawn batches, so that the generator's state matters."""
    model = build(ARCHITECTURE)
    initialise(model, scale=0.3, seed=seed)

    def draw(generator, step):
        return torch.randint(len(INPUTS), (8,), generator=generator)

    def loss(trained, rows):
        return cross_entropy(trained(INPUTS[rows])[:, -1], TARGETS[rows]).mean()

    def measure(trained):
        return {"errors": (trained(INPUTS)[:, -1].argmax(-1) != TARGETS).sum()}

    return ModelLearner(model, seed=seed, draw=draw, loss=loss, measure=measure)


class Script:
    """Stacked leaves w [seed, 1] that follow d loss / d w = slope, and measures that are written down per step."""

    stacked = True

    def __init__(self, slopes, errors=None, width=1, loss_at=None):
        self.slopes = torch.tensor(slopes)
        self.seeds = tuple(range(10, 10 + len(slopes)))
        self.w = torch.zeros(len(slopes), width, requires_grad=True)
        self.errors, self.loss_at, self.step = errors, loss_at or {}, 0

    def parameters(self):
        return {"w": self.w}

    def losses(self, step):
        self.step = step
        constant = torch.tensor(self.loss_at.get(step, [0.0] * len(self.seeds)))
        return (self.w * self.slopes[:, None]).sum(1) + constant

    def measure(self):
        return {"errors": torch.tensor(self.errors[self.step])} if self.errors else {}

    def state(self):
        return {}

    def load_state(self, state):
        assert state == {}

    def export(self, seed_index, weights=None):
        raise NotImplementedError


PLAIN = Recipe(optimiser="sgd", lr=0.5, warmup=0, clip=None, steps=3, check=1)


# ---- recipes and rates ----------------------------------------------------------------------------------------------


def test_learning_rate_rises_then_is_constant():
    recipe = Recipe(lr=0.1, warmup=4, steps=10)
    assert [learning_rate(recipe, step) for step in range(6)] == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])


def test_cosine_falls_to_the_final_fraction_at_the_last_update():
    recipe = Recipe(lr=0.1, warmup=5, steps=105, schedule="cosine", final_fraction=0.02)
    assert learning_rate(recipe, 5) == pytest.approx(0.1)
    assert learning_rate(recipe, 104) == pytest.approx(0.002)
    assert learning_rate(recipe, 5 + 99 // 3) == pytest.approx(0.1 * (0.02 + 0.98 * 0.75))


@given(st.integers(0, 30), st.integers(1, 300), st.sampled_from(["constant", "cosine"]), st.floats(0, 1))
def test_learning_rates_stay_in_their_range(warmup, steps, schedule, final):
    recipe = Recipe(lr=0.3, warmup=warmup, steps=steps, schedule=schedule, final_fraction=final)
    rates = [learning_rate(recipe, step) for step in range(steps)]
    assert all(0.3 * final * 0.999 <= rate <= 0.3 + 1e-12 for rate in rates[warmup:])
    assert all(0 < rate <= 0.3 + 1e-12 for rate in rates[:warmup])
    after = rates[warmup:]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(after))


@given(st.integers(0, 5000), st.integers(1, 60))
def test_recorded_steps_begin_at_0_and_end_at_the_last(steps, record):
    found = recorded_steps(Recipe(steps=steps, record=record))
    assert found[0] == 0
    assert found[-1] == steps
    assert found == sorted(set(found))
    assert len(found) <= record + 2


def test_a_recipe_survives_json():
    recipe = Recipe(loss="gce", q=0.4, betas=(0.8, 0.9), lr_scales={"embed.*": 4.0}, clip=None, schedule="cosine")
    assert Recipe.from_json(recipe.to_json()) == recipe
    with pytest.raises(ValueError, match="a recipe has no 'learning'"):
        Recipe.from_json({"learning": 1})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"optimiser": "lion"}, "unknown optimiser 'lion': choose adam or sgd"),
        ({"schedule": "linear"}, "unknown schedule 'linear'"),
        ({"lr": 0.0}, "learning rate must be above 0"),
        ({"lr": math.inf}, "learning rate must be above 0"),
        ({"steps": -1}, "cannot be negative"),
        ({"q": 0.0}, r"q must lie in \(0, 1\]"),
    ],
)
def test_recipes_that_make_no_sense(wrong, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**wrong)
    with pytest.raises(KeyError, match="unknown loss 'hinge': choose cross_entropy, gce or mse"):
        Recipe(loss="hinge")


# ---- losses ---------------------------------------------------------------------------------------------------------


def test_cross_entropy_is_torchs_and_broadcasts_over_seeds():
    logits = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets = torch.tensor([0, 3, 1, 2, 2])
    for seed in range(3):
        expected = functional.cross_entropy(logits[seed], targets, reduction="none")
        assert torch.allclose(cross_entropy(logits, targets)[seed], expected, atol=1e-14)


@given(st.floats(0.01, 0.99))
def test_generalised_cross_entropy_lies_between_cross_entropy_and_one_minus_p(p):
    logits = torch.tensor([[math.log(p), math.log(1 - p)]], dtype=torch.float64)
    target = torch.tensor([0])
    assert generalised_cross_entropy(logits, target, 1.0).item() == pytest.approx(1 - p)
    assert generalised_cross_entropy(logits, target, 1e-7).item() == pytest.approx(-math.log(p), rel=1e-5)
    assert generalised_cross_entropy(logits, target, 0.7).item() == pytest.approx((1 - p**0.7) / 0.7)


def test_losses_by_name():
    assert loss_function("cross_entropy") is cross_entropy
    assert loss_function("mse") is squared_error
    assert squared_error(torch.tensor([1.0, -1.0]), torch.tensor([3.0, -1.0])).tolist() == [4.0, 0.0]
    logits, target = torch.tensor([[2.0, 0.0]]), torch.tensor([1])
    assert torch.equal(loss_function("gce", 0.4)(logits, target), generalised_cross_entropy(logits, target, 0.4))


# ---- resuming -------------------------------------------------------------------------------------------------------

RESUMED = {
    "adam": Recipe(steps=30, lr=0.02, warmup=5, record=8, check=3, batch=8),
    "cosine": Recipe(steps=30, lr=0.02, warmup=5, schedule="cosine", weight_decay=0.1, lr_scales={"*W_Q": 4.0}),
    "sgd": Recipe(steps=30, lr=0.1, optimiser="sgd", momentum=0.9, clip=0.5, check=1),
}
KEPT = {"keep": ("errors", "loss"), "done": lambda found: found["errors"] < 25, "weights_of": (0,)}


def assert_same(one, other):
    assert one.state.data == other.state.data
    assert one.state.step == other.state.step
    assert set(one.state.tensors) == set(other.state.tensors)
    for name, value in one.state.tensors.items():
        assert torch.equal(value, other.state.tensors[name]), name
    assert (one.solved, one.best_step, one.best_measures) == (other.solved, other.best_step, other.best_measures)
    assert all(torch.equal(value, other.best[name]) for name, value in one.best.items())


@pytest.mark.parametrize("name", list(RESUMED))
@pytest.mark.parametrize("until", [0, 17, 30])
def test_a_resumed_training_is_the_unbroken_one_bit_for_bit(tmp_path, name, until):
    recipe = RESUMED[name]
    unbroken = fit(single(), recipe, **KEPT)
    paused = fit(single(), recipe, until=until, **KEPT)
    assert (paused.step, paused.finished) == (until, False)
    directory = save_training(tmp_path / "state", paused.state)
    resumed = fit(single(), recipe, state=load_training(directory), **KEPT)
    assert resumed.finished
    assert_same(unbroken, resumed)
    again = fit(single(), recipe, state=resumed.state, **KEPT)
    assert_same(unbroken, again)


def test_every_recorded_state_leads_to_the_same_result():
    recipe = replace(RESUMED["adam"], record=5)
    states = {}
    unbroken = fit(single(), recipe, on_record=lambda step, now: states.update({step: now()}), **KEPT)
    assert sorted(states) == recorded_steps(recipe)
    for state in states.values():
        assert_same(unbroken, fit(single(), recipe, state=state, **KEPT))


def test_more_steps_go_on_where_fewer_ended():
    short, long = replace(RESUMED["sgd"], steps=12), replace(RESUMED["sgd"], steps=30)
    first = fit(single(), short)
    second = fit(single(), long, state=first.state)
    unbroken = fit(single(), long)
    for name, value in unbroken.best.items():
        assert torch.equal(value, second.best[name])


def test_a_state_of_something_else_is_refused():
    recipe = RESUMED["adam"]
    state = fit(single(), recipe, until=2).state
    with pytest.raises(ValueError, match=r"made with another recipe: lr was 0\.02, not 0\.5"):
        fit(single(), replace(recipe, lr=0.5), state=state)
    with pytest.raises(ValueError, match=r"of the seeds \[0\], not of \[1\]"):
        fit(single(1), recipe, state=state)
    script = Script([1.0])
    script.seeds = (0,)
    with pytest.raises(ValueError, match="does not fit the model"):
        fit(script, recipe, state=state)


def test_a_checkpoint_resumes_too(tmp_path):
    recipe = RESUMED["adam"]
    learner = single()
    run = fit(learner, recipe, until=9, **KEPT)
    checkpoint = Checkpoint(learner.export(0), ARCHITECTURE, "esp", recipe=recipe.to_json(), history=run.history_of(0))
    directory = save(tmp_path / "run", checkpoint, training=run.state)
    resumed = fit(single(), Recipe.from_json(load(directory).recipe), state=load_training(directory), **KEPT)
    assert_same(fit(single(), recipe, **KEPT), resumed)


def test_global_generators_are_untouched():
    before = torch.get_rng_state().tolist(), np.random.get_state()[1].tolist()  # noqa: NPY002
    fit(single(), RESUMED["adam"])
    assert (torch.get_rng_state().tolist(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002


# ---- the loop -------------------------------------------------------------------------------------------------------


def test_clipping_is_per_seed_and_leaves_small_gradients_alone():
    leaf = torch.zeros(3, 2, requires_grad=True)
    leaf.grad = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    clip_gradients({"w": leaf}, 1.0, stacked=True)
    assert torch.allclose(leaf.grad, torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]), atol=1e-6)


def test_clipping_of_one_model_is_torchs():
    generator = torch.Generator().manual_seed(0)
    leaves = {str(k): torch.zeros(k + 1, 2, requires_grad=True) for k in range(3)}
    for leaf in leaves.values():
        leaf.grad = torch.randn(leaf.shape, generator=generator)
    copies = [leaf.detach().clone().requires_grad_() for leaf in leaves.values()]
    for copy, leaf in zip(copies, leaves.values()):
        copy.grad = leaf.grad.clone()
    torch.nn.utils.clip_grad_norm_(copies, 0.7)
    clip_gradients(leaves, 0.7, stacked=False)
    for copy, leaf in zip(copies, leaves.values()):
        assert torch.allclose(copy.grad, leaf.grad, rtol=1e-6)


def test_one_seeds_gradient_does_not_scale_anothers():
    recipe = replace(PLAIN, clip=1.0)
    both = fit(Script([1000.0, 0.5]), recipe)
    alone = fit(Script([0.5]), recipe)
    assert both.best["w"][1].item() == alone.best["w"][0].item() == pytest.approx(-0.75)
    assert both.best["w"][0].item() == pytest.approx(-1.5)


def test_sgd_steps_and_learning_rate_factors_are_what_they_say():
    assert fit(Script([2.0]), PLAIN).best["w"].item() == pytest.approx(-3 * 0.5 * 2.0)
    assert fit(Script([2.0]), replace(PLAIN, lr_scales={"w*": 4.0})).best["w"].item() == pytest.approx(-12.0)
    with pytest.raises(ValueError, match="lr_scales: 'embed' matches no parameter; there are w"):
        fit(Script([2.0]), replace(PLAIN, lr_scales={"embed": 4.0}))


def test_each_seeds_best_weights_are_kept_errors_first_then_loss():
    errors = {0: [5, 5], 1: [2, 4], 2: [3, 4], 3: [2, 9]}
    run = fit(Script([1.0, -1.0], errors), PLAIN, keep=("errors", "loss"))
    # w falls by .5 a step for seed 10 and rises for seed 11; both losses fall, so of level errors the later step wins
    assert run.best_step == [3, 2]
    assert run.best["w"].flatten().tolist() == [-1.5, 1.0]
    assert run.best_measures["errors"] == [2, 4]
    worse_later = Script([1.0, -1.0], errors, loss_at={3: [9.0, 9.0]})
    assert fit(worse_later, PLAIN, keep=("errors", "loss")).best_step == [1, 2]
    with pytest.raises(KeyError, match="does not measure 'margin'; it measures loss, errors"):
        fit(Script([1.0], {0: [0]}), PLAIN, keep=("margin",))


def test_the_first_solved_step_is_recorded_and_training_settles():
    errors = {step: [max(0, 2 - step), max(0, 5 - step)] for step in range(40)}
    errors[7] = [1, 1]
    recipe = replace(PLAIN, steps=39, stop=True, settle=3)
    run = fit(Script([1.0, 1.0], errors), recipe, done=lambda found: found["errors"] == 0)
    assert run.solved == [2, 5]
    assert (run.step, run.finished) == (8, True)
    assert run.history[-1]["step"] == 8
    rarely = replace(recipe, check=4, settle=0, record=1)
    assert fit(Script([1.0, 1.0], errors), rarely, done=lambda found: found["errors"] == 0).solved == [4, 8]
    never = fit(Script([1.0, 1.0], errors), recipe, done=lambda found: found["errors"] < 0)
    assert never.solved == [None, None]
    assert never.step == 39


def test_history_and_weights_at_recorded_steps():
    shown = []
    recipe = replace(PLAIN, steps=20, record=4)
    errors = {step: [step, 2 * step] for step in range(21)}
    run = fit(
        Script([1.0, 2.0], errors), recipe, weights_of=(1,), progress=lambda step, total: shown.append((step, total))
    )
    steps = recorded_steps(recipe)
    assert [row["step"] for row in run.history] == steps == sorted(run.weights)
    assert run.history_of(1)[-1] == {"step": 20, "lr": 0.5, "loss": pytest.approx(-40.0), "errors": 40.0}
    for step in steps:
        assert run.weights[step]["w"].tolist() == [[-1.0 * step]]
    assert shown == [(step, 20) for step in range(21)]


def test_a_diverging_seed_is_named():
    script = Script([1.0, 1.0], loss_at={2: [0.0, math.nan]})
    with pytest.raises(ValueError, match="the loss of seed 11 is nan at step 2; use a smaller learning rate"):
        fit(script, PLAIN)


def test_exported_models_are_copies_with_the_weights_asked_for():
    learner = single()
    start = {name: leaf.detach().clone() for name, leaf in learner.parameters().items()}
    run = fit(learner, RESUMED["adam"], **KEPT)
    first = learner.export(0, run.weights[0])
    assert all(torch.equal(leaf, start[name]) for name, leaf in first.named_parameters() if name in start)
    assert torch.equal(learner.export(0)(INPUTS), learner.model(INPUTS))
    with torch.no_grad():
        first.embed.W_E.zero_()
    assert not torch.equal(first.embed.W_E, learner.model.embed.W_E)
