"""Roles of language models, by hand on short sequences, against loops and transformer-lens' head detector."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headlab.interp.errors import RequestError
from headlab.interp.language_roles import (
    duplicate_token_role,
    first_token_role,
    induction_role,
    name_mover_role,
    previous_token_role,
    repeated_tokens,
)
from headlab.interp.prompts import prompt_contrast
from headlab.models.hooked import Architecture, build, initialise


def targets_of(role):
    return {(e, q): {k for k in range(role.targets.shape[2]) if role.targets[e, q, k]}
            for e, q in role.queries.nonzero().tolist()}  # fmt: skip


def test_by_hand():
    tokens = torch.tensor([[7, 3, 7, 5, 3]])
    assert targets_of(previous_token_role(tokens)) == {(0, 1): {0}, (0, 2): {1}, (0, 3): {2}, (0, 4): {3}}
    assert targets_of(duplicate_token_role(tokens)) == {(0, 2): {0}, (0, 4): {1}}
    assert targets_of(induction_role(tokens)) == {(0, 2): {1}, (0, 4): {2}}
    assert targets_of(first_token_role(tokens)) == {(0, q): {0} for q in range(1, 5)}


def test_a_token_after_itself_is_not_its_own_target():
    assert targets_of(induction_role(torch.tensor([[4, 4, 4]]))) == {(0, 2): {1}}


@given(st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=1, max_size=4), st.integers(3, 6))
def test_against_a_loop(rows, length):
    tokens = torch.tensor(rows)
    mask = torch.arange(6).expand(len(rows), -1) < length
    expected: dict = {"duplicate": {}, "induction": {}, "previous": {}, "first": {}}
    for e, row in enumerate(rows):
        for q in range(length):
            found = {
                "duplicate": {k for k in range(q) if row[k] == row[q]},
                "induction": {k for k in range(1, q) if row[k - 1] == row[q]},
                "previous": {q - 1} - {-1},
                "first": {0} if q else set(),
            }
            for name, keys in found.items():
                if keys:
                    expected[name][e, q] = keys
    builders = {"duplicate": duplicate_token_role, "induction": induction_role, "previous": previous_token_role}
    for name, builder in {**builders, "first": first_token_role}.items():
        if expected[name]:
            assert targets_of(builder(tokens, mask)) == expected[name]
        else:
            with pytest.raises(RequestError, match="never played"):
                builder(tokens, mask)


def test_transformer_lens_detector_agrees_on_the_targets():
    """Its detection patterns mark the same cells, apart from its induction pattern's cell of the query itself."""
    from transformer_lens.head_detector import (
        get_duplicate_token_head_detection_pattern,
        get_induction_head_detection_pattern,
        get_previous_token_head_detection_pattern,
    )

    tokens = repeated_tokens(1, 9, 30, seed=3)
    theirs = {
        previous_token_role: get_previous_token_head_detection_pattern,
        duplicate_token_role: get_duplicate_token_head_detection_pattern,
        induction_role: get_induction_head_detection_pattern,
    }
    for ours, pattern in theirs.items():
        assert torch.equal(ours(tokens).targets[0], pattern(tokens).bool())


def test_a_name_mover_reads_the_answer():
    config = {"n_layers": 1, "n_heads": 1, "d_model": 8, "d_head": 8, "n_ctx": 8, "d_vocab": 12, "attn_only": True}
    model = build(Architecture({**config, "normalization_type": None, "act_fn": "relu"}))
    initialise(model, scale=0.5, seed=0)
    clean, corrupted = [[1, 2, 3, 2, 4], [1, 5, 2, 6]], [[1, 2, 3, 3, 4], [1, 5, 7, 6]]
    contrast = prompt_contrast(model, clean, corrupted, [2, 2], [3, 5], same_places=False)
    assert targets_of(name_mover_role(contrast)) == {(0, 4): {1, 3}, (1, 3): {2}}
    assert name_mover_role(contrast, negative=True).name == "negative name mover"
    absent = prompt_contrast(model, clean, corrupted, [9, 9], [3, 5], same_places=False)
    with pytest.raises(RequestError, match="does not occur"):
        name_mover_role(absent)


def test_repeated_tokens_repeat_and_leave_the_generator():
    before = torch.get_rng_state()
    tokens = repeated_tokens(4, 5, 20, repeats=3, bos=0, seed=1)
    assert tokens.shape == (4, 16)
    assert torch.equal(tokens[:, 1:6], tokens[:, 6:11])
    assert torch.equal(tokens[:, 1:6], tokens[:, 11:])
    assert all(len(set(row[1:6].tolist())) == 5 for row in tokens)
    assert torch.equal(before, torch.get_rng_state())
    with pytest.raises(RequestError, match="no such sequences"):
        repeated_tokens(1, 9, 8)
