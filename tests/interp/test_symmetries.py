"""A disguise changes every number of a head and no logit."""

import copy

import pytest
import torch

from headlab.interp.symmetries import disguised
from tests.interp.hand_built import random_model


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


def test_an_order_that_is_none_is_refused():
    with pytest.raises(ValueError, match="no order of 3 heads"):
        disguised(random_model(n_layers=1, n_heads=3, dtype=torch.float64), order=[0, 0, 1])
