"""The HookedTransformer is the formula: outputs, losses, gradients and attention, for every map and number of heads."""

import pytest
import torch

from headlab.interp.model import activations, run
from headlab.models.attention_maps import ATTENTION_MAPS
from headlab.models.hooked import build
from headlab.models.xor.architecture import QUERIES, architecture, feedforward_architecture, from_model, to_model
from headlab.models.xor.descent import DescentRule, population_objective, step
from headlab.models.xor.ensemble import Ensemble, draw, step_size
from headlab.models.xor.task import XorTask


def models_of(task: XorTask, width: int, kind: str = "softmax", seed: int = 0) -> Ensemble:
    drawn = draw(task, width=width, seeds=(seed,), start="independent", kind=kind)
    return drawn.with_queries(3 * drawn.queries)


@pytest.mark.parametrize("kind", ATTENTION_MAPS)
@pytest.mark.parametrize(("bits", "targets"), [(8, (2, 7)), (7, (6, 0, 3)), (6, (4, 0, 1, 5))])
def test_the_transformer_equals_the_formula_with_its_gradient(bits: int, targets: tuple[int, ...], kind: str) -> None:
    task = XorTask(bits, targets)
    models = models_of(task, 5, kind)
    model = to_model(models)
    examples = task.examples()
    with torch.enable_grad():
        output = model(examples.inputs)[:, task.cls, 0]
        value = ((output - examples.targets[:, 0]) ** 2).mean()
        trainable = {name: leaf for name, leaf in model.named_parameters() if leaf.requires_grad}
        assert list(trainable) == [QUERIES]
        (gradient,) = torch.autograd.grad(value, trainable[QUERIES])
    formula = -(examples.inputs.double() @ models.attention()[0].T).prod(dim=-1)
    loss, exact = population_objective(models)
    scale = max(1.0, float(exact.abs().max()))
    assert (output - formula).abs().max() < 1e-12
    assert abs(value - loss[0]) / max(1.0, float(loss)) < 1e-12
    assert (gradient - exact[0]).abs().max() / scale < 1e-12


def test_one_step_in_the_transformer_is_one_step_of_the_closed_form() -> None:
    task = XorTask(10, (3, 8))
    models = draw(task, width=16, seeds=(1,))
    eta = step_size(task, 16)
    _, gradient = population_objective(models)
    after = models.with_queries(step(models, DescentRule("plain", eta), gradient))
    model = to_model(models)
    examples = task.examples()
    with torch.enable_grad():
        value = ((model(examples.inputs)[:, task.cls, 0] - examples.targets[:, 0]) ** 2).mean()
        queries = model.blocks[0].attn.b_Q
        (slope,) = torch.autograd.grad(value, queries)
    with torch.no_grad():
        queries -= eta * slope
    assert float((queries.detach() - after.queries[0]).abs().max()) / eta < 1e-15
    assert float(after.loss()) < 1e-6
    model_loss = ((run(model, examples.inputs)[:, task.cls, 0] - examples.targets[:, 0]) ** 2).mean()
    assert abs(float(model_loss.detach()) - float(after.loss())) < 1e-6


@pytest.mark.parametrize("kind", ATTENTION_MAPS)
def test_every_attention_hook_fires_and_the_cls_does_not_read_itself(kind: str) -> None:
    task = XorTask(6)
    models = models_of(task, 4, kind)
    model = to_model(models)
    model.set_use_attn_result(True)
    names = [f"blocks.0.attn.hook_{name}" for name in ("q", "k", "v", "z", "attn_scores", "pattern", "result")]
    _, kept = activations(model, task.examples().inputs, [*names, "hook_embed", "hook_pos_embed"])
    pattern = kept["blocks.0.attn.hook_pattern"]
    assert pattern.shape == (64, 2, 7, 7)
    assert (pattern[:, :, 6, 6] == 0).all()
    assert (pattern[:, :, 6, :6] - models.attention()[0]).abs().max() < 1e-15
    assert (pattern.triu(1) == 0).all()


def test_an_edited_pattern_reaches_the_output_of_a_mapped_attention() -> None:
    task = XorTask(6)
    model = to_model(models_of(task, 4, "linear"))
    inputs = task.examples().inputs
    eye = torch.zeros(2, 7, dtype=torch.float64)
    eye[0, 0] = eye[1, 1] = 1.0

    def one_hot(pattern: torch.Tensor, hook: object) -> torch.Tensor:
        pattern = pattern.clone()
        pattern[:, :, 6] = eye
        return pattern

    output = run(model, inputs, {"blocks.0.attn.hook_pattern": one_hot})[:, 6, 0]
    assert torch.equal(output, task.labels(inputs).double())


@pytest.mark.parametrize("kind", ATTENTION_MAPS)
def test_a_model_gives_its_ensemble_back(kind: str) -> None:
    task = XorTask(9, (1, 4, 8))
    models = models_of(task, 6, kind)
    back = from_model(to_model(models), task)
    assert torch.equal(back.queries, models.queries)
    assert torch.equal(back.positions, models.positions)
    assert back.kind == kind
    with pytest.raises(ValueError, match="not an attention model of 9 bits and 2 targets"):
        from_model(to_model(models), XorTask(9))


def test_parameters_are_two_queries_and_nothing_else() -> None:
    model = build(architecture(XorTask(50), 7))
    assert sum(leaf.numel() for leaf in model.parameters() if leaf.requires_grad) == 14


def test_bad_requests_are_named() -> None:
    with pytest.raises(ValueError, match="at least 1 dimension"):
        architecture(XorTask(5), 0)
    with pytest.raises(ValueError, match="too long for a transformer"):
        architecture(XorTask(100_000), 8)
    with pytest.raises(KeyError, match="unknown attention"):
        architecture(XorTask(5), 4, "hardmax")
    with pytest.raises(ValueError, match="at least 1"):
        feedforward_architecture(XorTask(5), 0)
    with pytest.raises(ValueError, match="neither a key-value cache"):
        to_model(models_of(XorTask(4), 3, "erf")).blocks[0].attn(
            *[torch.zeros(1, 5, 5)] * 3, position_bias=torch.zeros(1)
        )
