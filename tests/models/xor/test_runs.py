"""Training to checkpoints: methods with their choices made, what a folder of runs holds, the feed-forward baseline."""

from pathlib import Path

import pytest
import torch

from headlab.models.checkpoints import history_steps, load, load_history, load_runs
from headlab.models.xor import feedforward, runs
from headlab.models.xor.architecture import from_model, is_feedforward, to_model
from headlab.models.xor.evaluation import evaluate
from headlab.models.xor.runs import Method
from headlab.models.xor.task import XorTask


def test_a_method_makes_its_choices_from_the_task() -> None:
    two, three = Method().plan(XorTask(64)), Method("normalised").plan(XorTask(64, (0, 1, 2)))
    assert (two.start, two.steps, two.width) == ("antisymmetric", 1, 25)
    assert (three.start, three.steps, three.size) == ("independent", 150, 0.5)
    assert Method("plain", size=2.0).plan(XorTask(64)).rule(XorTask(64)).size == 2.0 * 64**2 / 2
    with pytest.raises(KeyError, match="choose one of one-step"):
        Method("adam")
    with pytest.raises(ValueError, match="at least 1"):
        Method("plain", steps=0)
    with pytest.raises(ValueError, match="one-step takes 1 step"):
        Method(steps=5)


@pytest.mark.parametrize("name", ["one-step", "plain", "normalised", "in-turn"])
def test_every_method_learns_sparse_xor(name: str) -> None:
    task = XorTask(48, (5, 40))
    descent = runs.run(task, Method(name), range(8))
    assert float(descent.final.placement().one_to_one.float().mean()) >= 0.75
    assert float(descent.final.loss().median()) < 1e-3
    assert descent.steps[0] == 0


def test_fixed_samples_are_a_method_too() -> None:
    task = XorTask(24)
    descent = runs.run(task, Method("normalised", samples=16 * 24), range(4))
    assert float(descent.final.loss().median()) < 0.01


def test_a_folder_of_runs_holds_models_histories_and_the_best(tmp_path: Path) -> None:
    task = XorTask(20, (3, 17))
    before = torch.get_rng_state()
    found = runs.train(task, Method("plain", steps=20), range(5, 8), tmp_path / "runs", dtype="float64")
    assert torch.equal(torch.get_rng_state(), before)
    assert [run["seed"] for run in found["runs"]] == [5, 6, 7]
    assert load_runs(tmp_path / "runs") == found
    checkpoint = load(tmp_path / "runs")
    assert checkpoint.task == "xor"
    assert XorTask.from_options(checkpoint.task_options) == task
    best = next(run for run in found["runs"] if run["dir"] == found["best"])
    assert best["population_loss"] == min(run["population_loss"] for run in found["runs"] if run["one_to_one"])
    assert history_steps(tmp_path / "runs") == (0, 1, 2, 4, 8, 16, 20)
    losses = {row["step"]: row["loss"] for row in checkpoint.history}
    for step, model in load_history(tmp_path / "runs"):
        assert abs(float(from_model(model, task).loss()) - losses[step]) < 1e-9
    assert checkpoint.metrics["one_to_one"] is True
    assert abs(checkpoint.metrics["population_loss"] - losses[20]) < 1e-12

    again = runs.train(task, Method("plain", steps=20), range(5, 8), tmp_path / "runs", dtype="float64", resume=True)
    assert again == found
    with pytest.raises(ValueError, match="another request"):
        runs.train(task, Method("plain", steps=21), range(5, 8), tmp_path / "runs", dtype="float64", resume=True)


def test_the_same_request_gives_the_same_runs(tmp_path: Path) -> None:
    task = XorTask(16)
    first = runs.train(task, Method(), range(2), tmp_path / "a")
    second = runs.train(task, Method(), range(2), tmp_path / "b")
    assert first == second
    one, two = load(tmp_path / "a"), load(tmp_path / "b")
    for name, value in one.model.state_dict().items():
        assert torch.equal(value, two.model.state_dict()[name])


def test_a_task_beyond_transformers_is_refused_before_work(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too long for a transformer"):
        runs.train(XorTask(50_000), Method(), range(1), tmp_path / "long")
    assert not (tmp_path / "long").exists()


def test_evaluation_on_samples_agrees_with_the_population() -> None:
    task = XorTask(10, (2, 9))
    descent = runs.run(task, Method("plain", steps=2), (0,))
    model = to_model(descent.final)
    found = evaluate(model, task)
    assert found.samples == 1024
    assert found.population_loss is not None
    assert abs(found.loss - found.population_loss) < 1e-12  # all inputs are the population
    drawn = evaluate(model, task, seed=1, count=8192)
    assert drawn.samples == 8192
    assert abs(drawn.loss - found.loss) < 0.1 * found.loss
    assert found.attention_at_targets is not None
    assert len(found.attention_at_targets) == 2


def test_four_neurons_learn_sparse_xor_with_four_weights_a_bit(tmp_path: Path) -> None:
    task = XorTask(24, (4, 20))
    found = runs.train_feedforward(task, 4, range(3), tmp_path / "ffn")
    assert all(run["loss"] < 0.1 for run in found["runs"])
    checkpoint = load(tmp_path / "ffn")
    assert is_feedforward(checkpoint.architecture)
    touched = sum(int((leaf != 0).sum()) for leaf in checkpoint.model.parameters())
    assert touched == feedforward.parameters(task, 4) == 4 * 24 + 9 == checkpoint.metrics["parameters"]
    measured = evaluate(checkpoint.model, task)
    assert measured.one_to_one is None
    assert measured.attention_at_targets is None
    assert measured.loss < 0.1
    assert runs.train_feedforward(task, 4, range(3), tmp_path / "ffn", resume=True) == found


def test_the_exported_network_is_the_trained_one() -> None:
    task = XorTask(9)
    learner = feedforward.FeedForwardLearner(task, 3, (1, 2), batch=8)
    inputs = task.examples().inputs
    with torch.no_grad():
        expected = learner.outputs(inputs[None])
        for index in range(2):
            answers = learner.export(index)(inputs)[:, 0, 0]
            assert (answers - expected[index]).abs().max() < 1e-5
    state = learner.state()
    first = learner.losses(0)
    learner.load_state(state)
    assert torch.equal(first, learner.losses(0))
