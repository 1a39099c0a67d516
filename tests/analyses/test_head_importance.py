import pytest

from headlab.analyses.head_importance import claim, measure
from headlab.models.esp.backup import backup
from headlab.models.esp.constructed import construct
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask


@pytest.fixture(scope="module")
def found():
    task = EspTask(read_graph("complete:4"))
    models = {"two": [construct(task, "two-head").model] * 2, "backup": [backup(task).model]}
    return measure(task, models, kinds=["zero", "mean"])


def test_two_heads_of_different_roles_act_independently(found):
    for metric in ("accuracy", "logit_difference"):
        assert found.excess("two", "zero", metric).value == pytest.approx(0.0, abs=1e-5)
    assert claim(found, "headlab study esp", model="two").verdict == "not reached"


def test_a_backup_is_underestimated_one_at_a_time(found):
    assert found.excess("backup", "zero", "accuracy").value == pytest.approx(0.5)
    (row,) = [row for row in found.rows if (row.model, row.kind, row.metric) == ("backup", "zero", "accuracy")]
    assert row.pair == ((0, 0), (1, 0))
    assert row.sum_of_singles == pytest.approx(0.5)
    assert row.together == pytest.approx(1.0)
    held = claim(found, "headlab study esp", model="backup", kind="zero")
    assert held.verdict == "holds"
    assert held.measured["excess"] == pytest.approx(0.5)


def test_rows_are_tidy(found):
    frame = found.to_frame()
    assert len(frame) == 3 * 2 * 2
    assert set(frame[frame.model == "two"].pair) == {"0.0 0.1"}
    with pytest.raises(KeyError, match="nothing was measured"):
        found.excess("two", "resample", "accuracy")


def test_a_single_head_has_no_pair():
    task = EspTask(read_graph("tournament:4"))
    with pytest.raises(ValueError, match="no pair"):
        measure(task, {"one": [construct(task, "one-head-dag").model]})
