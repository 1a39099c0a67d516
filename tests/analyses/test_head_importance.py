"""Heads ablated alone and in pairs, on models whose answer is known."""

import pytest

from headlab.analyses.claims import load_claims
from headlab.analyses.study.esp.evidence import evidence
from headlab.analyses.study.esp.importance import pairs_of
from headlab.analyses.study.record import Record, Table, to_json
from headlab.models.esp.backup import backup
from headlab.models.esp.constructed import construct
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask

METRICS = ("accuracy", "logit_difference")


@pytest.fixture(scope="module")
def task():
    return EspTask(read_graph("complete:4"))


def excess(row):
    return row["pair_loss"] - row["first_loss"] - row["second_loss"]


def verdict(rows):
    """The verdict of E13 where these rows are those of two learned heads, three times."""
    table = Table([{"model": "two learned heads", "number": number, **row} for number in range(3) for row in rows])
    values = evidence(Record({"importance": to_json({"importance": table})}))["E13"].values
    return load_claims()["E13"].rule.judge(values)


def test_two_heads_of_different_roles_act_independently(task):
    rows = list(pairs_of(construct(task, "two-head").model, task, kinds=["zero"], metrics=METRICS))
    assert [excess(row) for row in rows] == pytest.approx([0.0, 0.0], abs=1e-5)
    assert [(row["first"], row["second"]) for row in rows] == [("0.0", "0.1")] * 2
    assert verdict(rows) == "not reached"


def test_a_backup_is_underestimated_one_at_a_time(task):
    rows = list(pairs_of(backup(task).model, task, kinds=["zero"], metrics=["accuracy"]))
    (pair,) = [row for row in rows if (row["first"], row["second"]) == ("0.0", "1.0")]
    assert excess(pair) == pytest.approx(0.5)
    assert verdict([pair]) == "holds"
    assert verdict([pair | {"first_loss": 0.5, "second_loss": 0.5}]) == "fails"


def test_a_single_head_has_no_pair():
    task = EspTask(read_graph("tournament:4"))
    with pytest.raises(ValueError, match="no pair"):
        list(pairs_of(construct(task, "one-head-dag").model, task, kinds=["zero"], metrics=["accuracy"]))
