"""The task: labels, examples, contrasts, roles, the limit's circuit, and the requests that it refuses."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headlab.interp.circuits import Node
from headlab.models.xor.task import XorTask


def test_labels_are_the_negated_parity_of_the_targets() -> None:
    task = XorTask(4, (1, 3))
    examples = task.examples()
    assert len(examples) == 16
    assert examples.inputs.tolist() == [list(bits) for bits in product((-1.0, 1.0), repeat=4)]
    assert all(y == -x[1] * x[3] for x, (y,) in zip(examples.inputs.tolist(), examples.targets.tolist(), strict=True))
    assert set(examples.read.flatten().tolist()) == {4}
    assert task.token_labels(examples.inputs[1]) == ("x0 −1", "x1 −1", "x2 −1", "x3 +1", "CLS")
    assert examples.factors["target-1"].tolist() == [int(x[3] > 0) for x in examples.inputs.tolist()]


def test_examples_are_seeded_and_move_no_global_generator() -> None:
    task = XorTask(40)
    before = torch.get_rng_state()
    first, again, other = (task.examples(seed=seed, count=50).inputs for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert set(first.unique().tolist()) == {-1.0, 1.0}
    assert len(task.examples()) == 4096
    assert abs(float(task.examples(count=4000).targets.mean())) < 0.1  # the label is balanced


def test_a_contrast_differs_in_one_bit_and_only_a_target_bit_moves_the_label() -> None:
    task = XorTask(9, (4, 0, 7))
    contrasts = task.contrasts(seed=3, count=20)
    assert list(contrasts) == ["target-0", "target-1", "target-2", "background"]
    for name, contrast in contrasts.items():
        differs = (contrast.source != contrast.destination).sum(dim=0)
        position = {"target-0": 4, "target-1": 0, "target-2": 7, "background": 1}[name]
        assert differs.tolist() == [20 if bit == position else 0 for bit in range(9)]
        same = torch.equal(task.labels(contrast.source), task.labels(contrast.destination))
        assert same == (name == "background")
        perfect = task.labels(contrast.source)[:, None, None]
        assert (contrast.metrics["agreement"](perfect) == 1).all()
        flipped = task.labels(contrast.destination)[:, None, None]
        assert (contrast.metrics["agreement"](flipped) == (1 if name == "background" else -1)).all()
    assert "background" not in XorTask(2).contrasts()


def test_metrics_read_the_cls() -> None:
    task = XorTask(3)
    examples = task.examples()
    logits = torch.zeros(8, 4, 1)
    logits[:, 3, 0] = examples.targets[:, 0]
    metrics = task.metrics(examples)
    assert next(iter(metrics)) == "negative_squared_error"
    assert (metrics["negative_squared_error"](logits) == 0).all()
    assert (metrics["agreement"](logits) == 1).all()
    assert (metrics["negative_squared_error"](-logits) == -4).all()


def test_roles_read_one_target_each_from_the_cls() -> None:
    task = XorTask(6, (2, 5))
    roles = task.roles(count=7)
    assert [role.name for role in roles] == ["target-0", "target-1"]
    for role, target in zip(roles, (2, 5), strict=True):
        assert role.queries.nonzero().tolist() == [[row, 6] for row in range(7)]
        assert role.targets.nonzero().tolist() == [[row, 6, target] for row in range(7)]
    assert list(task.role_metrics(roles)) == ["target-0", "target-1"]


def test_the_circuit_of_the_limit() -> None:
    task = XorTask(6, (2, 5))
    circuit = task.circuit("limit", "resample")
    assert {str(edge) for edge in circuit.edges} == {
        "start -> 0.0.v@2",
        "start -> 0.1.v@5",
        "0.0 -> end@6",
        "0.1 -> end@6",
    }
    zero = task.circuit("limit", "zero")
    assert {str(edge) for edge in zero.edges - circuit.edges} == {"start -> 0.0.k@2", "start -> 0.1.k@5"}
    assert circuit.roles == {(0, 0): "target-0", (0, 1): "target-1"}
    assert Node("head", 0, 1) in circuit.nodes
    with pytest.raises(KeyError, match="known: limit under resample"):
        task.circuit("limit", "median")
    with pytest.raises(KeyError, match="known: limit"):
        task.circuit("two-head", "zero")


@given(bits=st.integers(2, 40), picks=st.lists(st.integers(0, 10**6), min_size=1, max_size=4), data=st.integers(0, 99))
def test_options_make_an_equal_task(bits: int, picks: list[int], data: int) -> None:
    targets = tuple(dict.fromkeys(pick % bits for pick in picks))
    task = XorTask(bits, targets)
    assert XorTask.from_options(task.options()) == task
    assert len(task.positions) == bits + 1
    flipped = task.examples(seed=data, count=3).inputs
    flipped[:, targets[0]] *= -1
    assert torch.equal(task.labels(flipped), -task.labels(task.examples(seed=data, count=3).inputs))


@pytest.mark.parametrize(
    ("bits", "targets", "says"),
    [
        (1, (0,), "at least 2 bits"),
        (0, (), "at least 2 bits"),
        (5, (), "no targets"),
        (5, (1, 1), "target 1 is named twice"),
        (5, (0, 5), "target 5 is not a position: positions count from 0 to 4"),
        (5, (-1, 2), "target -1 is not a position"),
        (3, (0, 1, 2, 0), "4 targets among 3 bits"),
    ],
)
def test_bad_tasks_are_refused_in_a_sentence(bits: int, targets: tuple[int, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        XorTask(bits, targets)


def test_no_examples_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one example"):
        XorTask(5).examples(count=0)
