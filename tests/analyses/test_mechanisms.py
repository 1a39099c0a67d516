"""How training divides work: the counts on models that are known, and the record that ships."""

import json

import pytest

from headlab.analyses.mechanisms import RECORD, record, row
from headlab.interp.roles import DEFINITION
from tests.interp.division_models import doubled, endpoint_model, overridden
from tests.interp.played import endpoint_roles


def test_known_models_are_counted_by_mechanism():
    models = [endpoint_model(), overridden(3.0), overridden(10.0), doubled(endpoint_model())]
    found = row("by hand", models, endpoint_roles(), [1.0, 1.0, 0.5, 1.0])
    assert {name: each["count"] for name, each in found["mechanisms"].items()} == {
        "always on": 2,
        "redundant": 1,
        "divided": 1,
    }
    assert found["mechanisms"]["always on"]["low"] < 0.5 < found["mechanisms"]["always on"]["high"]
    assert (found["seeds"], found["right"]) == (4, 3)
    assert found["quiet"]["median"] == pytest.approx(0.5)
    assert found["by_seed"][1]["mechanism"] == ["always on", "divided"]
    json.dumps(record([found]))


def test_the_record_says_what_made_it_and_bears_its_counts_out():
    held = json.loads(RECORD.read_text(encoding="utf-8"))
    assert held["definition"] == DEFINITION
    assert {"command", "date", "versions"} <= set(held)
    assert len({each["training"] for each in held["rows"]}) == len(held["rows"]) == 5
    for each in held["rows"]:
        assert sum(kind["count"] for kind in each["mechanisms"].values()) == each["seeds"] == len(each["by_seed"])
