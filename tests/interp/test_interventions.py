import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headlab.interp.interventions import KINDS, Intervention, donors, factor_table, replacement
from headlab.interp.model import activations
from tests.interp.hand_built import random_model, tokens


@given(st.integers(2, 40), st.integers(0, 5))
def test_no_example_is_its_own_donor(count, seed):
    drawn = donors(count, seed=seed)
    assert sorted(drawn.tolist()) == list(range(count))
    assert not (drawn == torch.arange(count)).any()


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(0, 5))
def test_matched_donors_share_the_level_and_differ_where_they_can(levels, seed):
    levels = torch.tensor(levels)
    drawn = donors(len(levels), seed=seed, levels=levels)
    assert torch.equal(levels[drawn], levels)
    alone = torch.tensor([(levels == level).sum() == 1 for level in levels])
    assert torch.equal(drawn == torch.arange(len(levels)), alone)


def test_draws_repeat_and_move_no_generator():
    state = torch.get_rng_state()
    first, again, other = donors(30, seed=1), donors(30, seed=1), donors(30, seed=2)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_other_data_are_drawn_without_repeats_where_there_are_enough():
    assert len(donors(20, seed=0, available=25).unique()) == 20
    assert donors(20, seed=0, available=3).max() <= 2


def test_a_level_without_donors_is_an_error():
    with pytest.raises(ValueError, match="no reference example has level 7"):
        donors(2, seed=0, available=1, levels=torch.tensor([1, 7]), donor_levels=torch.tensor([1]))


def test_levels_must_be_one_per_example():
    with pytest.raises(ValueError, match="give one per example"):
        donors(3, seed=0, levels=torch.tensor([0, 1]))


def test_replacements_are_what_they_are_called():
    activation, reference = torch.zeros(2, 3, 4), torch.arange(24.0).reshape(2, 3, 4)
    assert replacement("zero", activation).eq(0).all()
    assert torch.equal(replacement("patch", activation, reference), reference)
    assert torch.equal(replacement("mean", activation, reference)[1, 2], reference.mean((0, 1)))
    assert torch.equal(replacement("positional_mean", activation, reference)[1], reference.mean(0))
    swapped = replacement("resample", activation, reference, torch.tensor([1, 0]))
    assert torch.equal(swapped, reference.flip(0))


def test_mean_of_a_pattern_is_over_examples_only():
    pattern = torch.rand(4, 2, 3, 3)
    assert torch.equal(replacement("mean", pattern, pattern, positional=False)[0], pattern.mean(0))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "zero"])
def test_there_is_no_mean_without_saying_over_what(kind):
    with pytest.raises(ValueError, match=f"{kind} needs reference data"):
        Intervention(kind)
    with pytest.raises(ValueError, match=f"{kind} needs reference data"):
        replacement(kind, torch.zeros(1, 1, 1))


@pytest.mark.parametrize(
    ("kind", "shape", "told"),
    [
        ("positional_mean", (2, 4, 5), "same length"),
        ("patch", (3, 3, 5), "one source example per example: 3 for 2"),
        ("mean", (2, 3, 6), "the reference has shape"),
        ("resample", (2, 3, 5), "needs `drawn`"),
    ],
)
def test_reference_must_fit(kind, shape, told):
    with pytest.raises(ValueError, match=told):
        replacement(kind, torch.zeros(2, 3, 5), torch.zeros(shape))


def test_unknown_kind_lists_the_kinds():
    with pytest.raises(KeyError, match=r"unknown kind.*'noise'.*patch, zero, mean"):
        Intervention("noise")  # type: ignore[arg-type]


def test_matched_resample_needs_factors():
    with pytest.raises(ValueError, match="needs factors"):
        Intervention("matched_resample", tokens(3))


def test_values_come_from_the_reference_run_and_match_jointly():
    model, inputs = random_model(), tokens(8)
    name = "blocks.1.attn.hook_z"
    held = activations(model, inputs, [name])[1]
    factors = {"a": torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), "b": torch.tensor([0, 0, 1, 1, 0, 0, 1, 1])}
    matched = Intervention("matched_resample", inputs, 3, factors)
    drawn = matched.drawn(inputs)
    assert torch.equal(drawn, torch.tensor([1, 0, 3, 2, 5, 4, 7, 6]))
    assert torch.allclose(matched.values(model, inputs, held)[name], held[name][drawn])
    other = tokens(3, seed=5)
    theirs = activations(model, other, [name])[1][name]
    found = Intervention("positional_mean", other).values(model, inputs, held)[name]
    assert torch.allclose(found, theirs.mean(0).expand_as(found))
    with pytest.raises(ValueError, match="reference_factors"):
        Intervention("matched_resample", other, 0, factors).drawn(inputs)
    crossed = {"a": torch.tensor([1, 0]), "b": torch.tensor([0, 1])}
    with pytest.raises(ValueError, match="no reference example has level"):
        Intervention("matched_resample", tokens(2, seed=5), 0, factors, crossed).drawn(inputs)


def test_intervention_says_what_it_is():
    assert str(Intervention("zero")) == "zero"
    assert str(Intervention("resample", tokens(3), 7)) == "resample over 3 examples, seed 7"
    matched = Intervention("matched_resample", tokens(3), 1, {"selector": torch.zeros(3, dtype=torch.long)})
    assert str(matched) == "matched_resample over 3 examples matched on selector, seed 1"


def test_unknown_factor_lists_the_factors():
    with pytest.raises(KeyError, match="no factor 'y': there are x"):
        factor_table({"x": torch.zeros(2, dtype=torch.long)}, ["y"])
