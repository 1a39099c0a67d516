"""The specialisation score: on models worked out by hand, against loops over queries and keys, under every gauge."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformer_lens.hook_points import HookPoint

from headlab.interp.movement import movement
from headlab.interp.roles import chance, hold_heads, read_metric, require_one_definition, score, stored_score
from headlab.interp.symmetries import (
    disguised,
    fold_norms,
    shift_key_bias,
    shift_logits,
    shift_value_bias,
    shift_written_mean,
)
from headlab.models.hooked import Architecture, build, initialise
from headlab.models.parts import PARTS
from tests.interp.division_models import doubled, endpoint_model, overridden
from tests.interp.gauge import change_gauge, duplicate_heads
from tests.interp.hand_built import arcs, random_model, tokens, two_heads
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


def by_hand():
    """Position 0 holds token 0 or 1, position 1 token 2 or 3; one axis is written and read."""
    model = even_model(torch.tensor([[3.0, 1.0, 1.0, 0.0], [-4.0, 0.0, 0.0, 0.0]]), n_ctx=2)
    with torch.no_grad():
        model.unembed.W_U[0, 0] = 1.0
    inputs = torch.tensor([[0, 2], [0, 3], [1, 2], [1, 3]])
    return model, [role_at(name, inputs, 1, at, positions=2) for at, name in enumerate(["first", "second"])]


def test_score_worked_by_hand():
    model, roles = by_hand()
    result = score(model, roles)
    # variances of what is moved: 1.5 or .5 (head 0, first), .5 or 0 (second), -2 or 0 (head 1, first), nothing
    np.testing.assert_allclose(result.moved / result.moved[1, 0], [[0.25, 0.0625], [1.0, 0.0]], atol=1e-12)
    np.testing.assert_allclose(2 * result.p, [[0.2, 1.0], [0.8, 0.0]], atol=1e-12)
    # shares: head 0 moves 4/5 from the first and 1/5 from the second; chance is 1/2
    np.testing.assert_allclose(result.usage, [[0.6, 0.0], [1.0, 0.0]], atol=1e-12)
    assert result.separation == pytest.approx(0.8)
    # head and role: (.1, .5), (.4, 0); entropy of the head less that of the head given the role, in bits
    head, given = -0.6 * np.log2(0.6) - 0.4 * np.log2(0.4), -0.5 * (0.2 * np.log2(0.2) + 0.8 * np.log2(0.8))
    assert result.information == pytest.approx(head - given)
    assert (result.coverage, result.specialisation) == (0.0, 0.0)
    np.testing.assert_array_equal(result.quiet, [[1, 1], [1, 0]])  # both roles are played at the same queries
    np.testing.assert_allclose(result.copies, [1 / (0.04 + 0.64), 1.0])
    assert result.mechanisms == ("redundant", "none")
    assert result.mechanism == "none"
    assert result.counted == (4, 4)
    frame = result.to_frame()
    assert list(frame.columns) == ["layer", "head", "role", "usage", "quiet", "p", "moved", "stray"]
    assert frame.set_index(["head", "role"]).usage[(1, "first")] == pytest.approx(1.0)


def test_heads_built_for_one_role_each_specialise():
    result = score(two_heads(), endpoint_roles())
    assert result.specialisation >= 0.999
    assert result.mechanisms == ("divided", "divided")
    np.testing.assert_allclose(result.usage, np.eye(2), atol=1e-3)
    np.testing.assert_allclose(result.p, np.eye(2) / 2, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_heads_that_all_do_the_same_do_not_specialise_at_all(dtype):
    result = score(duplicate_heads(two_heads(dtype=dtype)), endpoint_roles())
    assert (result.specialisation, result.separation) == (0.0, 0.0)
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
    assert result.separation == 0.0


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


def test_two_heads_may_share_a_role():
    result = score(doubled(), endpoint_roles())
    assert result.specialisation >= 0.999
    assert result.mechanisms == ("redundant", "redundant")
    np.testing.assert_allclose(result.copies, 2.0, atol=1e-3)
    np.testing.assert_allclose(result.usage, np.tile(np.eye(2), (2, 1)), atol=1e-3)


def test_one_role_has_coverage_only():
    result = score(two_heads(), endpoint_roles()[:1])
    assert (result.separation, result.specialisation) == (None, None)
    assert result.value == result.coverage
    assert result.coverage >= 0.999


def test_a_head_that_hardly_moves_anything_has_no_usage():
    values = torch.tensor([[1.0, 0.0, 0.0], [0.009, 0.0, 0.0]])
    role = role_at("first", torch.tensor([[0, 2], [1, 2]]), 1, 0, positions=2)
    model = even_model(values, n_ctx=2)
    louder = even_model(values * torch.tensor([[1], [2]]), n_ctx=2)
    with torch.no_grad():
        model.unembed.W_U[0, 0] = louder.unembed.W_U[0, 0] = 1.0
    np.testing.assert_allclose(score(model, [role]).usage, [[1.0], [0.0]])
    np.testing.assert_allclose(score(louder, [role]).usage, 1.0)


def test_examples_whose_roles_share_a_target_do_not_count():
    # a head per role, each moving from "its" token (0 or 1) only; token 2 plays both roles and would blur them
    model = even_model(torch.tensor([[1.0, 0.0, 1.0, 2.0, 0.0], [0.0, 1.0, 1.0, 0.0, 2.0]]), n_ctx=3)
    with torch.no_grad():
        model.unembed.W_U[0, 0] = 1.0
    inputs = torch.tensor([[0, 1, 1], [4, 3, 0], [2, 2, 2]])
    first, second = torch.tensor([0, 1, 0]), torch.tensor([1, 0, 0])
    roles = [role_at("a", inputs, 2, first, positions=3), role_at("b", inputs.clone(), 2, second, positions=3)]
    result = score(model, roles)
    assert result.counted == (2, 2)
    assert result.separation > 0.99
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
        model.unembed.W_U[0, 0] = 1.0
    role = role_at("the CLS reads", torch.tensor([[0, 1], [1, 1]]), 2, 0, positions=3)
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
    assert "2 models (untrained)" in result.render(level).svg
    assert "divided" in figure.svg
    assert "coverage" in score(two_heads(), endpoint_roles()[:1]).render(level).svg


def test_attention_with_negative_weights_counts_by_its_size():
    plan = {"n_layers": 1, "n_heads": 1, "d_model": 2, "d_head": 1, "n_ctx": 3, "d_vocab": 4, "attn_only": True}
    part = {"blocks.0.attn": {"part": "MappedClsAttention", "map": "linear"}}
    model = build(Architecture({**plan, "normalization_type": None, "use_attn_scale": False}, part))
    with torch.no_grad():
        model.embed.W_E[:, 0] = torch.tensor([-3.0, 1.0, 0.0, -5.0])
        model.embed.W_E[:, 1] = 1.0
        attention = model.blocks[0].attn
        attention.b_Q[0, 0] = attention.W_K[0, 0, 0] = attention.W_V[0, 1, 0] = attention.W_O[0, 0, 0] = 1.0
        model.unembed.W_U[0, 0] = 1.0
    # scores -3 or -5 and 1 or 0 are the weights; every token has the value 1; the last position does not see itself
    inputs = torch.tensor([[0, 1, 2], [3, 1, 2], [0, 2, 2], [3, 2, 2]])
    result = score(model, [role_at("first", inputs, 2, 0, positions=3)])
    # variances 1 and 1/4
    np.testing.assert_allclose(result.usage, [[(0.8 - 0.5) / 0.5]], rtol=1e-5)


MECHANISMS = {
    "switching heads": (endpoint_model(), 1.0, ("divided", "divided"), (1.0, 1.0)),
    "a loud head that nobody reads": (endpoint_model(third="unread"), 1.0, ("divided", "divided"), (1.0, 1.0)),
    "an even head of 30 %": (endpoint_model(third="uniform"), 0.977, ("divided", "divided"), (0.978, 0.978)),
    "a third head that always reads u": (endpoint_model(third="u"), 1.0, ("divided", "divided"), (1.0, 0.2)),
    "unread": (endpoint_model(read=False), 0.0, ("unread", "unread"), (0.0, 0.0)),
    "copies of unequal size": (endpoint_model(loudness=(0.7, 0.3)), 1.0, ("divided", "divided"), (1.0, 1.0)),
    "each head twice": (doubled(endpoint_model()), 1.0, ("redundant", "redundant"), (1.0, 1.0)),
    "default and override x1.5": (overridden(1.5), 0.0, ("always on", "divided"), (1.0, 0.692)),
    "default and override x3": (overridden(3), 0.0, ("always on", "divided"), (1.0, 0.9)),
    "default and override x10": (overridden(10), 0.0, ("always on", "divided"), (1.0, 0.990)),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_known_mechanisms_are_named(name):
    model, figure, mechanisms, purity = MECHANISMS[name]
    result = score(model, endpoint_roles())
    assert result.specialisation == pytest.approx(figure, abs=0.002)
    assert result.mechanisms == mechanisms
    np.testing.assert_allclose(result.purity, purity, atol=0.002)


@pytest.mark.parametrize("leak", [0.02, 0.05, 0.1, 0.2, 0.4, 0.5])
def test_a_leak_costs_its_amplitude(leak):
    result = score(endpoint_model(leak=leak), endpoint_roles())
    assert result.specialisation == pytest.approx(1 - leak, abs=1e-3)
    assert result.purity[0] == pytest.approx(1.0)


def test_default_and_override_answers_right_and_is_seen_all_the_same():
    model, (inputs, target, _, _) = overridden(1.5), arcs()
    assert torch.equal(model(inputs)[:, -1].argmax(-1), target)
    result = score(model, endpoint_roles(), causal=True)
    # without head 1 the first end is named whatever is asked for: half as loud as nothing else, off the right answer
    assert result.causal.foreign[1] > 0.3
    assert result.causal.foreign[0] == pytest.approx(0.0, abs=1e-12)


def previous_head():
    """One head that reads the token before, at every position."""
    model = random_model(scale=0.0, n_layers=1, n_heads=1, d_model=12, d_head=12)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E[:, :7] = torch.eye(7)
        model.pos_embed.W_pos[:, 7:] = torch.eye(5)
        attention = model.blocks[0].attn
        attention.W_Q[0] = 60 * torch.eye(12)
        attention.W_K[0, 7:, 7:] = torch.eye(5).roll(1, 1)
        attention.W_V[0, :7, :7] = attention.W_O[0, :7, :7] = torch.eye(7)
        model.unembed.W_U[:7] = torch.eye(7)
    return model


def test_one_head_for_both_roles_is_shared():
    roles = [role_at(str(query), tokens(40), query, query - 1, positions=5) for query in (1, 3)]
    result = score(previous_head(), roles)
    assert result.mechanisms == ("shared", "shared")
    assert (result.separation, result.specialisation) == (0.0, 0.0)
    np.testing.assert_allclose(result.usage, 1.0)


def test_a_target_that_is_the_same_in_every_query_is_still():
    inputs = tokens(40)
    inputs[:, 0] = 3
    roles = [role_at(str(query), inputs, query, query - 1, positions=5) for query in (1, 3)]
    result = score(previous_head(), roles)
    assert result.mechanisms == ("still", "divided")
    assert (result.coverage, result.specialisation, result.mechanism) == (0.0, 0.0, "still")
    single = score(
        previous_head(),
        [replace(role, inputs=inputs[:1], queries=role.queries[:1], targets=role.targets[:1]) for role in roles],
    )
    assert single.mechanisms == ("still", "still")
    silent = score(even_model(torch.zeros(2, 2), n_ctx=2), [role_at("none", torch.tensor([[0, 1]]), 1, 0, positions=2)])
    assert (silent.coverage, silent.mechanisms) == (0.0, ("none",))


def loops(model, roles, forms):
    """moved, rest and stray of `score`, one query, head and key at a time, from the model's own cache."""
    found = np.zeros((3, model.cfg.n_layers * model.cfg.n_heads, len(roles)))
    for column, role in enumerate(roles):
        read = torch.stack([r.targets & r.queries[..., None] for r in roles if r.inputs is role.inputs]).any(0)
        _, cache = model.run_with_cache(role.inputs)
        for layer, block in enumerate(model.blocks):
            bias = block.attn.b_V + torch.stack([block.ln1.b @ W for W in block.attn.W_V])
            for head in range(model.cfg.n_heads):
                kinds = [[], [], []]
                for e, q in role.queries.nonzero().tolist():
                    parts = [torch.zeros(model.cfg.d_head, dtype=torch.float64) for _ in range(3)]
                    for k in range(role.inputs.shape[1]):
                        value = cache["v", layer][e, k, head] - bias[head]
                        move = cache["pattern", layer][e, head, q, k] * value
                        for kind, counts in enumerate((role.targets[e, q, k], ~role.targets[e, q, k], ~read[e, q, k])):
                            parts[kind] += move * counts
                    for kind, part in zip(kinds, parts, strict=True):
                        kind.append(part)
                for kind, rows in enumerate(kinds):
                    z = torch.stack(rows) - torch.stack(rows).mean(0)
                    found[kind, layer * model.cfg.n_heads + head, column] = (z @ forms[layer][head] * z).sum() / len(z)
    return found


def jacobian_forms(model, roles):
    """E[J^T J] per layer and head, from whole Jacobians of the centred logits."""
    forms = [torch.zeros(model.cfg.n_heads, model.cfg.d_head, model.cfg.d_head) for _ in model.blocks]
    for role in roles:
        places = role.queries.nonzero().tolist()
        for layer in range(model.cfg.n_layers):
            for e, q in places:

                def centred(z, role=role, layer=layer, e=e, q=q):
                    def put(value, hook):
                        value = value.clone()
                        value[0, q] = value[0, q] + z
                        return value

                    logits = model.run_with_hooks(
                        role.inputs[e : e + 1], fwd_hooks=[(f"blocks.{layer}.attn.hook_z", put)]
                    )
                    return (logits - logits.mean(-1, keepdim=True)).flatten()

                start = torch.zeros(model.cfg.n_heads, model.cfg.d_head, dtype=torch.float64)
                J = torch.autograd.functional.jacobian(centred, start, vectorize=True)
                forms[layer] = forms[layer] + torch.einsum("ohd,ohe->hde", J, J) / len(places) / len(roles)
    return forms


def apart_and_together(seed=0):
    """Three roles: two at one query of the same inputs, one at another query of other inputs."""
    inputs, others = tokens(6, seed=seed), tokens(5, seed=seed + 1)
    near, far = (role_at(name, inputs, 4, at, positions=5) for name, at in (("near", 3), ("far", 0)))
    return [near, far, role_at("other", others, 3, 1, positions=5)]


def test_energies_are_those_of_loops_over_queries_and_keys():
    model = random_model(normalization_type="LN", attn_only=False, seed=3)
    roles = apart_and_together()
    forms = jacobian_forms(model, roles)
    exact = read_metric(model, roles, probes=200, seed=1)
    for layer in range(2):
        error = (exact.z[layer] - forms[layer]).norm() / forms[layer].norm()
        assert error < 0.15
    assert exact.centred == (True, True)
    result = score(model, roles, metric=replace(exact, z=tuple(form.double() for form in forms)))
    with torch.no_grad():
        moved, rest, stray = loops(model, roles, forms)
    np.testing.assert_allclose(result.moved, moved, rtol=1e-9)
    np.testing.assert_allclose(result.stray, stray, rtol=1e-9)
    chance = np.array([1 / 5, 1 / 5, 1 / 4])
    silent = moved + rest < 1e-4 * (moved + rest).max(0)
    usage = np.where(silent, 0, np.clip((moved / (moved + rest) - chance) / (1 - chance), 0, 1))
    np.testing.assert_allclose(result.usage, usage, atol=1e-9)
    apart = np.maximum(stray[:, 0], stray[:, 1])
    quiet = [stray[:, 2] / moved[:, 0], stray[:, 2] / moved[:, 1], apart / moved[:, 2]]
    np.testing.assert_allclose(result.quiet, np.clip(1 - np.sqrt(np.stack(quiet, 1)), 0, 1), atol=1e-9)


def test_with_one_output_at_the_last_position_one_backward_pass_is_exact():
    plan = {"n_layers": 1, "n_heads": 2, "d_model": 4, "d_head": 2, "n_ctx": 4, "d_vocab": 5, "d_vocab_out": 1}
    model = build(Architecture({**plan, "attn_only": True, "normalization_type": "LNPre"}), dtype=torch.float64)
    initialise(model, scale=0.7, seed=2)
    role = role_at("first", tokens(6, positions=4, vocabulary=5), 3, 0)
    (found,) = read_metric(model, [role]).z
    J = []
    for e in range(6):

        def output(z, e=e):
            def put(value, hook):
                value = value.clone()
                value[0, 3] = value[0, 3] + z
                return value

            return model.run_with_hooks(role.inputs[e : e + 1], fwd_hooks=[("blocks.0.attn.hook_z", put)])[0, 3, 0]

        J.append(torch.autograd.functional.jacobian(output, torch.zeros(2, 2, dtype=torch.float64)))
    expected = torch.stack([torch.einsum("hd,he->hde", each, each) for each in J]).mean(0)
    torch.testing.assert_close(found, expected)


GAUGES = {
    "order and bases": lambda model, seed: disguised(model, seed=seed, order=[2, 0, 1]),
    "bias of values": lambda model, seed: shift_value_bias(model, 10.0, seed=seed),
    "bias of keys": lambda model, seed: shift_key_bias(model, 3.0, seed=seed),
    "mean of W_O": lambda model, seed: shift_written_mean(model, 3.0, seed=seed),
    "folded norms": lambda model, seed: fold_norms(model),
    "all logits": lambda model, seed: shift_logits(model, 3.0, seed=seed),
}


@pytest.mark.parametrize("gauge", GAUGES)
@given(seeds)
@settings(max_examples=4, deadline=None)
def test_every_figure_is_blind_to_gauges(gauge, seed):
    model = random_model(seed=seed, n_heads=3, normalization_type="LN", attn_only=seed % 2 == 0)
    roles = apart_and_together(seed)
    assert_same_figures(score(model, roles, causal=True), score(GAUGES[gauge](model, seed), roles, causal=True), gauge)


@pytest.mark.parametrize("name", ["switching heads", "default and override x3", "an even head of 30 %"])
def test_constructed_models_are_blind_to_gauges(name):
    model, roles = MECHANISMS[name][0], endpoint_roles()
    before = score(model, roles, causal=True)
    for changed in (shift_value_bias(model, 10.0), shift_key_bias(model, 3.0), shift_logits(model, 2.0)):
        assert_same_figures(before, score(changed, roles, causal=True), "")


def assert_same_figures(before, after, gauge):
    rows = slice(None) if gauge != "order and bases" else [3 * layer + head for layer in range(2) for head in (2, 0, 1)]
    for name in ("moved", "stray", "p", "usage", "quiet"):
        want = getattr(before, name)[rows]
        np.testing.assert_allclose(getattr(after, name), want, atol=1e-10 * max(1.0, np.abs(want).max()), err_msg=name)
    for name in ("purity", "copies", "separation", "coverage", "specialisation"):
        np.testing.assert_allclose(getattr(after, name), getattr(before, name), atol=1e-10, err_msg=name)
    for name in ("carried_on", "foreign", "crossing"):
        one, other = (getattr(each.causal, name) for each in (before, after))
        np.testing.assert_allclose(other, one, atol=1e-10 * max(1.0, np.abs(one).max()), err_msg=name)
    assert after.mechanisms == before.mechanisms


def test_the_causal_check_worked_by_hand():
    model, roles = endpoint_model(), endpoint_roles()
    exact = hold_heads(model, roles, [[(0, 0)], [(0, 1)]])
    np.testing.assert_allclose(exact.carried_on, 0.0, atol=1e-12)
    np.testing.assert_allclose(exact.foreign, 0.0, atol=1e-12)
    np.testing.assert_allclose(exact.crossing, np.eye(2), atol=1e-12)
    # each head twice: without one of the copies half of what is added stays, a quarter of the energy is lost
    half = hold_heads(doubled(model), roles, [[(0, 0)], [(0, 1), (0, 3)]])
    np.testing.assert_allclose(half.carried_on, [0.5, 0.0], atol=1e-12)
    np.testing.assert_allclose(half.crossing, [[0.25, 0.0], [0.0, 1.0]], atol=1e-12)
    nobody = hold_heads(model, roles, [[], []]).to_json()
    assert nobody["carried_on"] == [None, None]


def test_chance_is_that_of_the_hardest_source():
    sources = {"nothing": [duplicate_heads(two_heads())], "divided": lambda seed: two_heads(M=8.0 + seed)}
    level = chance(sources, endpoint_roles(), seeds=3)
    assert (level.source, level.count) == ("divided", 3)
    said = level.to_dict()
    assert list(said) == ["median", "p95", "max", "seeds", "source", "sources"]
    assert said["max"] == level.max == max(level.values) > 0.99
    assert said["sources"]["nothing"] == {"median": 0.0, "p95": 0.0, "max": 0.0, "seeds": 1}
    with pytest.raises(ValueError, match="at least one model from 'nothing'"):
        chance({"nothing": []}, endpoint_roles())
    with pytest.raises(ValueError, match="at least one source"):
        chance({}, endpoint_roles())


def test_a_stored_score_knows_its_definition():
    result = score(two_heads(), endpoint_roles())
    now = stored_score(json.loads(json.dumps(result.to_json())))
    assert (now.specialisation, now.definition, now.note) == (result.specialisation, 2, "")
    first = stored_score({"specialisation": 1.0, "separation": 1.0, "coverage": 1.0, "roles": ["a"], "usage": [[1.0]]})
    assert (first.specialisation, first.definition) == (1.0, 1)
    assert "not to be compared with definition 2" in first.note
    assert require_one_definition([result, now]) == 2
    with pytest.raises(ValueError, match=r"2 definitions \(1, 2\)"):
        require_one_definition([result, first])
    with pytest.raises(ValueError, match="not a stored score: it has no 'roles'"):
        stored_score({"alignment": 1.0})
    with pytest.raises(ValueError, match="definition 3"):
        stored_score(first.__dict__ | {"definition": 3})


def test_weights_that_are_not_finite_are_refused():
    model = two_heads()
    with torch.no_grad():
        model.blocks[0].attn.W_V[0, 0, 0] = float("nan")
    with pytest.raises(ValueError, match="W_V"):
        score(model, endpoint_roles())
