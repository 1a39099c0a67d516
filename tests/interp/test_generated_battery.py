"""At least 10 000 cells of random models, sweeps and ablations against hooks set by hand; see battery.py."""

import pytest
import torch

from tests.interp.battery import TOLERANCE, battery

CELLS, PARTS = 10_000, 10


@pytest.mark.parametrize("part", range(PARTS))
def test_every_cell_equals_hooks_set_by_hand(part):
    report = battery(CELLS // PARTS, seed=part)
    assert not report.failures, "\n".join(report.failures)
    assert report.cells >= CELLS // PARTS
    assert report.worst[torch.float64] <= 1e-10
    assert report.engines["cone"] > report.engines["expand"] > 0


def test_the_battery_tells_a_wrong_number():
    report = battery(1, seed=0)
    right = torch.tensor([[[1.0]]], dtype=torch.float64)
    report.compare(right + 2 * TOLERANCE[torch.float64], right, torch.float64, "one cell")
    report.compare(right * torch.nan, right, torch.float64, "another")
    assert len(report.failures) == 2
