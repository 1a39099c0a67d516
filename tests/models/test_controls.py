"""The control that is right without dividing: equal logits, specialisation 0."""

import pytest
import torch

from headlab.interp.roles import score
from headlab.models.controls import repeated
from headlab.models.esp.constructed import construct
from headlab.models.esp.evaluation import evaluate
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask


@pytest.mark.parametrize("copies", [2, 3])
def test_copies_of_one_head_answer_the_same_and_divide_nothing(copies):
    task = EspTask(read_graph("tournament:6"))
    made = construct(task, "one-head-dag", dtype="float64")
    double = repeated(made.model, made.architecture, copies)
    inputs = task.examples().inputs
    torch.testing.assert_close(double(inputs), made.model(inputs))
    assert evaluate(double, task).errors == 0
    assert score(double, task.roles()).specialisation == 0.0


def test_copies_of_two_heads_still_divide():
    task = EspTask(read_graph("complete:4"))
    made = construct(task, "two-head", tied=True)
    four = repeated(made.model, made.architecture)
    assert score(four, task.roles()).specialisation > 0.99


def test_one_copy_is_refused():
    task = EspTask(read_graph("tournament:4"))
    made = construct(task, "one-head-dag")
    with pytest.raises(ValueError, match="at least 2"):
        repeated(made.model, made.architecture, 1)
