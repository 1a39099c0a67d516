"""The benchmark's records, on a small case: what is compared is equal as far as it says."""

from headlab.analyses.bench.xor import XorCase, measure
from headlab.analyses.study.xor.scale import measure as one_step


def test_brute_force_agrees_and_sampling_keeps_its_error():
    exact = measure(XorCase(12, None), 1)
    assert exact["max_difference"] < 1e-12
    assert exact["peer"] == "all 2^12 inputs"
    sampled = measure(XorCase(16, 0.2), 1)
    assert 0.05 < sampled["max_difference"] < 0.4
    for case in (exact, sampled):
        assert set(case["ratio"]) == {"min", "median", "max"}
        assert case["ratio"]["min"] > 0
        assert case["work"]["ours"] < 2.5 * case["work"]["floor"]
        assert case["peak_memory"] > 0


def test_one_timed_step_says_what_it_did():
    found = one_step(2000, 48, 0)
    assert (found.bits, found.width, found.seed) == (2000, 48, 0)
    assert found.one_to_one
    assert found.loss < 1e-3
    assert found.step_seconds > 0
