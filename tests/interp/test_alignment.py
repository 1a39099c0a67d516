"""Query-target alignment against figures worked out by hand, and its chance level where nothing is aligned."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headlab.interp.alignment import align, align_roles
from headlab.interp.model import activations
from tests.interp.bridges import bridge
from tests.interp.bridges import tokens as bridge_tokens
from tests.interp.hand_built import random_model, tokens, two_heads
from tests.interp.played import endpoint_roles, role_at


def at(keys: int, *targets: int, examples: int = 1) -> torch.Tensor:
    """Target t at key targets[t] in every example."""
    mask = torch.zeros(examples, len(targets), keys, dtype=torch.bool)
    mask[:, torch.arange(len(targets)), torch.tensor(targets)] = True
    return mask


def attention(*heads: dict[int, float], keys: int = 10) -> torch.Tensor:
    """One example; what a head does not name is spread evenly over the other keys."""
    rows = torch.zeros(1, len(heads), keys, dtype=torch.float64)
    for head, weights in enumerate(heads):
        rows[0, head] = (1 - sum(weights.values())) / max(keys - len(weights), 1)
        for key, weight in weights.items():
            rows[0, head, key] = weight
    return rows


def test_attention_is_corrected_for_chance():
    found = align(attention({2: 0.55}, {7: 1.0}), at(10, 2, 7))
    np.testing.assert_allclose(found.matrix, [[0.5, 0.0], [0.0, 1.0]])
    assert found.alignment == pytest.approx(0.75)
    assert found.matched == ("0", "1")
    assert found.rank == 1.0


def test_even_attention_aligns_with_nothing():
    found = align(attention({}, {}), at(10, 2, 7))
    assert found.alignment == 0.0
    assert found.rank == pytest.approx(0.1)
    assert found.chance.median == 0.0


def test_two_heads_on_one_target_get_half():
    assert align(attention({2: 1.0}, {2: 1.0}), at(10, 2, 7)).alignment == 0.5


def test_heads_are_matched_whatever_their_order():
    one, other = attention({2: 0.9}, {7: 0.6}), attention({7: 0.6}, {2: 0.9})
    first, second = align(one, at(10, 2, 7), names=("a", "b")), align(other, at(10, 2, 7), names=("a", "b"))
    assert first.alignment == pytest.approx(second.alignment)
    assert (first.matched, second.matched) == (("a", "b"), ("b", "a"))
    frame = second.to_frame()
    assert list(frame.columns) == ["layer", "head", "target", "score", "rank"]
    assert frame.score.tolist() == pytest.approx([(0.6 - 0.1) / 0.9, (0.9 - 0.1) / 0.9])


def test_the_best_matching_is_found_where_the_greedy_one_is_not():
    # head 0 likes target a a little better than b; head 1 reads nothing but a
    rows = attention({0: 0.55, 1: 0.45}, {0: 0.5})
    found = align(rows, at(10, 0, 1), names=("a", "b"))
    assert found.matched == ("b", "a")


def test_negative_attention_counts_by_its_size():
    rows = torch.tensor([[[-3.0, 0.0, 1.0, 0.0]]])
    found = align(rows, at(4, 0))
    assert found.alignment == pytest.approx((0.75 - 0.25) / 0.75)
    assert align(torch.zeros(1, 1, 4), at(4, 0)).alignment == 0.0


def test_rank_reads_the_scores_and_splits_ties():
    scores = torch.tensor([[[5.0, 1.0, 2.0]], [[1.0, 1.0, 0.0]]])
    found = align(torch.full((2, 1, 3), 1 / 3), at(3, 0, examples=2), scores=scores)
    assert found.rank == pytest.approx(0.75)
    hidden = torch.tensor([[False, True, True], [True, True, True]])
    targets = at(3, 1, examples=2)
    assert align(torch.full((2, 1, 3), 1 / 3), targets, scores=scores, visible=hidden).rank == pytest.approx(0.25)


def test_heads_beyond_the_targets_do_not_count_and_targets_beyond_the_heads_count_zero():
    spare = align(attention({2: 1.0}, {2: 1.0}, {7: 1.0}), at(10, 2, 7))
    assert spare.alignment == pytest.approx(1.0)
    assert spare.matched.count(None) == len(spare.left_over) == 1
    many = align(attention({2: 1.0}, *[{}] * 268, {7: 1.0}), at(10, 2, 7), shuffles=8)
    assert many.alignment == pytest.approx(1.0)
    assert many.chance.p95 <= 1.0
    assert len(many.left_over) == 268
    assert align(attention({2: 1.0}), at(10, 2, 7)).alignment == 0.5


def test_a_score_hook_that_holds_the_pattern_shows_no_future_keys():
    # a native bridge of transformer-lens 3.9 fires its score hook after the softmax, where nothing is masked
    model, inputs = bridge("native"), bridge_tokens(8)
    found = align_roles(model, [role_at("first", inputs, 2, 0, positions=6)], shuffles=0)
    pattern = [activations(model, inputs, [name])[1][name] for name in hooks_of(model)]
    share = torch.cat(pattern, 1)[:, :, 2, 0].mean(0)  # three keys are visible
    np.testing.assert_allclose(found.matrix[:, 0], ((share - 1 / 3) / (2 / 3)).clamp(0, 1), atol=1e-6)


def hooks_of(model):
    return [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.cfg.n_layers)]


def test_targets_that_move_between_examples():
    rows = torch.eye(4).unsqueeze(1)
    targets = torch.eye(4, dtype=torch.bool).unsqueeze(1)
    assert align(rows, targets).alignment == 1.0
    assert align(rows, targets.roll(1, dims=2)).alignment == 0.0


def test_chance_level_follows_the_number_of_keys():
    wide = align(attention({2: 1.0}, {7: 1.0}, keys=100), at(100, 2, 7), shuffles=200)
    narrow = align(attention({1: 1.0}, {2: 1.0}, keys=3), at(3, 1, 2), shuffles=200)
    assert wide.chance.median == 0.0
    assert wide.chance.p95 <= 0.5
    # with 3 keys a shuffle hits both targets in 1 of 3 and one of them in the others
    assert np.mean(narrow.chance.values) == pytest.approx(1 / 3 + 2 / 3 * 0.5, abs=0.05)
    assert align(attention({2: 1.0}), at(10, 2), shuffles=0).chance is None


@given(st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_any_attention_scores_between_zero_and_one(seed):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(3, 2, 6, generator=generator)
    order = torch.randperm(6, generator=generator)
    targets = at(6, 1, 4, examples=3)
    found = align(rows, targets, seed=seed, shuffles=8)
    assert 0 <= found.alignment <= 1
    assert 0 <= found.rank <= 1
    # renaming the keys renames the targets with them
    assert align(rows[..., order], targets[..., order], shuffles=0).alignment == pytest.approx(found.alignment)


def test_a_model_is_read_at_each_role_s_own_queries():
    found = align_roles(two_heads(), endpoint_roles(), batch=7)
    # each head rests half on its endpoint and half on '#', whose score ties with it
    np.testing.assert_allclose(found.matrix, np.eye(2) * (0.5 - 0.25) / 0.75, atol=1e-3)
    np.testing.assert_allclose(found.ranks, np.eye(2) / 2)
    assert found.matched == ("endpoint 1", "endpoint 2")
    assert found.heads == ((0, 0), (0, 1))


def test_keys_that_a_query_cannot_see_are_no_chance():
    model = random_model(scale=0.0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    # position 1 sees two keys, evenly: exactly chance
    found = align_roles(model, [role_at("first", tokens(8), 1, 0, positions=5)])
    np.testing.assert_allclose(found.matrix, 0.0, atol=1e-12)
    np.testing.assert_allclose(found.ranks, 0.5)
    assert len(found.heads) == 4


def test_what_does_not_fit_is_refused():
    rows = attention({2: 1.0})
    with pytest.raises((ValueError, TypeError), match="targets"):
        align(rows, at(9, 2))
    with pytest.raises((ValueError, TypeError), match="scores"):
        align(rows, at(10, 2), scores=torch.zeros(1, 1, 9))
    with pytest.raises(ValueError, match="not among the keys"):
        align(rows, torch.zeros(1, 1, 10, dtype=torch.bool))
    with pytest.raises(ValueError, match="at least one role"):
        align_roles(two_heads(), [])
