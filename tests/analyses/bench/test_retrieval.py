import pytest

from headlab.analyses.bench import retrieval as bench_retrieval
from headlab.analyses.bench.retrieval import RetrievalCase, difference, measure


@pytest.mark.parametrize("encoder", ["linear", "mlp"])
def test_both_sides_have_the_same_losses(encoder: str) -> None:
    assert difference(RetrievalCase(6, encoder, seeds=2, steps=5, quick_steps=5), 5) < 1e-5


def test_a_case_is_reported_as_the_design_says(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measure(RetrievalCase(6, "linear", seeds=2, steps=9, quick_steps=2), quick=True)
    assert set(found["ratio"]) == {"min", "median", "max"}
    assert found["ratio"]["min"] > 0
    assert found["max_difference"] < 1e-5
    assert found["case"] == "T=6, linear encoder, four heads, 2 seeds, batch 128, 2 steps, 1 pair"
    assert found["peak_memory"] > 0
    monkeypatch.setattr(bench_retrieval, "CASES", (RetrievalCase(4, "linear", 1, 1, 1),))
    whole = bench_retrieval.run(quick=True)
    assert whole["name"] == "retrieval"
    assert len(whole["cases"]) == 1
