"""Comparison of two models: 1 for one mechanism in other coordinates, about 0 for an untrained one."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headlab.interp.comparison import chance, compare
from headlab.interp.weights import residual_rows
from headlab.models.hooked import Architecture, build, initialise
from tests.interp.gauge import change_gauge, duplicate_heads
from tests.interp.hand_built import arcs, random_model, tokens, two_heads


def last(inputs: torch.Tensor) -> torch.Tensor:
    """The last position of every example."""
    mask = torch.zeros(inputs.shape[:2], dtype=torch.bool)
    mask[:, -1] = True
    return mask


def figures(found) -> list[float]:
    return [found.qk, found.ov, found.in_use]


def narrow(n: int = 5):
    """`two_heads` with its vertices on the unit circle: another width, another rank, the same attention."""
    wide = two_heads(n)
    angle = 2 * np.pi * torch.arange(n, dtype=torch.float64) / n
    into = torch.zeros(n + 3, 5, dtype=torch.float64)
    into[:n, :2] = torch.stack([angle.cos(), angle.sin()], dim=1)
    into[n:, 2:] = torch.eye(3, dtype=torch.float64)
    config = {"n_layers": 1, "n_heads": 2, "d_model": 5, "d_head": 2, "n_ctx": 4, "d_vocab": n + 3, "attn_only": True}
    model = build(Architecture({**config, "normalization_type": None, "use_attn_scale": False}), dtype=torch.float64)
    with torch.no_grad():
        model.embed.W_E.copy_(wide.embed.W_E @ into)
        model.pos_embed.W_pos.copy_(wide.pos_embed.W_pos @ into)
        for head in range(2):
            for name in ("W_Q", "W_K"):
                weight = getattr(wide.blocks[0].attn, name)[head, n:, :2]
                getattr(model.blocks[0].attn, name)[head, 2:] = weight
            model.blocks[0].attn.W_V[head, :2] = torch.eye(2)
            model.blocks[0].attn.W_O[head, :, :2] = torch.eye(2)
        model.unembed.W_U[:2, :n] = into[:n, :2].T
    return model


@given(st.integers(0, 10_000), st.permutations([0, 1, 2]), st.sampled_from([None, "LN", "RMS"]))
@settings(max_examples=15, deadline=None)
def test_a_model_in_other_coordinates_is_itself(seed, order, norm):
    inputs = tokens(10, seed=seed)
    config = {"n_heads": 3, "normalization_type": norm, "seed": seed}
    model, moved = random_model(**config), change_gauge(random_model(**config), seed, list(order))
    found = compare(model, moved, inputs, last(inputs))
    assert figures(found) == pytest.approx([1.0] * 3, abs=1e-5)
    assert found.function["agreement"] == 1.0
    assert found.function["kl"] == pytest.approx(0.0, abs=1e-9)
    partner = {pair.a: pair.b for pair in found.heads}
    assert partner == {(layer, head): (layer, order.index(head)) for layer in range(2) for head in range(3)}
    assert found.unmatched == ((), ())


def test_scale_and_softmax_shift_do_not_matter():
    inputs = tokens(10)
    model, other = random_model(n_layers=1), random_model(n_layers=1)
    with torch.no_grad():
        other.blocks[0].attn.W_Q.mul_(3.0)
        other.blocks[0].attn.b_Q.mul_(3.0)
        other.blocks[0].attn.b_K.add_(1.0)  # adds one number to every score of a query
        other.unembed.W_U.add_(torch.ones(8, 1)).mul_(0.5)
        other.blocks[0].attn.b_V.add_(2.0)
    found = compare(model, other, inputs, last(inputs))
    assert [found.qk, found.ov] == pytest.approx([1.0, 1.0], abs=1e-6)


def test_float32_keeps_a_model_equal_to_itself():
    model, moved = (random_model(n_heads=3, dtype=torch.float32, scale=0.3) for _ in range(2))
    inputs = tokens(10)
    assert figures(compare(model, change_gauge(moved, 1, [2, 0, 1]), inputs, last(inputs))) == pytest.approx(
        [1.0] * 3, abs=1e-5
    )


def test_another_rank_shares_attention_and_half_of_the_output():
    inputs = arcs(10)[0]
    found = compare(two_heads(10), narrow(10), inputs, last(inputs))
    assert found.qk == pytest.approx(1.0, abs=1e-6)
    # a rank-2 projection of a centred identity on 10 vertices: its cosine is the square root of 2/9
    assert found.ov == pytest.approx(np.sqrt(2 / 9), abs=1e-2)
    assert found.function["agreement"] == 1.0
    assert found.rows == 2 * 10 + 3
    assert found.queries == 1
    frame = found.to_frame()
    assert list(frame.columns) == ["layer_a", "head_a", "layer_b", "head_b", "qk", "ov", "in_use"]
    assert frame.ov.mean() == pytest.approx(found.ov)


def test_untrained_models_have_little_in_common_with_a_construction():
    inputs = arcs()[0]
    plan = {"n_layers": 1, "n_heads": 2, "d_model": 32, "d_head": 16, "n_ctx": 4, "d_vocab": 8, "attn_only": True}

    def untrained(seed: int):
        model = build(Architecture({**plan, "normalization_type": "LNPre"}))
        initialise(model, scale=0.04, seed=seed)
        return model

    level = chance(untrained, two_heads(), inputs, last(inputs), seeds=24)
    assert set(level) == {"qk", "ov", "in_use"}
    assert abs(level["ov"].median) <= 0.1
    assert abs(level["in_use"].median) <= 0.1
    assert abs(level["qk"].median) <= 0.25


def test_duplicated_heads_match_one_head_and_not_the_other():
    inputs = arcs()[0]
    found = compare(duplicate_heads(two_heads()), two_heads(), inputs, last(inputs))
    by_b = {pair.b: pair for pair in found.heads}
    assert by_b[(0, 0)].in_use == pytest.approx(1.0)
    assert by_b[(0, 1)].qk < 0.5


def test_more_heads_leave_some_without_a_partner():
    inputs = tokens(8)
    found = compare(random_model(n_layers=1, n_heads=3), random_model(n_layers=1, n_heads=2), inputs, last(inputs))
    assert len(found.heads) == 2
    assert len(found.unmatched[0]) == 1
    assert found.unmatched[1] == ()


def test_grouped_key_value_heads_compare():
    model = random_model(n_heads=4, n_key_value_heads=2)
    inputs = tokens(8)
    assert figures(compare(model, model, inputs, last(inputs))) == pytest.approx([1.0] * 3)


def test_circuits_that_are_nothing_are_alike_in_nothing_else():
    inputs = tokens(8)
    even, other = random_model(n_layers=1), random_model(n_layers=1, seed=3)
    with torch.no_grad():
        even.blocks[0].attn.W_Q.zero_()
        even.blocks[0].attn.b_Q.zero_()
    assert compare(even, even, inputs, last(inputs)).qk == 1.0
    assert compare(even, other, inputs, last(inputs)).qk == 0.0
    with torch.no_grad():
        even.blocks[0].attn.W_V.zero_()
    found = compare(even, other, inputs, last(inputs))
    assert (found.ov, found.in_use) == (0.0, 0.0)


class Reader(torch.nn.Module):
    """A read-out that is no matrix."""

    def __init__(self, model, seed):
        super().__init__()
        weight = torch.randn(model.cfg.d_model, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        self.weight = torch.nn.Parameter(weight)

    def forward(self, residual):
        return torch.tanh(residual) @ self.weight


def test_a_regression_whose_read_out_is_no_matrix():
    inputs = tokens(10)
    model, moved = random_model(n_layers=1, n_heads=3), random_model(n_layers=1, n_heads=3)
    model.unembed, moved.unembed = Reader(model, 0), Reader(moved, 0)
    found = compare(model, change_gauge(moved, 2, [1, 2, 0]), inputs, last(inputs), regression=True)
    assert found.space == "residual"
    assert figures(found) == pytest.approx([1.0] * 3)
    assert found.function == pytest.approx({"r2": 1.0})
    other = random_model(n_layers=1, n_heads=3, seed=5)
    other.unembed = Reader(other, 1)
    apart = compare(other, model, inputs, last(inputs), regression=True)
    assert apart.function["r2"] < 0.5
    assert 0 <= apart.ov < 0.9


def test_rows_are_the_distinct_ones_that_a_query_sees():
    model = random_model(n_layers=1)
    inputs = torch.tensor([[0, 1, 2], [0, 1, 3], [0, 4, 2]])
    queries = torch.zeros(3, 3, dtype=torch.bool)
    queries[:, 1] = True
    found = compare(model, model, inputs, queries)
    assert (found.rows, found.queries) == (3, 2)
    assert compare(model, model, inputs, queries, most_rows=2).rows == 2
    assert len(torch.unique(residual_rows(model, inputs).flatten(0, 1), dim=0)) == 5


def test_models_of_different_tasks_are_refused():
    inputs = tokens(4)
    with pytest.raises(ValueError, match="7 and 6 outputs"):
        compare(random_model(), random_model(d_vocab_out=6), inputs, last(inputs))
    with pytest.raises(ValueError, match="no query"):
        compare(random_model(), random_model(), inputs, torch.zeros(4, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="do not count"):
        compare(random_model(), random_model(), inputs, torch.ones(4, 6, dtype=torch.bool))
