import pytest
import torch

from headlab.analyses.edge_recovery import claim, measure, redrawn
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask


@pytest.fixture(scope="module")
def found():
    return measure(
        variants=["two-head"],
        sinks=[3.0, 16.0],
        kinds=["resample:selector", "zero"],
        methods=["exact", "eap", "eap-ig-inputs"],
        noises=[0.01],
        draws=2,
        vertices=3,
    )


def test_exact_patching_finds_every_constructed_circuit(found):
    assert found.lowest_auroc(method="exact", noise=0.0) == 1.0
    assert min(cell.recovery.separation for cell in found.select(method="exact", sink=16.0, noise=0.0)) > 10
    assert all(cell.smallest_ratio == 1.0 for cell in found.select(method="exact"))
    assert len(found.cells) == 3 * (2 * 2 + 2)


def test_gradient_estimates_are_too_small_where_softmax_is_saturated(found):
    soft, hard = (
        min(cell.smallest_ratio for cell in found.select(method="eap", sink=sink, noise=0.0)) for sink in (3.0, 16.0)
    )
    assert soft > 0.1
    assert hard < 1e-4


def test_the_claim_has_its_figures(found):
    row = claim(found, "headlab study esp")
    assert row.id == "B11"
    assert row.verdict == "holds"
    assert row.measured["lowest_auroc_exact"] == 1.0
    assert row.measured["random_auroc"] == pytest.approx(0.5, abs=0.05)
    assert row.seeds == 2
    frame = found.to_frame()
    assert len(frame) == len(found.cells)
    assert frame.separation.notna().all()


def test_one_slot_is_redrawn_and_no_other():
    task = EspTask(read_graph("complete:5"))
    examples = task.examples()
    for position, slot in ((0, "u"), (1, "v"), (2, "selector")):
        changed = redrawn(task, examples, slot, seed=1) != examples.inputs
        assert torch.equal(changed, torch.arange(4).expand(len(examples), -1) == position)
    with pytest.raises(KeyError, match="no slot 'query'"):
        redrawn(task, examples, "query", seed=1)
