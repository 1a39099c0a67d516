"""Constructions by name, and what comes with each."""

import pytest
import torch

from headlab.models.esp.circuits import KINDS, VARIANTS
from headlab.models.esp.constructed import construct
from headlab.models.esp.evaluation import evaluate
from headlab.models.esp.feedback import minimum_feedback_arc_set
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask
from headlab.models.hooked import Architecture, build

TASK = EspTask(read_graph("tournament:5"))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_rebuilds_from_its_architecture_and_options(variant, tied):
    state = torch.get_rng_state()
    made = construct(TASK, variant, tied=tied, dtype="float64")
    assert torch.equal(torch.get_rng_state(), state)
    assert made.variant == variant
    assert made.options["tied"] is tied
    assert tuple(made.circuits) == KINDS
    assert evaluate(made.model, TASK).errors == made.errors == 0
    again = construct(TASK, variant, **made.options, dtype="float64")
    empty = build(Architecture.from_json(made.architecture.to_json()), dtype="float64")
    for name, value in made.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], value)
        assert empty.state_dict()[name].shape == value.shape
    assert not made.model.unembed.b_U.requires_grad
    assert (made.model.unembed.b_U == 0).all()
    assert made.model.cfg.normalization_type is None


def test_options_that_do_not_fit_the_variant():
    with pytest.raises(
        KeyError, match="no construction 'three-head': there are one-head-dag, one-head, two-head, two-"
    ):
        construct(TASK, "three-head")
    with pytest.raises(ValueError, match="'one-head' has no attention sink"):
        construct(TASK, "one-head", sink=8)
    with pytest.raises(ValueError, match="'two-head' holds no order"):
        construct(TASK, "two-head", feedback=minimum_feedback_arc_set(TASK.graph))
    with pytest.raises(KeyError, match="unknown dtype 'int8'"):
        construct(TASK, "two-head", dtype="int8")
    assert construct(TASK, "two-head", sink=3).notes["sink"] == 3.0
