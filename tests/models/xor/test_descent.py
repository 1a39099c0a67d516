"""Starts, placements and steps: what one step does, what many do, and the step that is too large."""

import pytest
import torch

from headlab.models.xor.descent import DescentRule, descend, population_objective, step
from headlab.models.xor.ensemble import Ensemble, Placement, default_width, draw, step_size
from headlab.models.xor.task import XorTask


def one_step(models: Ensemble, size: float | None = None) -> Ensemble:
    size = step_size(models.task, models.width) if size is None else size
    return descend(models, DescentRule("plain", size), 1).final


def test_starts_are_what_they_say_and_move_no_global_generator() -> None:
    task = XorTask(30, (0, 1, 2, 3))
    before = torch.get_rng_state()
    starts = {name: draw(task, width=8, seeds=range(5), start=name) for name in ("antisymmetric", "independent")}
    starts |= {name: draw(task, width=8, seeds=range(5), start=name) for name in ("orthogonal", "equal")}
    assert torch.equal(torch.get_rng_state(), before)
    for models in starts.values():
        assert (models.positions.norm(dim=-1) - 1).abs().max() < 1e-14
        assert (models.queries.norm(dim=-1) - 1).abs().max() < 1e-14
    anti = starts["antisymmetric"].queries
    assert torch.equal(anti[:, 0], -anti[:, 1])
    assert torch.equal(anti[:, 2], -anti[:, 3])
    frame = starts["orthogonal"].queries
    assert (frame @ frame.mT - torch.eye(4)).abs().max() < 1e-14
    assert (starts["equal"].queries == starts["equal"].queries[:, :1]).all()
    assert not torch.equal(starts["independent"].queries[0], starts["independent"].queries[1])


def test_a_seed_does_not_depend_on_its_neighbours() -> None:
    task = XorTask(20)
    together, alone = draw(task, width=6, seeds=(3, 9)), draw(task, width=6, seeds=(9,))
    assert torch.equal(together.positions[1], alone.positions[0])
    assert torch.equal(together.select([1]).queries, alone.queries)
    assert together.select([1]).seeds == (9,)


def test_placement_by_hand() -> None:
    weights = torch.tensor(
        [
            [[0.7, 0.1, 0.2], [0.1, 0.1, 0.8]],  # one to one
            [[0.1, 0.1, 0.8], [0.6, 0.1, 0.3]],  # one to one, the other way round
            [[0.7, 0.1, 0.2], [0.5, 0.3, 0.2]],  # together
            [[0.7, 0.1, 0.2], [0.1, 0.8, 0.1]],  # one head beside the support
            [[-2.0, 1.0, 1.0], [0.0, 0.0, 3.0]],  # unnormalised and negative: by size
        ]
    )
    found = Placement.of(weights, (0, 2))
    assert found.one_to_one.tolist() == [True, True, False, False, True]
    assert found.on_support.tolist() == [True, True, True, False, True]
    assert found.together.tolist() == [False, False, True, False, False]
    assert found.at_targets[:4, 0].tolist() == pytest.approx([0.7, 0.8, 0.7, 0.7])
    assert found.at_targets[4].tolist() == pytest.approx([0.5, 1.0])
    assert torch.isnan(found.at_targets[3, 1])


@pytest.mark.parametrize(("bits", "least"), [(32, 0.78), (64, 0.78), (256, 0.85), (1024, 0.92)])
def test_one_step_puts_each_head_on_a_target_of_its_own(bits: int, least: float) -> None:
    task = XorTask(bits, (bits // 2, 3))
    models = draw(task, width=default_width(bits), seeds=range(100))
    start = models.placement()
    after = one_step(models)
    found = after.placement()
    assert float(start.one_to_one.float().mean()) < 0.05
    assert float(found.one_to_one.float().mean()) >= least
    assert float(after.loss()[found.one_to_one].max()) < 1e-3
    assert float(found.at_targets[found.one_to_one].min()) > 0.99


def test_targets_far_beyond_any_transformer() -> None:
    task = XorTask(100_000, (5, 99_999))
    after = one_step(draw(task, width=48, seeds=(0,)))
    assert bool(after.placement().one_to_one)
    assert float(after.loss()) < 1e-6


def test_equal_queries_stay_equal_and_unequal_ones_part() -> None:
    task = XorTask(256)
    shares = {}
    for start in ("antisymmetric", "independent", "orthogonal", "equal"):
        found = one_step(draw(task, width=default_width(256), seeds=range(60), start=start)).placement()
        shares[start] = float(found.one_to_one.float().mean())
        assert bool(found.on_support.float().mean() > 0.9)
    assert shares["equal"] == 0.0  # nothing tells the heads apart: both go to one target
    assert min(shares["antisymmetric"], shares["independent"], shares["orthogonal"]) > 0.85


@pytest.mark.parametrize("kind", ["linear", "erf", "normalised-linear", "normalised-erf"])
def test_other_attention_maps_do_not_concentrate_in_one_step(kind: str) -> None:
    models = draw(XorTask(64), width=32, seeds=range(20), kind=kind)
    _, gradient = population_objective(models)
    for exponent in range(-4, 9):
        moved = models.with_queries(step(models, DescentRule("plain", 10.0**exponent), gradient))
        assert float(moved.attention().abs().div(moved.attention().abs().sum(-1, keepdim=True)).max()) < 0.3
        assert float(moved.loss().median()) > 0.9


@pytest.mark.parametrize("heads", [3, 4, 5])
def test_normalised_steps_learn_k_parity_one_to_one_where_one_step_does_not(heads: int) -> None:
    task = XorTask(64, tuple(range(10, 10 + heads)))
    models = draw(task, width=default_width(64), seeds=range(10), start="independent")
    once = one_step(models).placement()
    assert float(once.one_to_one.float().mean()) <= 0.5
    after = descend(models, DescentRule("normalised", 0.5), 150, record=lambda number: False)
    assert after.steps == (0, 150)
    assert bool(after.final.placement().one_to_one.all())
    assert float(after.final.loss().max()) < 1e-6


def test_in_turn_moves_one_head_a_step() -> None:
    models = draw(XorTask(64, (1, 2, 3)), width=25, seeds=range(4), start="independent")
    record = descend(models, DescentRule("in-turn", 2.0), 4)
    moved = (record.queries[1:] != record.queries[:-1]).any(-1).all(1)
    assert moved.tolist() == [[True, False, False], [False, True, False], [False, False, True], [True, False, False]]
    assert torch.allclose((record.queries[1] - record.queries[0])[:, 0].norm(dim=-1), torch.tensor(2.0).double())


def test_a_descent_records_its_way() -> None:
    models = draw(XorTask(40), width=20, seeds=range(3))
    rule = DescentRule("plain", step_size(models.task, 20, 2.0))
    full = descend(models, rule, 6)
    assert full.steps == tuple(range(7))
    assert torch.equal(full.queries[0], models.queries)
    assert torch.equal(full.at(6).queries, full.final.queries)
    assert torch.allclose(full.loss[3], full.at(3).loss(), rtol=0, atol=1e-13)
    few = descend(models, rule, 6, record=lambda number: number % 4 == 0)
    assert few.steps == (0, 4, 6)
    assert torch.equal(few.final.queries, full.final.queries)
    none = descend(models, rule, 0)
    assert none.steps == (0,)


def test_a_head_without_a_gradient_stays() -> None:
    models = draw(XorTask(10), width=6, seeds=(0,))
    still = step(models, DescentRule("normalised", 1.0), torch.zeros_like(models.queries))
    assert torch.equal(still, models.queries)


def test_overflow_is_named_and_nan_never_leaves() -> None:
    task = XorTask(16)
    models = draw(task, width=8, seeds=range(2))
    largest = one_step(models, 1e308)  # softmax bears any finite score
    assert bool(torch.isfinite(largest.loss()).all())
    _, gradient = population_objective(models)
    with pytest.raises(ValueError, match=r"step of size 1e\+308 overflows float64 at step 3"):
        step(models, DescentRule("plain", 1e308), gradient * 1e4, number=3)
    linear = draw(task, width=8, seeds=range(2), kind="linear")
    with pytest.raises(ValueError, match=r"loss overflows after \d steps of size 1000"):
        descend(linear, DescentRule("plain", 1e3), 50)
    single = draw(task, width=8, seeds=range(2), dtype=torch.float32)
    with pytest.raises(ValueError, match="overflows float32"):
        one_step(single, 1e39)
    for size in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="positive and finite"):
            one_step(models, size)
    broken = models.with_queries(models.queries * float("nan"))
    with pytest.raises(ValueError, match="overflows"):
        descend(broken, DescentRule("plain", 1.0), 1)


def test_bad_requests_are_named() -> None:
    task, models = XorTask(9, (0, 1, 2)), draw(XorTask(9), width=4, seeds=(0,))
    with pytest.raises(ValueError, match="at least 1 dimension"):
        draw(task, width=0, seeds=(0,), start="independent")
    with pytest.raises(ValueError, match="no seeds"):
        draw(task, width=3, seeds=(), start="independent")
    with pytest.raises(ValueError, match="cannot start as pairs"):
        draw(task, width=3, seeds=(0,))
    with pytest.raises(ValueError, match="do not fit in width 2"):
        draw(task, width=2, seeds=(0,), start="orthogonal")
    with pytest.raises(KeyError, match="choose one of antisymmetric"):
        draw(task, width=3, seeds=(0,), start="random")
    with pytest.raises(ValueError, match="cannot be negative"):
        descend(models, DescentRule(), -1)
