"""The specialisation score and the roles of heads, on models worked out by hand, and where there is nothing to find."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformer_lens.hook_points import HookPoint

from headlab.interp.movement import movement
from headlab.interp.roles import chance, score
from headlab.models.hooked import Architecture, build, initialise
from headlab.models.parts import PARTS
from tests.interp.gauge import change_gauge, duplicate_heads
from tests.interp.hand_built import random_model, tokens, two_heads
from tests.interp.played import endpoint_roles, role_at

seeds = st.integers(0, 10_000)


def even_model(values: torch.Tensor, **config) -> torch.nn.Module:
    """One layer of even attention; head h writes values[h, token] on the residual's first axis."""
    heads, vocabulary = values.shape
    options = {"n_layers": 1, "n_heads": heads, "d_model": vocabulary, "d_head": 1, "d_vocab": vocabulary, **config}
    model = random_model(scale=0.0, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E.copy_(torch.eye(vocabulary, dtype=torch.float64))
        model.blocks[0].attn.W_V.copy_(values.double().unsqueeze(-1))
        model.blocks[0].attn.W_O[:, 0, 0] = 1.0
    return model


def test_movement_worked_by_hand():
    # even attention over 2 positions; head 0 writes 3 for token 0 and 1 for token 1, head 1 writes -4 and 0
    model = even_model(torch.tensor([[3.0, 1.0], [-4.0, 0.0]]), n_ctx=2)
    role = role_at("first", torch.tensor([[0, 1]]), 1, 0, positions=2)
    (moved,) = movement(model, role.inputs, [(role.queries, role.targets)])
    assert moved.heads == ((0, 0), (0, 1))
    np.testing.assert_allclose(moved.from_targets, [[1.5, 2.0]])
    np.testing.assert_allclose(moved.total, [[2.0, 2.0]])
    np.testing.assert_allclose(moved.chance, [[0.5, 0.5]])


def test_score_worked_by_hand():
    model = even_model(torch.tensor([[3.0, 1.0], [-4.0, 0.0]]), n_ctx=2)
    roles = [role_at(name, torch.tensor([[0, 1]]), 1, at, positions=2) for at, name in enumerate(["first", "second"])]
    result = score(model, roles)
    np.testing.assert_allclose(result.amount, [[1.5, 0.5], [2.0, 0.0]])
    np.testing.assert_allclose(result.p, [[3 / 14, 1 / 2], [4 / 14, 0]])
    # shares: head 0 moves 3/4 from the first and 1/4 from the second; chance is 1/2
    np.testing.assert_allclose(result.usage, [[0.5, 0.0], [1.0, 0.0]])
    assert result.separation == pytest.approx((1 / 2 + 4 / 14 - 1 / 2) / (1 / 2))
    assert result.coverage == 0.0
    assert result.specialisation == 0.0
    assert result.counted == (1, 1)
    frame = result.to_frame()
    assert list(frame.columns) == ["layer", "head", "role", "usage", "p", "amount"]
    assert frame.set_index(["head", "role"]).usage[(1, "first")] == pytest.approx(1.0)


def test_heads_built_for_one_role_each_specialise():
    result = score(two_heads(), endpoint_roles())
    assert result.specialisation >= 0.999
    assert result.information >= 0.999
    np.testing.assert_allclose(result.usage, np.eye(2), atol=1e-3)
    np.testing.assert_allclose(result.p, np.eye(2) / 2, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_duplicated_heads_do_not_specialise_at_all(dtype):
    result = score(duplicate_heads(two_heads(dtype=dtype)), endpoint_roles())
    assert (result.specialisation, result.separation, result.information) == (0.0, 0.0, 0.0)
    three = duplicate_heads(random_model(n_layers=1, n_heads=3, dtype=dtype))
    roles = [role_at(str(at), tokens(16), 4, at, positions=5) for at in range(4)]
    assert score(three, roles).specialisation == 0.0


def test_a_head_that_is_switched_off_has_no_usage_and_no_share():
    model = two_heads()
    with torch.no_grad():
        model.blocks[0].attn.W_O[1] = 0.0
    result = score(model, endpoint_roles())
    np.testing.assert_array_equal(result.usage[1], 0.0)
    np.testing.assert_array_equal(result.p, [[0.5, 0.5], [0.0, 0.0]])
    assert (result.separation, result.information) == (0.0, 0.0)


def test_untrained_models_set_the_chance_level():
    config = {"n_layers": 1, "n_heads": 2, "d_model": 16, "d_head": 8, "n_ctx": 4, "d_vocab": 8, "attn_only": True}
    plan = Architecture({**config, "normalization_type": "LNPre"})

    def untrained(seed: int):
        model = build(plan)
        initialise(model, scale=0.05, seed=seed)
        return model

    level = chance(untrained, endpoint_roles(), seeds=24)
    assert level.count == 24
    assert level.median <= 0.01
    assert level.p95 <= 0.05
    assert level == chance(untrained, endpoint_roles(), seeds=range(24))


@given(seeds, st.permutations([0, 1, 2]))
@settings(max_examples=15, deadline=None)
def test_order_and_basis_of_heads_do_not_matter(seed, order):
    config = {"n_heads": 3, "normalization_type": "LN", "dtype": torch.float64}
    inputs = tokens(12, seed=seed)
    roles = [role_at("near", inputs, 4, 3, positions=5), role_at("far", inputs, 4, 0, positions=5)]
    before = score(random_model(seed=seed, **config), roles)
    after = score(change_gauge(random_model(seed=seed, **config), seed, list(order)), roles)
    moved = [3 * layer + head for layer in range(2) for head in order]
    np.testing.assert_allclose(after.usage, before.usage[moved], atol=1e-9)
    np.testing.assert_allclose(after.p, before.p[moved], atol=1e-9)
    assert after.specialisation == pytest.approx(before.specialisation, abs=1e-9)


def test_two_heads_may_share_arole_at():
    shared = two_heads()
    config = {**{key: getattr(shared.cfg, key) for key in ("d_model", "d_head", "n_ctx", "d_vocab")}, "n_heads": 4}
    model = build(
        Architecture({**config, "n_layers": 1, "attn_only": True, "normalization_type": None, "use_attn_scale": False}),
        dtype=torch.float64,
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            given = dict(shared.named_parameters())[name]
            parameter.copy_(
                given.repeat(2, *[1] * (given.ndim - 1)) if ".attn." in name and "b_O" not in name else given
            )
    result = score(model, endpoint_roles())
    assert result.specialisation >= 0.999
    np.testing.assert_allclose(result.usage, np.tile(np.eye(2), (2, 1)), atol=1e-3)


def test_one_role_has_coverage_only():
    result = score(two_heads(), endpoint_roles()[:1])
    assert (result.separation, result.information, result.specialisation) == (None, None, None)
    assert result.coverage >= 0.999


def test_a_role_that_nobody_plays_scores_nothing():
    # token 0 has no value, so nothing can be moved from the first position
    model = even_model(torch.tensor([[0.0, 1.0], [0.0, 2.0]]), n_ctx=2)
    roles = [role_at(name, torch.tensor([[0, 1]]), 1, at, positions=2) for at, name in enumerate(["first", "second"])]
    result = score(model, roles)
    assert result.coverage == result.specialisation == 0.0
    assert np.isfinite([result.separation, result.information]).all()
    silent = score(even_model(torch.zeros(2, 2), n_ctx=2), roles)
    assert (silent.coverage, silent.separation, silent.information, silent.specialisation) == (0.0, 0.0, 0.0, 0.0)


def test_a_head_that_hardly_moves_anything_has_no_usage():
    values = torch.tensor([[1.0, 0.0], [0.009, 0.0]])
    role = role_at("first", torch.tensor([[0, 1]]), 1, 0, positions=2)
    np.testing.assert_allclose(score(even_model(values, n_ctx=2), [role]).usage, [[1.0], [0.0]])
    np.testing.assert_allclose(score(even_model(values * torch.tensor([[1], [2]]), n_ctx=2), [role]).usage, 1.0)


def test_examples_whose_roles_share_a_target_do_not_count():
    # a head per role, each moving from "its" token (0 or 1) only; token 2 plays both roles and would blur them
    model = even_model(torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]), n_ctx=3)
    inputs = torch.tensor([[0, 1, 1], [1, 0, 0], [2, 2, 2]])
    first, second = torch.tensor([0, 1, 0]), torch.tensor([1, 0, 0])
    roles = [role_at("a", inputs, 2, first, positions=3), role_at("b", inputs.clone(), 2, second, positions=3)]
    result = score(model, roles)
    assert result.counted == (2, 2)
    assert result.separation == 1.0
    apart = [roles[0], replace(roles[1], inputs=inputs.flip(0))]
    assert score(model, apart).counted == (3, 3)


def test_roles_that_never_differ_are_refused():
    role = endpoint_roles()[0]
    with pytest.raises(ValueError, match="shares its targets in every example"):
        score(two_heads(), [role, replace(role, name="again")])


def test_grouped_key_value_heads_are_expanded():
    grouped = random_model(n_heads=4, n_key_value_heads=2, d_model=16)
    full = random_model(n_heads=4, d_model=16)
    with torch.no_grad():
        for one, other in zip(grouped.blocks, full.blocks, strict=True):
            for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"):
                getattr(other.attn, name).copy_(getattr(one.attn, name))
        for name in ("embed.W_E", "pos_embed.W_pos", "unembed.W_U"):
            dict(full.named_parameters())[name].copy_(dict(grouped.named_parameters())[name])
    roles = [role_at(str(at), tokens(16), 4, at, positions=5) for at in range(2)]
    one, other = score(grouped, roles), score(full, roles)
    assert len(one.heads) == 8
    np.testing.assert_allclose(one.usage, other.usage, atol=1e-12)
    assert one.specialisation == pytest.approx(other.specialisation)


def test_a_query_that_sees_nothing_moves_nothing():
    plan = {"n_layers": 1, "n_heads": 2, "d_model": 4, "d_head": 2, "n_ctx": 1, "d_vocab": 3, "attn_only": True}
    model = build(Architecture({**plan, "normalization_type": None}, {"blocks.0.attn": {"part": "BlindClsAttention"}}))
    initialise(model, scale=1.0, seed=0)
    result = score(model, [role_at("self", torch.tensor([[0], [1]]), 0, 0, positions=1)])
    assert result.coverage == 0.0
    assert np.isfinite(result.usage).all()


def test_positions_that_the_model_appends_count(monkeypatch):
    class Appending(nn.Module):
        def __init__(self, cfg, model):
            super().__init__()
            self.W_E = nn.Parameter(torch.zeros(cfg.d_vocab, cfg.d_model, dtype=cfg.dtype))
            self.hook_out = HookPoint()

        def forward(self, tokens):
            rows = self.W_E[tokens]
            return torch.cat([rows, torch.zeros_like(rows[:, :1])], dim=1)

    class Unplaced(nn.Module):
        def __init__(self, cfg, model):
            super().__init__()
            self.cfg = cfg

        def forward(self, tokens, *_):
            return torch.zeros(1, 1, self.cfg.d_model)

    monkeypatch.setitem(PARTS, "Appending", Appending)
    monkeypatch.setitem(PARTS, "Unplaced", Unplaced)
    plan = {"n_layers": 1, "n_heads": 1, "d_model": 2, "d_head": 2, "n_ctx": 3, "d_vocab": 2, "attn_only": True}
    parts = {"embed": {"part": "Appending"}, "pos_embed": {"part": "Unplaced"}}
    model = build(Architecture({**plan, "normalization_type": None}, parts))
    with torch.no_grad():
        model.embed.W_E[0, 0] = 1.0
        model.blocks[0].attn.W_V[0] = model.blocks[0].attn.W_O[0] = torch.eye(2)
    role = role_at("token 0", torch.tensor([[0, 1], [1, 0]]), 2, torch.tensor([0, 1]), positions=3)
    assert score(model, [role]).coverage == 1.0
    with pytest.raises(ValueError, match=r"count \(2, 2\) positions.*\(3, 3\)"):
        score(model, [role_at("short", role.inputs, 1, 0, positions=2)])


def test_half_precision_scores_like_double():
    roles = endpoint_roles()
    exact, half = score(two_heads(), roles), score(two_heads(dtype=torch.bfloat16), roles)
    np.testing.assert_allclose(half.usage, exact.usage, atol=0.02)
    assert half.specialisation == pytest.approx(exact.specialisation, abs=0.02)


def test_bad_roles_are_refused():
    role = endpoint_roles()[0]
    model = two_heads()
    with pytest.raises(ValueError, match="at least one role"):
        score(model, [])
    with pytest.raises(ValueError, match="one name"):
        score(model, [role, role])
    with pytest.raises(ValueError, match="no target at query 3 of example 0"):
        score(model, [replace(role, targets=torch.zeros_like(role.targets))])
    with pytest.raises(ValueError, match="played nowhere"):
        score(model, [replace(role, queries=torch.zeros_like(role.queries))])


def test_the_picture_names_heads_and_roles():
    result = score(two_heads(), endpoint_roles())
    figure = result.render()
    assert "endpoint 1" in figure.svg
    assert "0.1" in figure.svg
    assert "100" in figure.description
    level = chance(lambda seed: duplicate_heads(two_heads()), endpoint_roles(), seeds=2)
    assert "2 untrained models" in result.render(level).svg
    assert "coverage" in score(two_heads(), endpoint_roles()[:1]).render(level).svg


def test_attention_with_negative_weights_counts_by_its_size():
    plan = {"n_layers": 1, "n_heads": 1, "d_model": 2, "d_head": 1, "n_ctx": 3, "d_vocab": 3, "attn_only": True}
    part = {"blocks.0.attn": {"part": "MappedClsAttention", "map": "linear"}}
    model = build(Architecture({**plan, "normalization_type": None, "use_attn_scale": False}, part))
    with torch.no_grad():
        model.embed.W_E[:, 0] = torch.tensor([-3.0, 1.0, 0.0])
        model.embed.W_E[:, 1] = 1.0
        attention = model.blocks[0].attn
        attention.b_Q[0, 0] = attention.W_K[0, 0, 0] = attention.W_V[0, 1, 0] = attention.W_O[0, 0, 0] = 1.0
    # scores -3 and 1 are the weights; every token has the value 1, and the last position does not see itself
    result = score(model, [role_at("first", torch.tensor([[0, 1, 2]]), 2, 0, positions=3)])
    np.testing.assert_allclose(result.amount, [[3.0]])
    np.testing.assert_allclose(result.usage, [[(0.75 - 0.5) / 0.5]])
