from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from headlab.models.esp.evaluation import evaluate
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.many import WIDEST_SCORES, ManySeeds
from headlab.models.esp.recipes import plan
from headlab.models.esp.task import EspTask, margins
from headlab.models.hooked import Architecture, build, initialise
from headlab.models.recipe import Recipe, learning_rate
from headlab.models.training import fit

TASK = EspTask(read_graph("random:6:0.5:1"))
INDUCTION = EspTask(read_graph("random:6:0.5:1"), induction=True)
RECIPE = Recipe(steps=25, lr=0.01, init_scale=0.4 / 16**0.5, warmup=3, check=1, record=5)


def architecture(task=TASK, heads=2, norm="LNPre", tied=True, neurons=0, **more):
    config = {
        "n_layers": 1,
        "n_heads": heads,
        "d_model": 16,
        "d_head": 5,
        "n_ctx": len(task.positions),
        "d_vocab": task.n + 3,
        "attn_only": not neurons,
        "normalization_type": norm,
        **({"d_mlp": neurons, "act_fn": "relu"} if neurons else {}),
        **more,
    }
    return Architecture(config, {"unembed": {"part": "TiedUnembed"}} if tied else {}, ("unembed.b_U",) if tied else ())


def learner(made, task=TASK, seeds=(3, 4, 5), recipe=RECIPE, **more):
    examples = task.examples()
    return ManySeeds(made, recipe, examples.inputs, examples.targets[:, 0], seeds=seeds, **more)


CASES = {
    "one head": architecture(heads=1),
    "two heads": architecture(),
    "three heads, no norm, untied": architecture(heads=3, norm=None, tied=False),
    "LayerNorm, untied": architecture(heads=1, norm="LN", tied=False),
    "neurons": architecture(heads=1, neurons=7),
    "neurons, LayerNorm, untied": architecture(norm="LN", tied=False, neurons=7),
    "neurons, no norm": architecture(norm=None, neurons=3),
    "no attention scale": architecture(use_attn_scale=False),
    "induction": architecture(INDUCTION),
}


def randomise(many, scale):
    """Every leaf random, biases and norm weights too."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for leaf in many.parameters().values():
            leaf.copy_(scale * torch.randn(leaf.shape, generator=generator, dtype=torch.float64).to(leaf))


@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_logits_and_gradients_are_the_whole_models(name, scale):
    task = INDUCTION if name == "induction" else TASK
    examples = task.examples()
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        many = learner(CASES[name], task, dtype=dtype)
        randomise(many, scale if dtype == torch.float64 else 0.3)
        many.losses(0).sum().backward()
        logits = many.logits()
        for index in range(3):
            model = many.export(index)
            own = model(examples.inputs)[:, -1]
            size = max(1.0, float(own.detach().abs().max()))
            assert float((own - logits[index]).detach().abs().max()) <= tolerance * size
            functional.cross_entropy(own, examples.targets[:, 0]).backward()
            for leaf_name, leaf in many.parameters().items():
                expected = dict(model.named_parameters())[leaf_name].grad
                size = max(1.0, float(expected.abs().max()))
                assert float((leaf.grad[index] - expected).abs().max()) <= 100 * tolerance * size, leaf_name


def test_very_sharp_attention_takes_the_careful_path_to_the_same_logits():
    many = learner(architecture(heads=1, norm=None), dtype=torch.float64)
    randomise(many, 6.0)
    model = many.export(0)
    _, cache = model.run_with_cache(TASK.examples().inputs)
    scores = cache["blocks.0.attn.hook_attn_scores"][:, 0, -1]
    assert float(scores.max() - scores.min()) > WIDEST_SCORES
    own = model(TASK.examples().inputs)[:, -1].detach()
    assert torch.allclose(own, many.logits()[0].detach(), atol=1e-10 * float(own.abs().max()))


def one_by_one(made, task, seed, recipe, weights=None):
    """Plain torch on the whole model: the losses of every step, and the model."""
    examples = task.examples()
    share = torch.ones(len(examples), dtype=torch.float64) if weights is None else weights.double()
    model = build(made, dtype=torch.float64)
    initialise(model, scale=recipe.init_scale, seed=seed)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.Adam(trained, recipe.lr, betas=recipe.betas)
    losses = []
    for step in range(recipe.steps + 1):
        each = functional.cross_entropy(model(examples.inputs)[:, -1], examples.targets[:, 0], reduction="none")
        loss = (each * share).sum() / share.sum()
        losses.append(loss.item())
        if step == recipe.steps:
            break
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, recipe.clip)
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(recipe, step)
        optimiser.step()
    return losses, model


@pytest.mark.parametrize("weighted", [False, True])
def test_many_seeds_train_as_each_would_alone(weighted):
    recipe = replace(RECIPE, record=RECIPE.steps + 30)  # so many that every early step is recorded
    made = architecture()
    weights = (torch.arange(2 * TASK.m) % 3).float() if weighted else None
    many = learner(made, weights=weights, dtype=torch.float64, recipe=recipe)
    run = fit(many, recipe)
    for index, seed in enumerate(many.seeds):
        losses, model = one_by_one(made, TASK, seed, recipe, weights)
        for row in run.history_of(index):
            assert row["loss"] == pytest.approx(losses[row["step"]], abs=1e-9)
        inputs = TASK.examples().inputs
        assert torch.allclose(many.export(index)(inputs)[:, -1], model(inputs)[:, -1], atol=1e-7)


def test_measures_are_the_exported_models_own():
    many = learner(architecture())
    run = fit(many, RECIPE, keep=("errors", "loss"))
    last = run.history[-1]
    for index in range(3):
        found = evaluate(many.export(index), TASK)
        assert last["errors"][index] == found.errors
        assert last["accuracy"][index] == pytest.approx(found.accuracy)
        assert last["min_margin"][index] == pytest.approx(found.min_margin, abs=1e-4)
        assert last["cross_entropy"][index] == pytest.approx(found.loss, abs=1e-5)
        best = evaluate(many.export(index, run.best), TASK)
        assert best.errors <= run.best_measures["errors"][index]


def test_ties_are_wrong():
    many = learner(architecture())
    with torch.no_grad():
        for leaf in many.parameters().values():
            leaf.zero_()
    many.losses(0)
    assert many.measure()["errors"].tolist() == [2 * TASK.m] * 3
    assert (margins(many.logits()[0].detach(), TASK.examples().targets[:, 0]) == 0).all()


def test_a_stacked_training_resumes_bit_for_bit():
    kept = {"keep": ("errors", "loss"), "weights_of": (0, 2)}
    unbroken = fit(learner(architecture()), RECIPE, **kept)
    state = fit(learner(architecture()), RECIPE, until=11, **kept).state
    resumed = fit(learner(architecture()), RECIPE, state=state, **kept)
    assert unbroken.state.data == resumed.state.data
    for name, value in unbroken.state.tensors.items():
        assert torch.equal(value, resumed.state.tensors[name]), name


def test_global_generators_are_untouched():
    before = torch.get_rng_state().tolist(), np.random.get_state()[1].tolist()  # noqa: NPY002
    many = learner(architecture())
    fit(many, RECIPE)
    many.export(0)
    assert (torch.get_rng_state().tolist(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002


def test_what_the_table_does_not_cover_is_refused():
    with pytest.raises(ValueError, match="on one layer only, not on 2"):
        learner(architecture(n_layers=2))
    with pytest.raises(ValueError, match="with LNPre, LN or no norm, not RMS"):
        learner(architecture(norm="RMS"))
    with pytest.raises(ValueError, match="with a ReLU network or none, not gelu"):
        learner(architecture(neurons=4, act_fn="gelu"))
    with pytest.raises(ValueError, match="standard embeddings and attention only"):
        learner(architecture(positional_embedding_type="rotary", rotary_dim=4))
    with pytest.raises(ValueError, match="the recipe gives no init_scale"):
        learner(architecture(), recipe=replace(RECIPE, init_scale=None))
    made = plan(TASK, heads=1, method="cross-entropy")
    inputs = torch.tensor([[0, 1, 6, 8], [0, 1, 6, 7]])
    with pytest.raises(ValueError, match="the token that is read is the same in every sample"):
        ManySeeds(made.architecture, made.recipe, inputs, torch.tensor([0, 1]), seeds=[0])
