import torch

from headlab.analyses.bench.training import TrainingCase, difference, measure, one_by_one, together

CASE = TrainingCase("complete:5", seeds=2, steps=5, quick_steps=2)


def test_both_sides_have_the_same_loss_at_every_step():
    made = CASE.plan(5)
    assert difference(CASE, made) < 1e-12
    ours, _ = together(CASE, made, torch.float64)
    assert ours.shape == one_by_one(CASE, made, torch.float64)[0].shape == (6, 2)
    assert (ours[0] != ours[5]).all()


def test_a_case_is_reported_as_the_design_says():
    found = measure(CASE, quick=True)
    assert set(found["ratio"]) == {"min", "median", "max"}
    assert found["ratio"]["min"] > 0
    assert found["max_difference"] < 1e-5
    assert found["case"] == "complete:5, 2 seeds, two heads, 2 steps, 1 pair"
    assert found["peak_memory"] > 0
