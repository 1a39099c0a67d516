"""Exact patching and gradient estimates on the constructed two-head circuits."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from headlab.analyses.claims import load_claims
from headlab.analyses.study.esp.edges import edges, redrawn
from headlab.analyses.study.esp.evidence import evidence
from headlab.analyses.study.frame import Work
from headlab.analyses.study.record import Record, to_json, to_plain
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask

CONFIG = {
    "variants": ["two-head"],
    "sinks": [3.0, 16.0],
    "kinds": ["resample:selector", "zero"],
    "methods": ["exact", "eap", "eap-ig-inputs"],
    "noises": [0.01],
    "draws": 2,
    "vertices": 3,
    "seed": 0,
}


@pytest.fixture(scope="module")
def measured():
    return edges(CONFIG, Work(Path()))


@pytest.fixture(scope="module")
def frame(measured):
    return pd.DataFrame(measured["edges"].rows)


def test_exact_patching_finds_every_constructed_circuit(frame):
    exact = frame[(frame.method == "exact") & (frame.noise == 0)]
    assert exact.auroc.min() == 1.0
    assert (frame[frame.method == "exact"].smallest_ratio == 1.0).all()
    assert len(frame) == 3 * (2 * 2 + 2)


def test_gradient_estimates_are_too_small_where_softmax_is_saturated(frame):
    eap = frame[(frame.method == "eap") & (frame.noise == 0)]
    soft, hard = (eap[eap.sink == sink].smallest_ratio.min() for sink in (3.0, 16.0))
    assert soft > 0.1
    assert hard < 1e-4


def test_the_claim_has_its_figures(measured):
    row = evidence(Record({"edges": to_json(measured)}))["B11"]
    values = to_plain(row.values)
    assert load_claims()["B11"].rule.judge(values) == "holds"
    assert values["auroc_exact"] == 1.0
    assert values["auroc_random"] == pytest.approx(0.5, abs=0.05)
    assert row.seeds == 2


def test_one_slot_is_redrawn_and_no_other():
    task = EspTask(read_graph("complete:5"))
    examples = task.examples()
    for position, slot in ((0, "u"), (1, "v"), (2, "selector")):
        changed = redrawn(task, examples, slot, seed=1) != examples.inputs
        assert torch.equal(changed, torch.arange(4).expand(len(examples), -1) == position)
    with pytest.raises(KeyError, match="no slot 'query'"):
        redrawn(task, examples, "query", seed=1)
