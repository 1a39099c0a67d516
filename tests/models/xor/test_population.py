"""The closed forms against brute force over every input, and in the limits that are known by hand."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headlab.models.attention_maps import ATTENTION_MAPS, attention_map
from headlab.models.xor import moments, population


def every_input(bits: int) -> torch.Tensor:
    return torch.tensor(list(product((-1.0, 1.0), repeat=bits)), dtype=torch.float64)


def drawn(heads: int, bits: int, width: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    queries = 2 * torch.randn(heads, width, generator=generator, dtype=torch.float64)
    positions = torch.randn(bits, width, generator=generator, dtype=torch.float64)
    return queries, positions / positions.norm(dim=-1, keepdim=True)


def brute(queries: torch.Tensor, positions: torch.Tensor, targets: tuple[int, ...], kind: str):
    leaf = queries.clone().requires_grad_(True)
    inputs = every_input(positions.shape[0])
    output = -(inputs @ population.attention(leaf, positions, kind).T).prod(dim=-1)
    labels = -inputs[:, list(targets)].prod(dim=-1)
    value = ((output - labels) ** 2).mean()
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


@pytest.mark.parametrize("kind", ATTENTION_MAPS)
@pytest.mark.parametrize(("heads", "bits"), [(1, 6), (2, 5), (2, 12), (3, 4), (3, 10), (4, 10), (5, 8), (6, 8)])
def test_closed_form_equals_brute_force(heads: int, bits: int, kind: str) -> None:
    queries, positions = drawn(heads, bits, 5, seed=heads * 100 + bits)
    targets = tuple(range(bits - heads, bits))[::-1]
    expected, expected_gradient = brute(queries, positions, targets, kind)
    value, gradient = population.loss_and_gradient(queries, positions, targets, kind)
    scale = max(1.0, float(expected))  # unnormalised maps reach losses of 10^6, where 1e-12 is meant of the value
    assert abs(value - expected) / scale < 1e-12
    assert (gradient - expected_gradient).abs().max() / max(1.0, float(expected_gradient.abs().max())) < 1e-12


@settings(max_examples=25, deadline=None)
@given(heads=st.integers(2, 4), bits=st.integers(4, 9), seed=st.integers(0, 10**6))
def test_closed_form_equals_brute_force_anywhere(heads: int, bits: int, seed: int) -> None:
    queries, positions = drawn(heads, bits, 3, seed)
    targets = tuple(torch.randperm(bits, generator=torch.Generator().manual_seed(seed))[:heads].tolist())
    expected, expected_gradient = brute(queries, positions, targets, "softmax")
    value, gradient = population.loss_and_gradient(queries, positions, targets)
    assert abs(value - expected) < 1e-12
    assert (gradient - expected_gradient).abs().max() < 1e-12


def test_two_head_formula() -> None:
    weights = torch.softmax(torch.randn(2, 9, generator=torch.Generator().manual_seed(3), dtype=torch.float64), dim=-1)
    a, b = weights
    i, j = 4, 7
    formula = (a @ a) * (b @ b) + 2 * (a @ b) ** 2 - 2 * (a**2 * b**2).sum() - 2 * (a[i] * b[j] + a[j] * b[i]) + 1
    assert abs(population.loss(weights, (i, j)) - formula) < 1e-15


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 5, 6])
def test_known_values_of_one_hot_attention(heads: int) -> None:
    eye = torch.eye(8, dtype=torch.float64)
    targets = tuple(range(heads))
    assert population.loss(eye[:heads], targets) == 0.0  # each head on a target of its own
    assert population.loss(eye[1 : heads + 1], targets) == 2.0  # one head beside the targets: f is another parity
    together = eye[:1].expand(heads, 8)
    # all heads on one bit: f^2 is 1, and f agrees with the label only where that is the label itself
    assert abs(population.loss(together, targets) - (0.0 if heads == 1 else 2.0)) < 1e-8


@pytest.mark.parametrize(("heads", "monomials"), [(1, 1), (2, 3), (3, 12), (4, 77), (5, 684), (6, 8126)])
def test_the_expansion_of_one_sign_sums_to_one(heads: int, monomials: int) -> None:
    expansion = moments.squared_product_expansion(heads)
    assert len(expansion.coefficients) == monomials
    assert sum(expansion.coefficients) == 1  # d = 1: every power sum is 1 and so is every even moment of a sign


def test_a_batch_of_seeds_is_each_seed_alone() -> None:
    pairs = [drawn(3, 12, 4, seed) for seed in range(5)]
    queries, positions = (torch.stack(list(part)) for part in zip(*pairs, strict=True))
    value, gradient = population.loss_and_gradient(queries, positions, (1, 5, 11), "softmax")
    for seed, (query, position) in enumerate(pairs):
        alone, alone_gradient = population.loss_and_gradient(query, position, (1, 5, 11), "softmax")
        assert abs(value[seed] - alone) < 1e-14
        assert (gradient[seed] - alone_gradient).abs().max() < 1e-14


def test_the_order_of_heads_changes_nothing() -> None:
    queries, positions = drawn(4, 30, 6, 1)
    value, gradient = population.loss_and_gradient(queries, positions, (0, 3, 7, 29))
    swapped, swapped_gradient = population.loss_and_gradient(queries[[2, 0, 3, 1]], positions, (0, 3, 7, 29))
    assert abs(value - swapped) < 1e-14
    assert (gradient[[2, 0, 3, 1]] - swapped_gradient).abs().max() < 1e-15


def test_gradients_under_no_grad_and_none_left_behind() -> None:
    queries, positions = drawn(2, 10, 4, 0)
    queries.requires_grad_(True)
    with torch.no_grad():
        _, gradient = population.loss_and_gradient(queries, positions, (0, 1))
    assert gradient.abs().max() > 0
    assert queries.grad is None
    assert not gradient.requires_grad


def test_bad_requests_are_named() -> None:
    weights = torch.full((2, 5), 0.2, dtype=torch.float64)
    with pytest.raises(ValueError, match="2 heads for 3 targets"):
        population.loss(weights, (0, 1, 2))
    with pytest.raises(ValueError, match="laid out for 1 to 6"):
        moments.squared_product_expansion(7)
    with pytest.raises(KeyError, match="choose one of softmax"):
        population.attention(weights, weights, "sigmoid")


def test_masked_keys_get_no_weight() -> None:
    scores = torch.tensor([[1.0, 2.0, float("-inf")], [float("-inf")] * 3])
    for kind in ATTENTION_MAPS:
        weights = attention_map(scores, kind)
        assert weights[0, 2] == 0
        assert torch.equal(weights[1], torch.zeros(3))
        assert torch.isfinite(weights).all()
