"""The witness on models whose bottleneck is known: found with too few heads, and not with enough."""

import pytest
import torch

from headlab.interp.model import activations, run
from headlab.models.outer import product
from headlab.models.retrieval.architecture import architecture, start
from headlab.models.retrieval.constructed import construct
from headlab.models.retrieval.family import nearest_points, sum_of_maxima
from headlab.models.retrieval.task import RetrievalTask
from headlab.models.retrieval.witness import BOX, find_witness


@pytest.mark.parametrize(
    "task",
    [RetrievalTask(sum_of_maxima(4, 8)), RetrievalTask(nearest_points(3, 6, product(3)))],
    ids=["sum of maxima", "product of distances"],
)
def test_it_is_found_with_one_head_too_few_and_not_with_enough(task: RetrievalTask) -> None:
    count = task.family.coordinates
    fewer = find_witness(construct(task, heads=count - 1, dtype="float64").model, task, starts=4, steps=120)
    assert fewer.forced >= 0.4
    assert fewer.distance <= 0.2
    assert max(fewer.errors) >= fewer.forced
    enough = find_witness(construct(task, heads=count, dtype="float64").model, task, starts=4, steps=120)
    assert abs(enough.forced) <= 0.05
    assert max(enough.attempts) <= 0.05


def test_a_single_head_that_remembers_has_no_witness() -> None:
    task = RetrievalTask(sum_of_maxima(2, 4))
    assert abs(find_witness(construct(task, "memorise").model, task, starts=2, steps=60).forced) <= 1e-4


def test_what_it_says_is_true_of_the_model() -> None:
    task = RetrievalTask(sum_of_maxima(3, 8))
    model = construct(task, heads=2, dtype="float64").model
    found = find_witness(model, task, starts=2, steps=100)
    assert found.sequences.abs().max() <= BOX
    answers = run(model, found.sequences).detach()[:, -1, 0]
    assert answers.tolist() == pytest.approx(found.outputs, abs=1e-9)
    assert task.family.target(found.sequences).tolist() == pytest.approx(found.targets, abs=1e-9)
    forced = (abs(found.targets[0] - found.targets[1]) - abs(found.outputs[0] - found.outputs[1])) / 2 / found.sigma
    assert found.forced == pytest.approx(forced, abs=1e-9)
    sample = task.draw(512, 5).double()
    _, kept = activations(model, torch.cat([found.sequences, sample]), ["blocks.0.attn.hook_z"])
    z = kept["blocks.0.attn.hook_z"][:, -1].flatten(1)
    apart = (z[0] - z[1]).norm() / (z[2:] - z[2:].roll(1, 0)).norm(dim=1).mean()
    assert float(apart) < 0.1  # the heads themselves tell the two hardly apart


def test_it_leaves_the_model_as_it_was_and_repeats() -> None:
    task = RetrievalTask(sum_of_maxima(2, 5))
    model = start(architecture(task.family, 2, layers=2), seed=0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    first, again = (find_witness(model, task, seed=3, starts=2, steps=5) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.sequences, again.sequences)
    assert first.sequences.dtype == torch.float32
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(parameter.grad is None and not parameter._backward_hooks for parameter in model.parameters())
    with pytest.raises(ValueError, match="at least 1 of each"):
        find_witness(model, task, starts=0)
