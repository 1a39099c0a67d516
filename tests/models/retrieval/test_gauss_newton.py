"""Folded weights are the same model, a step is the least-squares solution, and second order goes where Adam stops."""

import pytest
import torch

from headlab.interp.model import run
from headlab.models.checkpoints import load
from headlab.models.retrieval import gauss_newton
from headlab.models.retrieval.architecture import architecture, start
from headlab.models.retrieval.evaluation import evaluate
from headlab.models.retrieval.family import nearest_points, sum_of_maxima
from headlab.models.retrieval.gauss_newton import Stage, fold, train_second_order, unfold, usual_stages
from headlab.models.retrieval.learner import draw_data
from headlab.models.retrieval.recipes import recipe
from headlab.models.retrieval.runs import train_and_save
from headlab.models.retrieval.task import RetrievalTask

FAMILY = sum_of_maxima(2, 4)


def some_model(layers: int, encoder: str):  # type: ignore[no-untyped-def]
    design = architecture(sum_of_maxima(3, 6), 2, encoder=encoder, layers=layers)
    model = start(design, seed=3, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.requires_grad and name.rsplit(".", 1)[-1].startswith("b_"):
                value.copy_(torch.randn(value.shape, generator=generator, dtype=value.dtype))
    tokens = torch.randn(20, 6, 4, generator=generator, dtype=torch.float64)
    return design, model, tokens


@pytest.mark.parametrize(("layers", "encoder"), [(1, "mlp"), (1, "linear"), (2, "mlp"), (3, "linear")])
def test_folded_weights_go_back_into_the_model(layers: int, encoder: str) -> None:
    design, model, tokens = some_model(layers, encoder)
    weights, answer = fold(model)
    expected = run(model, tokens)[:, -1, 0].detach()
    assert torch.allclose(torch.stack([answer(weights, row) for row in tokens]), expected, atol=1e-12)
    again = unfold(weights, design)
    assert torch.allclose(run(again, tokens)[:, -1, 0], expected, atol=1e-12)
    assert sum(value.numel() for value in weights.values()) <= sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("layers", [1, 2])
def test_the_jacobian_is_that_of_differences(layers: int) -> None:
    _, model, tokens = some_model(layers, "mlp")
    weights, answer = fold(model)
    rows = gauss_newton.jacobian(answer, weights, tokens)
    direction = torch.randn(rows.shape[1], generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    ahead, behind = (gauss_newton._moved(weights, -sign * 1e-6 * direction) for sign in (1, -1))
    slope = torch.stack([answer(ahead, row) - answer(behind, row) for row in tokens]) / 2e-6
    assert torch.allclose(rows @ direction, slope, rtol=1e-5, atol=1e-6)


def test_a_step_on_a_linear_answer_is_least_squares() -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(300, 1, 5, generator=generator, dtype=torch.float64)
    targets = torch.randn(300, generator=generator, dtype=torch.float64)
    weights = {"w": torch.zeros(5, dtype=torch.float64)}

    def answer(own, row):  # type: ignore[no-untyped-def]
        return row[0] @ own["w"]

    taken = gauss_newton._step(answer, weights, tokens, targets, float(targets.square().mean()), 1e-14)
    assert taken is not None
    assert torch.allclose(taken[0]["w"], torch.linalg.lstsq(tokens[:, 0], targets[:, None]).solution[:, 0], atol=1e-10)
    assert taken[1] == pytest.approx(float((tokens[:, 0] @ taken[0]["w"] - targets).square().mean()))
    at_optimum = gauss_newton._step(answer, taken[0], tokens, targets, 0.0, 1e-3)
    assert at_optimum is None  # no step lowers an error that is 0


def test_second_order_goes_on_where_adam_stops() -> None:
    data = draw_data(FAMILY, train=800, validation=300)
    plan = recipe("quick", steps=150, lr=2e-2, batch=64)
    design = architecture(FAMILY, 2, width=4, readout=8)
    found = train_second_order(FAMILY, design, plan, (0, 1), data=data, stages=[Stage(4, 800, 14)])
    assert min(found.nmse) < 1e-3
    assert all(after < 0.5 * before for after, before in zip(found.nmse, found.adam_nmse, strict=True))
    path = [step.train for step in found.iterations[0]]
    assert path == sorted(path, reverse=True)
    assert found.nmse[0] == pytest.approx(min(step.validation for step in found.iterations[0]))
    measured = evaluate(found.models[found.best], RetrievalTask(FAMILY), count=1000)
    assert measured.nmse == pytest.approx(min(found.nmse), rel=0.9)  # the model itself, in the target's own units


def test_stages_grow_and_bad_requests_are_one_sentence() -> None:
    assert usual_stages(128, 8000) == (Stage(8, 8000, 12), Stage(128, 2500, 14), Stage(128, 8000, 24))
    assert usual_stages(8, 8000) == (Stage(8, 8000, 12), Stage(8, 8000, 24))
    plan, design = recipe("quick", steps=2), architecture(FAMILY, 2)
    data = draw_data(FAMILY, train=20, validation=20)
    with pytest.raises(ValueError, match="whole sequences only"):
        train_second_order(nearest_points(2, 4, sets=((0, 1), (2, 3))), design, plan, (0,), data=data)
    with pytest.raises(ValueError, match="there are 20 of 4"):
        train_second_order(FAMILY, design, plan, (0,), data=data, stages=[Stage(4, 21, 1)])
    with pytest.raises(ValueError, match="must see all 4 tokens"):
        train_second_order(FAMILY, design, plan, (0,), data=data, stages=[Stage(2, 20, 1)])


def test_runs_are_kept_and_other_optimisers_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    task, design, plan = RetrievalTask(FAMILY), architecture(FAMILY, 2, width=2, readout=4), recipe("quick", steps=10)
    runs = train_and_save(task, design, plan, (3,), tmp_path / "runs", examples=40, optimiser="gauss-newton")
    (row,) = runs["runs"]
    kept = load(tmp_path / "runs" / row["dir"])
    assert kept.recipe["optimiser"] == "gauss-newton"
    assert row["nmse"] < row["adam_nmse"]
    data = draw_data(FAMILY, train=40)
    errors = run(kept.model, data.validation)[:, -1, 0].detach() - data.validation_targets
    nmse = float(errors.double().square().mean() / data.validation_targets.double().var(correction=0))
    assert nmse == pytest.approx(row["nmse"], rel=1e-4)
    with pytest.raises(KeyError, match="there are adam, gauss-newton"):
        train_and_save(task, design, plan, (3,), tmp_path / "other", optimiser="newton")
    with pytest.raises(ValueError, match="leave out grow"):
        train_and_save(task, design, plan, (3,), tmp_path / "other", optimiser="gauss-newton", grow=True)
