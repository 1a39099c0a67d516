"""Evaluation: errors as integers, in float64 on request, in batches, without a trace on the model."""

import math

import pytest
import torch

from headlab.models.esp import evaluation
from headlab.models.esp.constructed import construct
from headlab.models.esp.evaluation import evaluate, in_dtype, read_logits
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask
from headlab.models.hooked import build

TASK = EspTask(read_graph("complete:5"))


def test_the_zero_model_has_every_sample_wrong():
    model = build(construct(TASK, "two-head").architecture)
    found = evaluate(model, TASK)
    assert (found.samples, found.errors, found.accuracy, found.min_margin) == (40, 40, 0.0, 0.0)
    assert math.isclose(found.loss, math.log(8), rel_tol=1e-6)


def test_a_construction_by_numbers():
    found = evaluate(construct(TASK, "one-head").model, TASK)
    assert (found.errors, found.accuracy) == (10, 0.75)
    assert found.min_margin < 0
    assert found.to_json()["samples"] == 40


def test_float64_on_request_leaves_the_model_as_it_was():
    model = construct(TASK, "two-head", tied=True).model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    exact = evaluate(model, TASK, dtype=torch.float64)
    assert exact.min_margin == pytest.approx(evaluate(model, TASK).min_margin, abs=1e-6)
    assert read_logits(model, TASK, dtype=torch.float64).dtype == torch.float64
    assert model.cfg.dtype == torch.float32
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert in_dtype(model, torch.float32) is model
    copied = in_dtype(model, torch.float64)
    assert copied.unembed.W_U.data_ptr() == copied.embed.W_E.data_ptr()


def test_batches_change_nothing(monkeypatch):
    model = construct(TASK, "two-head").model
    whole = read_logits(model, TASK)
    monkeypatch.setattr(evaluation, "BATCH_ENTRIES", 7 * 4 * 8)
    assert torch.equal(read_logits(model, TASK), whole)


def test_what_does_not_fit_is_refused():
    model = construct(TASK, "two-head").model
    with pytest.raises(ValueError, match="has 8 tokens in and 8 out, but the graph 'cycle:4' with 4 vertices makes 7"):
        evaluate(model, EspTask(read_graph("cycle:4")))
    with pytest.raises(ValueError, match="the model sees 4 positions, but a sample has 7"):
        evaluate(model, EspTask(TASK.graph, induction=True))
    with torch.no_grad():
        model.embed.W_E[0, 0] = torch.nan
    with pytest.raises(ValueError, match="hold NaN or infinity"):
        evaluate(model, TASK)
