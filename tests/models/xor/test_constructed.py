"""The limit solution against its bounds, and the circuit that it is said to have."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headlab.interp.interventions import Intervention
from headlab.interp.model import run
from headlab.interp.paths import patch_edges
from headlab.interp.recovery import recovery
from headlab.models.hooked import build
from headlab.models.xor.architecture import from_model
from headlab.models.xor.constructed import limit
from headlab.models.xor.task import XorTask


@settings(max_examples=20, deadline=None)
@given(bits=st.integers(4, 60), heads=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_attention_and_error_keep_their_bounds(bits: int, heads: int, seed: int) -> None:
    targets = tuple(torch.randperm(bits, generator=torch.Generator().manual_seed(seed))[:heads].tolist())
    task = XorTask(bits, targets)
    made = limit(task, seed=seed, width=12, dtype="float64")
    models = from_model(made.model, task)
    at_targets = models.attention()[0][torch.arange(heads), list(targets)]
    assert float(at_targets.min()) >= made.notes["attention"] - 1e-12
    assert made.notes["attention"] >= 1 - 1e-9 - 1e-12
    examples = task.examples(seed=1, count=64)
    error = (run(made.model, examples.inputs).detach()[:, task.cls, 0] - examples.targets[:, 0]).abs().max()
    assert float(error) <= made.notes["max_error"] + 1e-12
    assert bool(models.placement().one_to_one)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_example_is_wrong(dtype: str) -> None:
    task = XorTask(12, (3, 9))
    made = limit(task, dtype=dtype)
    examples = task.examples()
    output = run(made.model, examples.inputs).detach()[:, task.cls, 0]
    assert int((output * examples.targets[:, 0] <= 0).sum()) == made.errors == 0
    assert (output - examples.targets[:, 0]).abs().max() < 1e-5


def test_a_small_scale_is_a_poor_solution_and_the_bound_says_so() -> None:
    sharp, blunt = (limit(XorTask(64), scale=scale, dtype="float64") for scale in (60.0, 4.0))
    assert sharp.notes["attention"] > 0.999
    assert blunt.notes["attention"] < 0.5
    for made in (sharp, blunt):
        models = from_model(made.model, XorTask(64))
        assert float(models.placement().at_targets.min()) >= made.notes["attention"] - 1e-12


def test_each_heads_value_at_its_target_carries_the_answer_and_nothing_else_does() -> None:
    task = XorTask(7, (2, 5))
    made = limit(task, dtype="float64")
    examples = task.examples()
    for position in range(7):
        for head in range(2):

            def flip(value: torch.Tensor, hook: object, head: int = head, position: int = position) -> torch.Tensor:
                value = value.clone()
                value[:, position, head] *= -1
                return value

            output = run(made.model, examples.inputs, {"blocks.0.attn.hook_v": flip}).detach()[:, task.cls, 0]
            sign = -1.0 if position == task.targets[head] else 1.0
            assert (output - sign * examples.targets[:, 0]).abs().max() < 1e-7


@pytest.mark.parametrize("heads", [2, 3])
def test_exact_edge_patching_finds_the_circuit_and_nothing_else(heads: int) -> None:
    task = XorTask(9, (2, 5, 8)[:heads])
    made = limit(task, dtype="float64")
    contrasts = task.contrasts(count=24)
    source = contrasts["target-0"].source
    metric = contrasts["target-0"].metrics["agreement"]
    for kind, truth in made.circuits.items():
        slot = kind.partition(":")[2]
        if slot:
            intervention = Intervention("patch", contrasts[slot].destination)
        else:
            intervention = Intervention(kind, None if kind == "zero" else source, 0)  # type: ignore[arg-type]
        effects = patch_edges(made.model, source, metric, intervention, read=(task.cls,))
        found = recovery(effects, truth, seed=0)
        assert found.auroc == 1.0, kind
        assert found.smallest_true > 0.5, kind
        assert found.largest_false < 0.01, kind


def test_the_record_rebuilds_the_model() -> None:
    task = XorTask(20, (0, 19))
    made = limit(task, scale=30.0, seed=5)
    again = limit(task, **made.options)
    assert made.variant == "limit"
    assert set(made.circuits) == set(task.circuit_kinds)
    assert made.roles == {(0, 0): "target-0", (0, 1): "target-1"}
    for name, value in made.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name])
    assert build(made.architecture).cfg.n_heads == 2


def test_bad_requests_are_named() -> None:
    with pytest.raises(ValueError, match="no query tells them apart"):
        limit(XorTask(9), width=1)
    with pytest.raises(ValueError, match="must be positive"):
        limit(XorTask(9), scale=-1.0)
    with pytest.raises(ValueError, match="at least 1 dimension"):
        limit(XorTask(9), width=0)
