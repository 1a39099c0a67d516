"""Finite samples: the empirical gradient against autograd and against its limit, and the streams that it comes from."""

from itertools import product

import numpy as np
import pytest
import torch

from headlab.models.xor.descent import DescentRule, descend, population_objective, step
from headlab.models.xor.ensemble import draw, step_size
from headlab.models.xor.samples import draw_samples, gradients_by_sample_count, sample_objective, signs
from headlab.models.xor.task import XorTask


def test_signs_are_fair_and_seeded() -> None:
    drawn = signs(5000, 13, np.random.default_rng(0))
    assert drawn.shape == (5000, 13)
    assert set(drawn.unique().tolist()) == {-1.0, 1.0}
    assert float(drawn.mean().abs()) < 0.02
    correlation = (drawn.T @ drawn / 5000 - torch.eye(13)).abs().max()
    assert float(correlation) < 0.08
    assert torch.equal(drawn, signs(5000, 13, np.random.default_rng(0)))


@pytest.mark.parametrize("targets", [(0, 3), (5, 1, 2), (0, 1, 2, 3)])
def test_the_whole_cube_as_a_sample_is_the_population(targets: tuple[int, ...]) -> None:
    models = draw(XorTask(9, targets), width=5, seeds=range(2), start="independent")
    cube = torch.tensor(list(product((-1.0, 1.0), repeat=9)), dtype=torch.float64)
    value, gradient = sample_objective(cube.expand(2, -1, -1))(models)
    exact, exact_gradient = population_objective(models)
    assert (value - exact).abs().max() < 1e-13
    assert (gradient - exact_gradient).abs().max() < 1e-14


@pytest.mark.parametrize("targets", [(0, 3), (5, 1, 2)])
def test_one_pass_gives_the_gradient_at_every_sample_count(targets: tuple[int, ...]) -> None:
    models = draw(XorTask(12, targets), width=6, seeds=(4, 7), start="independent")
    stream = [signs(300, 12, np.random.default_rng((1, own))) for own in (4, 7)]
    # pieces end where counts end, so that a stream of 300 is drawn in these three pieces
    pieces = []
    for own in (4, 7):
        generator = np.random.default_rng((1, own))
        pieces.append(torch.cat([signs(count, 12, generator) for count in (20, 80, 200)]))
    assert stream[0].shape == pieces[0].shape
    for count, gradient in gradients_by_sample_count(models, [20, 100, 300], seed=1):
        inputs = torch.stack([piece[:count] for piece in pieces])
        _, expected = sample_objective(inputs)(models)
        assert (gradient - expected).abs().max() < 1e-14


def test_the_sample_gradient_tends_to_the_population_gradient() -> None:
    models = draw(XorTask(16), width=8, seeds=range(3))
    _, exact = population_objective(models)
    errors = [float((g - exact).norm() / exact.norm()) for _, g in gradients_by_sample_count(models, [1000, 100_000])]
    assert errors[1] < 0.3 * errors[0]


def test_many_samples_succeed_where_few_fail() -> None:
    task = XorTask(32)
    models = draw(task, width=21, seeds=range(30))
    rule = DescentRule("plain", step_size(task, 21))
    shares = [
        float(models.with_queries(step(models, rule, gradient)).placement().one_to_one.float().mean())
        for _, gradient in gradients_by_sample_count(models, [64, 64 * 1024])
    ]
    assert shares[0] < 0.2 < 0.7 < shares[1]
    data = draw_samples(models, 16 * 32)
    assert data.shape == (30, 512, 32)
    small_steps = descend(models, DescentRule("normalised", 0.5), 150, objective=sample_objective(data)).final
    assert float(small_steps.placement().one_to_one.float().mean()) > 0.9
    assert float(small_steps.loss().median()) < 1e-3  # the population loss: nothing of the sample was merely learned


def test_data_depend_on_the_seed_and_the_models_seed_only() -> None:
    both = draw(XorTask(10), width=4, seeds=(2, 5))
    assert torch.equal(draw_samples(both, 7)[1], draw_samples(both.select([1]), 7)[0])
    assert not torch.equal(draw_samples(both, 7, seed=1), draw_samples(both, 7, seed=2))


def test_bad_requests_are_named() -> None:
    models = draw(XorTask(6), width=4, seeds=(0,))
    with pytest.raises(ValueError, match="at least one"):
        draw_samples(models, 0)
    for counts in ([], [0, 3], [5, 5], [7, 3]):
        with pytest.raises(ValueError, match="must ascend"):
            list(gradients_by_sample_count(models, counts))
