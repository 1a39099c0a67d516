from dataclasses import replace

import pytest
import torch

from headlab.models.checkpoints import load, load_history
from headlab.models.hooked import build, initialise
from headlab.models.training import fit
from headlab.models.tree.architecture import architecture
from headlab.models.tree.learner import Stage, TreeLearner
from headlab.models.tree.parallel import is_plain_attention, logits_at
from headlab.models.tree.recipes import PLAIN, RECIPE, curriculum, direct, frozen_labels, plain_descent
from headlab.models.tree.runs import train
from headlab.models.tree.source import TreeSource
from headlab.models.tree.task import TreeTask

SMALL = TreeTask(TreeSource(depths=(2,), labels=8, nodes=5))
SHORT = replace(RECIPE, steps=12, batch=8, warmup=2, record=4)


def small_plan(recipe=SHORT, **more):
    return direct(SMALL, heads=2, d_model=16, d_head=4, recipe=recipe, **more)


@pytest.mark.parametrize(
    ("task", "layers", "scaled"),
    [
        (TreeTask(TreeSource(depths=(1, 3), labels=16)), 1, True),
        (TreeTask(TreeSource(depths=(2,), labels=16), "backward"), 1, False),
        (TreeTask(TreeSource(depths=(2,), labels=16), chain_of_thought=False), 3, True),
        (TreeTask(TreeSource(depths=(2,), labels=16), form="plain"), 2, True),
    ],
)
def test_logits_and_gradients_equal_those_of_the_whole_model(task, layers, scaled):
    plan = architecture(task, heads=3, layers=layers, d_model=20, d_head=5, scaled=scaled)
    models = [build(plan, dtype=torch.float64) for _ in range(2)]
    for seed, model in enumerate(models):
        initialise(model, scale=0.4, seed=seed)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if ".b_" in name:
                    parameter.normal_(generator=torch.Generator().manual_seed(seed))
    examples = task.examples(count=6)
    stacked = {
        name: torch.stack([dict(model.named_parameters())[name].detach() for model in models]).requires_grad_(True)
        for name, _ in models[0].named_parameters()
    }
    both = (examples.inputs.expand(2, *examples.inputs.shape), examples.read.expand(2, *examples.read.shape))
    ours = logits_at(stacked, plan.config, *both)
    used = (examples.read >= 0)[..., None]
    (ours * used).sin().sum().backward()
    index = examples.read.clamp(min=0)[..., None].expand(-1, -1, len(task.vocabulary))
    for seed, model in enumerate(models):
        assert is_plain_attention(model)
        whole = model(examples.inputs).gather(1, index)
        assert torch.allclose(ours[seed], whole, atol=1e-12)
        (whole * used).sin().sum().backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None and parameter.grad.abs().max() > 0:
                assert torch.allclose(stacked[name].grad[seed], parameter.grad, atol=1e-11), name


def test_models_that_the_fast_path_does_not_cover_are_known():
    plan = architecture(SMALL, heads=1, d_model=8, d_head=4)
    assert is_plain_attention(build(plan))
    for change in ({"normalization_type": "LNPre"}, {"attn_only": False, "d_mlp": 8, "act_fn": "relu"}):
        assert not is_plain_attention(build(replace(plan, config={**plan.config, **change})))


def test_a_seed_learns_the_same_alone_and_in_company():
    plan = small_plan()
    together, alone = plan.learner((0, 1), validation=16), plan.learner((1,), validation=16)
    runs = [fit(learner, plan.recipe) for learner in (together, alone)]
    for name, value in alone.parameters().items():
        assert torch.allclose(value[0], together.parameters()[name][1], atol=1e-5), name
    assert runs[0].history_of(1)[-1]["loss"] == pytest.approx(runs[1].history_of(0)[-1]["loss"], abs=1e-5)
    assert not torch.allclose(together.parameters()["embed.W_A"][0], together.parameters()["embed.W_A"][1])


def test_a_small_model_learns_and_its_measures_say_so():
    task = TreeTask(TreeSource(depths=(1,), labels=4, nodes=3))
    plan = direct(task, heads=2, d_model=16, d_head=8, recipe=replace(RECIPE, steps=200, init_scale=0.2, record=4))
    learner = plan.learner((0,), validation=64, follow=16)
    run = fit(learner, plan.recipe)
    first, last = run.history[0], run.history[-1]
    assert last["path"][0] > 0.9 > 0.2 > first["path"][0]
    assert last["usage backward"][0] > 0.25 > first["usage backward"][0]
    assert {"token", "backward", "reverse", "usage reverse", "specialisation"} <= set(last)


def test_stages_follow_one_another():
    tasks = [TreeTask(TreeSource(depths=(depth,), labels=16, shape="binary")) for depth in (1, 2)]
    plan = curriculum(tasks, (5, 3), (4, 2), d_model=8, d_head=4)
    assert plan.recipe.steps == 8
    learner = plan.learner((0, 1), validation=8)
    sizes = [learner._batch(step)[0].shape[1:3] for step in (0, 4, 5, 7)]
    assert sizes == [(4, tasks[0].layout.length)] * 2 + [(2, tasks[1].layout.length)] * 2
    assert learner.measure()["path"].shape == (2,)


def test_mixed_depths_train_with_their_padding_masked():
    task = TreeTask(TreeSource(depths=(1, 3), labels=16))
    learner = direct(task, heads=2, d_model=8, d_head=4, recipe=replace(SHORT, batch=3)).learner((0, 1, 2))
    tokens, read, _ = learner._batch(0)
    assert tokens.shape[1] == read.shape[1] == 3
    before = learner.losses(0).detach()
    learner._chunk[2][0].targets.masked_fill_(learner._chunk[2][0].read < 0, 3)
    assert torch.equal(before, learner.losses(0).detach())


def test_frozen_labels_stay_and_attention_moves():
    plan = frozen_labels(SMALL, label_width=6, d_head=5, recipe=SHORT)
    learner = plan.learner((0,), validation=8)
    assert set(learner.parameters()) == {f"blocks.0.attn.{kind}_{name}" for kind in "Wb" for name in "QKVO"}
    fit(learner, plan.recipe)
    start, end = plan.start(0), learner.export(0)
    assert torch.equal(start.embed.W_A, end.embed.W_A)
    assert not torch.equal(start.W_Q, end.W_Q)


def test_plain_descent_starts_from_zero_and_learns_the_construction():
    task = TreeTask(TreeSource(depths=(2,), labels=6, nodes=5))
    plan = plain_descent(task, recipe=replace(PLAIN, steps=200, batch=32, record=4))
    learner = plan.learner((0,), validation=64)
    assert list(learner.parameters()) == ["blocks.0.attn.W_Q"]
    assert learner.parameters()["blocks.0.attn.W_Q"].abs().max() == 0
    run = fit(learner, plan.recipe)
    assert run.history[-1]["path"][0] > 0.9
    assert run.history[0]["path"][0] < 0.1


def test_a_broken_run_resumes_to_the_same_weights(tmp_path):
    plan = small_plan(replace(SHORT, steps=20))
    whole = train(plan, (0, 1), tmp_path / "whole", validation=8, paths=20)
    part = train(plan, (0, 1), tmp_path / "part", until=9, validation=8, paths=20)
    assert part == {"finished": False, "step": 9, "runs": [], "best": None}
    rest = train(plan, (0, 1), tmp_path / "part", resume=True, validation=8, paths=20)
    assert rest["runs"] == whole["runs"]
    for seed in (0, 1):
        one, other = (load(tmp_path / name / f"seed-{seed}") for name in ("whole", "part"))
        assert one.history == other.history
        for name, value in one.model.state_dict().items():
            assert torch.equal(value, other.model.state_dict()[name]), name
    again = train(plan, (0, 1), tmp_path / "part", resume=True, validation=8, paths=20)
    assert again["runs"] == whole["runs"]
    assert load(tmp_path / "whole").directory.name == whole["best"]


def test_a_curriculum_keeps_its_models_at_the_end_of_each_stage(tmp_path):
    tasks = [TreeTask(TreeSource(depths=(depth,), labels=16, shape="binary")) for depth in (1, 2)]
    plan = curriculum(tasks, (6, 4), (4, 2), d_model=8, d_head=4, recipe=replace(RECIPE, warmup=2, record=3))
    whole = train(plan, (0,), tmp_path / "whole", validation=8, paths=10)
    for pause in (3, 6, 8):
        train(plan, (0,), tmp_path / "part", until=pause, resume=True, validation=8, paths=10)
    rest = train(plan, (0,), tmp_path / "part", resume=True, validation=8, paths=10)
    assert rest["runs"] == whole["runs"]
    for name in ("whole", "part"):
        between = load(tmp_path / name / "after-stage-1")
        assert TreeTask.from_options(between.task_options) == tasks[0]
        assert not torch.equal(between.model.W_Q, load(tmp_path / name).model.W_Q)
    assert torch.equal(
        load(tmp_path / "whole/after-stage-1").model.W_Q, load(tmp_path / "part/after-stage-1").model.W_Q
    )


def test_earlier_weights_are_kept_where_asked_for(tmp_path):
    train(small_plan(), (3, 4), tmp_path, validation=8, paths=20, keep_weights=(4,))
    steps = [step for step, _ in load_history(tmp_path / "seed-4")]
    assert steps[0] == 0
    assert steps[-1] == 12
    last = dict(load_history(tmp_path / "seed-4"))[12]
    final = load(tmp_path / "seed-4").model
    assert torch.equal(last.W_Q, final.W_Q)
    with pytest.raises(ValueError, match="keeps no weights of earlier steps"):
        next(load_history(tmp_path / "seed-3"))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: curriculum([SMALL], (1, 2), (1,)), "give one of each a stage"),
        (
            lambda: curriculum([SMALL, TreeTask(TreeSource(labels=32))], (1, 2), (1, 1)),
            "share one set of labels",
        ),
        (lambda: architecture(SMALL, heads=0), "0 heads in 1 layers"),
        (
            lambda: TreeLearner([Stage(SMALL, 3, 2)], small_plan().architecture, SHORT, small_plan().start, seeds=(0,)),
            "12 steps are more than the stages' 3",
        ),
    ],
)
def test_bad_requests_are_one_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()
