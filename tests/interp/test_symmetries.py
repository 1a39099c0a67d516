"""Changes that leave the function as it is: every number moves, and no logit (or no logit difference)."""

import copy

import pytest
import torch

from headlab.interp.symmetries import (
    disguised,
    fold_norms,
    shift_key_bias,
    shift_logits,
    shift_value_bias,
    shift_written_mean,
)
from tests.interp.hand_built import random_model

SHIFTS = {
    "b_V": lambda model: shift_value_bias(model, 3.0),
    "b_K": lambda model: shift_key_bias(model, 3.0),
    "W_O": lambda model: shift_written_mean(model, 3.0),
    "W_Q": fold_norms,
    "W_U": lambda model: shift_logits(model, 3.0),
}


@pytest.mark.parametrize("order", [None, [1, 2, 0]])
def test_a_disguised_model_answers_the_same(order):
    model = random_model(n_layers=2, n_heads=3, dtype=torch.float64)
    before = copy.deepcopy(model.state_dict())
    inputs = torch.arange(8).reshape(2, 4) % 7
    masked = disguised(model, seed=1, order=order)
    torch.testing.assert_close(masked(inputs), model(inputs))
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        one, other = (getattr(each.blocks[1].attn, name).flatten() for each in (model, masked))
        assert torch.cosine_similarity(one, other, dim=0) < 0.9


@pytest.mark.parametrize("weight", SHIFTS)
@pytest.mark.parametrize("attn_only", [True, False])
def test_a_shifted_model_answers_the_same(weight, attn_only):
    model = random_model(normalization_type="LN", attn_only=attn_only)
    before = copy.deepcopy(model.state_dict())
    inputs = torch.arange(8).reshape(2, 4) % 7
    shifted = SHIFTS[weight](model)
    changed = {name.rsplit(".", 1)[-1] for name, value in shifted.state_dict().items() if not value.equal(before[name])}
    assert weight in changed
    one, other = (each(inputs) - each(inputs).mean(-1, keepdim=True) for each in (model, shifted))
    torch.testing.assert_close(one, other)
    if weight != "W_U":
        torch.testing.assert_close(model(inputs), shifted(inputs))
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())


def test_grouped_values_take_a_bias_together():
    model = random_model(n_heads=4, n_key_value_heads=2, d_model=16)
    inputs = torch.arange(8).reshape(2, 4) % 7
    torch.testing.assert_close(shift_value_bias(model, 2.0)(inputs), model(inputs))


def test_what_does_change_the_function_is_refused():
    with pytest.raises(ValueError, match="not an order of 3 heads"):
        disguised(random_model(n_layers=1, n_heads=3), order=[0, 0, 1])
    with pytest.raises(ValueError, match="grouped"):
        disguised(random_model(n_heads=4, n_key_value_heads=2))
    with pytest.raises(ValueError, match="mean of the residual stream is read"):
        shift_written_mean(random_model(normalization_type="RMS"), 1.0)
    with pytest.raises(ValueError, match="rotary"):
        shift_key_bias(random_model(positional_embedding_type="rotary", rotary_dim=4), 1.0)
    with pytest.raises(ValueError, match="no weights that could be folded"):
        fold_norms(random_model(normalization_type="LNPre"))
