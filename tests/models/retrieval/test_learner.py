"""Seeds trained together are the HookedTransformers they are exported as; a small target is learned; stuck seeds."""

import pytest
import torch

from headlab.interp.model import run
from headlab.models import runs
from headlab.models.checkpoints import load
from headlab.models.learner import Learner
from headlab.models.retrieval import recipes
from headlab.models.retrieval.architecture import architecture, start
from headlab.models.retrieval.evaluation import evaluate
from headlab.models.retrieval.family import nearest_points, sum_of_maxima
from headlab.models.retrieval.learner import RetrievalLearner, draw_data, prefixes
from headlab.models.retrieval.recipes import TrainedModels, one_at_a_time, recipe, train
from headlab.models.retrieval.runs import train_and_save
from headlab.models.retrieval.task import RetrievalTask
from headlab.models.training import fit

FAMILY = sum_of_maxima(2, 4)


@pytest.mark.parametrize("encoder", ["linear", "mlp"])
def test_together_they_answer_as_they_do_alone(encoder: str) -> None:
    data = draw_data(FAMILY, train=64, validation=50)
    learner = RetrievalLearner(architecture(FAMILY, 3, encoder=encoder), data, seeds=(4, 0), batch=16)
    assert isinstance(learner, Learner)
    ours = learner.outputs(data.validation[None]).detach() * data.sd + data.mean
    for index, seed in enumerate((4, 0)):
        model = learner.export(index)
        assert torch.allclose(run(model, data.validation)[:, -1, 0], ours[index], atol=2e-6)
        fresh = start(learner.architecture, seed=seed)
        assert torch.equal(model.blocks[0].attn.W_K, fresh.blocks[0].attn.W_K)
        found = evaluate(model, RetrievalTask(FAMILY), count=500)
        assert float(learner.measure()["nmse"][index]) == pytest.approx(found.nmse, rel=0.5)


@pytest.mark.parametrize("encoder", ["linear", "mlp"])
def test_together_they_learn_as_they_do_alone(encoder: str) -> None:
    data = draw_data(FAMILY, train=64, validation=50)
    design, plan = architecture(FAMILY, 2, encoder=encoder), recipe("quick", steps=12, batch=8)
    together = RetrievalLearner(design, data, seeds=(0, 1), batch=8)
    fit(together, plan)
    alone = one_at_a_time(design, data, seed=1, batch=8)
    fit(alone, plan)
    for name, leaf in alone.parameters().items():
        if not name.endswith("b_E"):  # along keys it moves nothing, and Adam then follows rounding
            assert torch.allclose(leaf, together.parameters()[name][1], atol=2e-3), name
    assert float(alone.measure()["nmse"]) == pytest.approx(float(together.measure()["nmse"][1]), rel=1e-2)


def test_a_broken_training_goes_on_as_if_unbroken() -> None:
    data = draw_data(FAMILY, train=64, validation=50)
    design, plan = architecture(FAMILY, 2), recipe("quick", steps=10, batch=8)
    whole = RetrievalLearner(design, data, seeds=(0, 1), batch=8)
    fit(whole, plan)
    first = fit(RetrievalLearner(design, data, seeds=(0, 1), batch=8), plan, until=6)
    second = RetrievalLearner(design, data, seeds=(0, 1), batch=8)
    fit(second, plan, state=first.state)
    for name, leaf in whole.parameters().items():
        assert torch.equal(leaf, second.parameters()[name])


def test_two_heads_learn_two_maxima_and_one_head_does_not() -> None:
    data = draw_data(FAMILY, train=2000, validation=500)
    plan = recipe("quick", steps=300, lr=2e-2, batch=64)
    enough = train(FAMILY, architecture(FAMILY, 2), plan, (0, 1, 2), data=data)
    fewer = train(FAMILY, architecture(FAMILY, 1), plan, (0, 1, 2), data=data)
    assert min(enough.nmse) < 0.01
    assert min(fewer.nmse) > 0.1
    assert fewer.stuck == (0, 1, 2)
    assert fewer.stuck_share.value == 1.0
    found = evaluate(enough.models[enough.best], RetrievalTask(FAMILY), count=1000)
    assert found.nmse == pytest.approx(min(enough.nmse), rel=0.5)  # in the target's own units


@pytest.mark.parametrize(
    ("family", "layers"), [(FAMILY, 2), (nearest_points(2, 4, sets=((0, 1), (2, 3))), 1)], ids=["layers", "positions"]
)
def test_other_architectures_train_one_after_the_other(family, layers: int) -> None:  # type: ignore[no-untyped-def]
    data = draw_data(family, train=40, validation=20)
    design = architecture(family, 1, layers=layers)
    seen: list[tuple[int, int]] = []
    made = train(
        family,
        design,
        recipe("quick", steps=3, batch=8),
        (0, 1),
        data=data,
        progress=lambda step, steps: seen.append((step, steps)),
    )
    assert isinstance(made, TrainedModels)
    assert len(made.models) == len(made.runs) == len(made.nmse) == 2
    assert seen[-1] == (6, 6)
    answers = run(made.models[1], data.validation)[:, -1, 0].detach()
    error = (answers - data.validation_targets).double().square().mean() / data.validation_targets.double().var(
        correction=0
    )
    assert float(error) == pytest.approx(made.nmse[1], rel=1e-4)
    with pytest.raises(ValueError, match="one layer and without positions only"):
        RetrievalLearner(design, data, seeds=(0,))


def test_training_sequences_are_not_those_of_an_evaluation() -> None:
    data = draw_data(FAMILY, seed=3, train=500, validation=200)
    evaluated = {tuple(row) for row in RetrievalTask(FAMILY).draw(500, 3).flatten(1).tolist()}
    for drawn in (data.train, data.validation):
        assert not evaluated & {tuple(row) for row in drawn.flatten(1).tolist()}


def test_bad_requests_are_named() -> None:
    with pytest.raises(KeyError, match="there are quick, standard, long"):
        recipe("slow")
    with pytest.raises(ValueError, match="2 of each"):
        draw_data(FAMILY, train=1)
    with pytest.raises(ValueError, match="no seeds"):
        train(FAMILY, architecture(FAMILY, 1), recipe(), ())
    data = draw_data(FAMILY, train=4, validation=4)
    with pytest.raises(ValueError, match="at least 1 sequence"):
        RetrievalLearner(architecture(FAMILY, 1), data, seeds=(0,), batch=0)


class BrokenOff(Exception):
    pass


@pytest.mark.parametrize("layers", [1, 2])
def test_a_training_that_was_broken_off_resumes_to_the_same_result(tmp_path, monkeypatch, layers: int) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(recipes, "PAUSE", 4)
    monkeypatch.setattr(runs, "SAVE_EVERY", 0.0)
    task, design = RetrievalTask(FAMILY), architecture(FAMILY, 2, layers=layers)
    plan = recipe("quick", steps=18, batch=8)

    def stop(step: int, steps: int) -> None:
        if step == (10 if layers == 1 else 18 + 10):  # in mid-way of the second seed where they train in turn
            raise BrokenOff

    def train_into(name: str, **more):  # type: ignore[no-untyped-def]
        return train_and_save(task, design, plan, (0, 1), tmp_path / name, examples=40, **more)

    whole = train_into("whole")
    with pytest.raises(BrokenOff):
        train_into("broken", progress=stop)
    assert not (tmp_path / "broken" / "runs.json").exists()
    with pytest.raises(ValueError, match="another request"):
        train_and_save(task, design, plan, (0, 2), tmp_path / "broken", examples=40, resume=True)
    steps: list[int] = []
    resumed = train_into("broken", resume=True, progress=lambda step, total: steps.append(step))
    assert steps[0] == (8 if layers == 1 else 18 + 8)
    assert resumed == whole
    for seed in (0, 1):
        first, second = (load(tmp_path / name / f"seed-{seed}") for name in ("whole", "broken"))
        assert first.history == second.history
        for name, value in first.model.state_dict().items():
            assert torch.equal(value, second.model.state_dict()[name]), name
    again = train_into("broken", resume=True, progress=lambda *_: pytest.fail("trained again"))
    assert again == whole


def test_training_may_begin_on_the_first_tokens() -> None:
    family = sum_of_maxima(2, 40)
    data = draw_data(family, train=30, validation=10)
    found = prefixes(family, data, 20)
    assert [(each.until, each.length) for each in found] == [(7, 8), (10, 32)]
    assert torch.equal(found[0].targets, sum_of_maxima(2, 8).target(data.train[:, :8]))
    assert prefixes(sum_of_maxima(2, 8), data, 20) == ()
    design = architecture(family, 2)
    grown = RetrievalLearner(design, data, seeds=(0,), batch=16, shorter=found)
    short = RetrievalLearner(design, data, seeds=(0,), batch=16)
    answers = short.outputs(data.train[None, :, :8]).detach()[0]
    wanted = (found[0].targets - data.mean) / data.sd
    rows = torch.randint(30, (16,), generator=torch.Generator().manual_seed(0))
    assert float(grown.losses(6)[0].detach()) == pytest.approx(
        float((answers - wanted)[rows].square().mean()), rel=1e-5
    )
    grown.load_state(short.state())
    assert torch.equal(grown.losses(10).detach(), short.losses(10).detach())  # whole sequences from then on
    with pytest.raises(ValueError, match="position sets that are the whole sequence"):
        prefixes(nearest_points(1, 4, sets=((0, 1),)), data, 20)
    with pytest.raises(ValueError, match="leave out grow"):
        train(family, architecture(family, 1, layers=2), recipe(steps=1), (0,), data=data, grow=True)
