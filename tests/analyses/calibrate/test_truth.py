"""The truth of every rung is certified by enumeration, and a wrong statement of it is found out."""

from dataclasses import replace

import pytest
import torch

from headlab.analyses.calibrate.ladder import NAMES, PROVED, rung, shaken
from headlab.analyses.calibrate.rung import blind
from headlab.analyses.calibrate.tasks import SETTINGS
from headlab.analyses.calibrate.truth import certify
from headlab.interp.circuits import END, START, Edge
from headlab.interp.model import untouched
from headlab.interp.wiring import wire

CHEAP = ("esp", "xor", "retrieval")
MUTATED = dict.fromkeys(NAMES, ("esp", "zero")) | {"as built": ("tree", "mean")}


@pytest.mark.parametrize("task", SETTINGS)
@pytest.mark.parametrize("name", [name for name in PROVED if name != "backup head"])
def test_the_theorems_truth_is_upheld_by_enumeration(task, name):
    made = blind(PROVED[name](SETTINGS[task]()), 5)
    for kind in made.kinds:
        found = certify(made, kind)
        assert found.state == "proved", (kind, found.worst_true, found.worst_false)
        assert found.gap > 2
        assert not found.lost
        assert found.accuracy == 1.0


@pytest.mark.parametrize(("task", "kind"), [(t, k) for t in CHEAP for k in ("zero", "mean")] + [("tree", "zero")])
def test_a_backups_truth_is_upheld_alone_and_in_its_contexts(task, kind):
    made = blind(SETTINGS[task]().backup_rung(), 2)
    found = certify(made, kind)
    assert found.state == "proved"
    if made.contexts.get(kind):
        alone = certify(replace(made, contexts={}), kind)
        assert alone.state == "void"  # the backup's own edges do not act alone
        assert alone.smallest_true < 1e-2 * found.smallest_true


@pytest.mark.parametrize("name", NAMES)
def test_a_true_edge_that_is_dropped_is_missed(name):
    task, kind = MUTATED[name]
    made = rung(task, name, 0)
    assert certify(made, kind).holds
    for dropped in sorted(made.truth[kind])[:: max(1, len(made.truth[kind]) // 3)]:
        truth = {**made.truth, kind: made.truth[kind] - {dropped}}
        assert certify(replace(made, truth=truth), kind).state == "void"


def test_a_false_edge_that_is_called_true_is_found_out():
    made = rung("xor", "shaken", 0)
    truth = {**made.truth, "mean": made.truth["mean"] | {Edge(START, END, "end", made.read[0])}}
    assert certify(replace(made, truth=truth), "mean").state == "void"


def test_contested_edges_act_and_are_neither_true_nor_false():
    made = rung("esp", "cancelling pair", 0)
    found = certify(made, "mean")
    effect = dict(zip(found.edges, found.largest.tolist(), strict=True))
    assert found.holds
    assert min(effect[edge] for edge in made.contested["mean"]) > 0.1
    assert certify(replace(made, contested={}), "mean").state == "void"


def test_noise_that_breaks_an_answer_makes_a_cell_void():
    made = shaken(SETTINGS["xor"]().rung(), 0, size=1.0)
    assert certify(made, "mean").state == "void"


def test_under_zero_the_norm_edge_acts_although_it_carries_nothing():
    made = rung("esp", "RMSNorm", 0)
    norm = Edge(START, END, "end", 3)
    zero, mean = certify(made, "zero"), certify(made, "mean")
    assert float(zero.largest[zero.edges.index(norm)]) > 100
    assert float(mean.largest[mean.edges.index(norm)]) < 0.1
    assert norm in made.truth["zero"]
    assert norm not in made.truth["mean"]


@pytest.mark.parametrize("task", SETTINGS)
def test_order_bases_and_axes_leave_every_effect(task):
    made = SETTINGS[task]().rung()
    other = blind(made, 7)
    with torch.no_grad():
        difference = (made.model(made.inputs) - other.model(other.inputs)).abs().max()
    assert difference < 1e-9
    kind = made.kinds[-1]
    first, second = certify(made, kind), certify(other, kind)
    assert torch.allclose(first.largest.sort().values, second.largest.sort().values, atol=1e-8)
    with untouched(made.model), untouched(other.model):
        assert wire(made.model, made.inputs).nodes == wire(other.model, other.inputs).nodes


def test_unknown_names_list_what_there_is():
    with pytest.raises(KeyError, match="there are esp, tree, xor, retrieval"):
        rung("parity", "shaken")
    with pytest.raises(KeyError, match="there are as built"):
        rung("esp", "stirred")
