"""The benchmark of sweeps on a small graph, and how far a time is from its floor."""

import pytest
import torch

from headlab.analyses.bench.lower_bound import beside_floor, multiply_adds_per_second
from headlab.analyses.bench.sweep import run


def test_both_sides_reach_no_error_at_the_same_step():
    found = run(quick=True, graph="tournament:5", together=4)
    assert [case["max_difference"] for case in found["cases"]] == [0.0, 0.0]
    same, first = (case["ratio"] for case in found["cases"])
    assert same["median"] > first["median"] > 0
    assert "4 seeds together" in found["cases"][0]["case"]


def test_a_case_is_held_against_the_rate_of_the_machine():
    cases = [
        {"work": {"ours": 20.0, "floor": 10.0}, "seconds": 1.0},
        {"work": {"ours": 20.0, "floor": 10.0}, "seconds": 1.0, "dtype": "float64"},
        {"work": None, "seconds": 1.0},
    ]
    rates = beside_floor(cases)
    assert set(rates) == {"float32", "float64"}
    for case, dtype in zip(cases, rates, strict=False):
        assert case["floor"]["seconds"] * rates[dtype] == pytest.approx(10.0)
        assert case["floor"]["times"] * case["floor"]["seconds"] == pytest.approx(1.0)
    assert cases[2]["floor"] is None
    assert 1e7 < multiply_adds_per_second(torch.float32) < 1e14
