"""The task: examples, contrasts in which one minimum changes, roles, labels, circuits."""

import pytest
import torch

from headlab.models.retrieval.family import nearest_points, sum_of_maxima
from headlab.models.retrieval.task import RetrievalTask
from headlab.models.task import Task

FOUR = RetrievalTask(sum_of_maxima(4, 8))


def test_it_is_a_task() -> None:
    assert isinstance(FOUR, Task)
    assert RetrievalTask.from_options(FOUR.options()) == FOUR
    assert FOUR.positions == (*(f"x{t}" for t in range(8)), "CLS")
    assert FOUR.vocabulary == ()


def test_examples_are_seeded_and_move_no_global_generator() -> None:
    before = torch.get_rng_state()
    first, again, other = (FOUR.examples(seed=seed, count=50) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.inputs, again.inputs)
    assert not torch.equal(first.inputs, other.inputs)
    assert first.inputs.shape == (50, 8, 4)
    assert set(first.read.flatten().tolist()) == {8}
    assert torch.equal(first.targets[:, 0], FOUR.family.target(first.inputs))
    values = FOUR.family.values(first.inputs)
    assert torch.equal(first.factors["coordinate-2"], values[:, :, 2].argmin(dim=1))


def test_labels_say_which_minimum_stands_where() -> None:
    task = RetrievalTask(sum_of_maxima(vectors=[[1.0, 0.0], [0.0, 1.0]], length=3))
    row = torch.tensor([[0.0, 0.0], [2.0, 3.0], [1.0, 1.0]])
    assert task.token_labels(row) == ("x0", "x1 · 0, 1", "x2", "CLS")
    row[2, 0] = 5.0
    assert task.token_labels(row) == ("x0", "x1 · 1", "x2 · 0", "CLS")


@pytest.mark.parametrize(
    "task", [FOUR, RetrievalTask(nearest_points(2, 6, sets=((0, 1, 2), (2, 3, 4, 5))))], ids=["whole", "sets"]
)
def test_a_contrast_changes_one_token_and_one_minimum(task: RetrievalTask) -> None:
    contrasts = task.contrasts(seed=3, count=30)
    assert list(contrasts) == [*task.role_names, "background"]
    for index, (name, contrast) in enumerate(contrasts.items()):
        source, destination = contrast.source, contrast.destination
        assert len(source) == 30
        assert ((source != destination).any(dim=-1).sum(dim=1) == 1).all()
        changed = (task.family.minima(source) != task.family.minima(destination)).any(dim=0)
        assert changed.nonzero().flatten().tolist() == ([] if name == "background" else [index])
        high, low = task.family.target(source), task.family.target(destination)
        shift = contrast.metrics["shift"]
        assert torch.allclose(shift(high[:, None, None]), (high - low).abs())
        assert (shift(low[:, None, None]) == 0).all()
        squared = contrast.metrics["negative_squared_error"]
        assert (squared(high[:, None, None]) == 0).all()
        assert torch.allclose(squared(low[:, None, None]), -(high - low).square())
        if name != "background":
            assert 5 <= int((high > low).sum()) <= 25  # the answer moves both ways


def test_sequences_that_are_too_short_have_no_contrast() -> None:
    with pytest.raises(ValueError, match="sequences of 1 tokens are too short for 2 coordinates"):
        RetrievalTask(sum_of_maxima(2, 1)).contrasts(count=4)
    alone = RetrievalTask(sum_of_maxima(1, 1)).contrasts(count=4)
    assert list(alone) == ["coordinate-0"]


def test_metrics_read_the_cls() -> None:
    examples = FOUR.examples(count=5)
    logits = torch.zeros(5, 9, 1)
    logits[:, 8, 0] = examples.targets[:, 0] + 2
    metrics = FOUR.metrics(examples)
    assert list(metrics) == ["negative_squared_error", "negative_absolute_error"]
    assert torch.allclose(metrics["negative_squared_error"](logits), torch.full((5,), -4.0))
    assert torch.allclose(metrics["negative_absolute_error"](logits), torch.full((5,), -2.0))


def test_roles_read_the_minimum_from_the_cls() -> None:
    roles = FOUR.roles(seed=2, count=7)
    assert [role.name for role in roles] == list(FOUR.role_names)
    for index, role in enumerate(roles):
        places = FOUR.family.retrieved(role.inputs)[:, index].tolist()
        assert role.queries.nonzero().tolist() == [[row, 8] for row in range(7)]
        assert role.targets.nonzero().tolist() == [[row, 8, place] for row, place in enumerate(places)]
    metric = FOUR.role_metrics(roles)["coordinate-3"]
    logits = torch.zeros(7, 9, 1)
    logits[:, 8, 0] = FOUR.family.target(roles[3].inputs)
    assert (metric(logits) == 0).all()


def test_the_circuits_of_the_constructions() -> None:
    task = RetrievalTask(nearest_points(2, 3, sets=((0, 1), (2,))))
    circuit = task.circuit("head-per-coordinate", "resample")
    ends = {"0.0 -> end@3", "0.1 -> end@3"}
    first = {"start -> 0.0.k@0", "start -> 0.0.v@0", "start -> 0.0.k@1", "start -> 0.0.v@1"}
    assert {str(edge) for edge in circuit.edges} == ends | first | {"start -> 0.1.k@2", "start -> 0.1.v@2"}
    assert circuit.roles == {(0, 0): "coordinate-0", (0, 1): "coordinate-1"}
    alone = task.circuit("head-per-coordinate", "resample:coordinate-0")
    assert {str(edge) for edge in alone.edges} == first | {"0.0 -> end@3"}
    memory = task.circuit("memorise", "zero")
    assert {str(edge) for edge in memory.edges} == {*(f"start -> 0.0.v@{t}" for t in range(3)), "0.0 -> end@3"}
    with pytest.raises(KeyError, match="known: resample, positional_mean, zero"):
        task.circuit("memorise", "mean")
    with pytest.raises(KeyError, match="there are head-per-coordinate, memorise"):
        task.circuit("limit", "zero")
