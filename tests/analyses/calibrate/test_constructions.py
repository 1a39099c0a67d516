"""The constructions with a backup and with a constant carrier compute what the plain ones compute."""

import pytest
import torch

from headlab.analyses.calibrate.tasks import SETTINGS
from headlab.models.enlarged import enlarged
from headlab.models.esp.backup import backup
from headlab.models.esp.carrier import carrier
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask
from headlab.models.retrieval.backup import backup as retrieval_backup
from headlab.models.retrieval.family import Family, sum_of_maxima
from headlab.models.retrieval.task import RetrievalTask
from headlab.models.xor.constructed import limit
from headlab.models.xor.task import XorTask


def outputs(rung):
    with torch.no_grad():
        return rung.model(rung.inputs)[:, list(rung.read)]


@pytest.mark.parametrize("task", SETTINGS)
def test_a_carrier_changes_no_answer(task):
    setting = SETTINGS[task]()
    assert (outputs(setting.carrier_rung()) - outputs(setting.rung())).abs().max() < 1e-9


@pytest.mark.parametrize("task", ["tree", "xor", "retrieval"])
def test_a_backup_changes_no_answer_with_the_first_head_alive_or_silent(task):
    setting = SETTINGS[task]()
    rung = setting.backup_rung()
    plain = (setting.smaller() if setting.smaller else setting).rung()
    bar = 1e-2 if task == "retrieval" else 1e-5
    assert (outputs(rung) - outputs(plain)).abs().max() < bar
    with torch.no_grad():
        rung.model.blocks[0].attn.W_O[0] = 0.0
    assert (outputs(rung) - outputs(plain)).abs().max() < bar
    with torch.no_grad():
        rung.model.blocks[1].attn.W_O[0] = 0.0
    assert (outputs(rung) - outputs(plain)).abs().max() > 0.5


def test_an_enlarged_model_is_the_same_function_with_room():
    built = limit(XorTask(4, (0, 2)), dtype="float64")
    inputs = XorTask(4, (0, 2)).examples().inputs.double()
    model, design = enlarged(
        built.model, built.architecture, heads=2, width=3, head_width=1, before=1, after=1, neurons=5
    )
    assert (model.cfg.n_layers, model.cfg.n_heads, model.cfg.d_mlp) == (3, 4, 5)
    assert set(design.parts) >= {"blocks.0.attn", "blocks.1.attn", "blocks.2.attn"}
    assert torch.allclose(model(inputs)[:, -1], built.model(inputs)[:, -1], atol=1e-12)


def test_wrong_requests_are_one_sentence():
    induction = EspTask(read_graph("complete:3"), induction=True)
    for made in (backup, carrier):
        with pytest.raises(ValueError, match="without the induction form"):
            made(induction)
    sums = sum_of_maxima(2, 3)
    whole = RetrievalTask(Family(3, "projection", sums.vectors, sums.outer))
    with pytest.raises(ValueError, match="gate"):
        retrieval_backup(whole)
