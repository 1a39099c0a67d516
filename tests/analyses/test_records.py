"""The record that ships: it draws, judges and tells what the package says, and names no machine."""

import json
import re
from importlib import import_module

import pytest

from headlab.analyses.claims import load_claims
from headlab.analyses.commands.claims import shipped_folder
from headlab.analyses.study.frame import Study
from headlab.analyses.study.record import key_of, read_record
from headlab.analyses.tasks import TASKS

STUDIES = sorted(path.name for path in shipped_folder().iterdir() if path.is_dir())


def study_of(name: str) -> Study:
    return import_module(f"headlab.analyses.study.{name}").STUDY


@pytest.mark.parametrize("name", STUDIES)
def test_the_ledger_is_what_the_record_says_today(name, tmp_path):
    study, folder = study_of(name), shipped_folder() / name
    options = TASKS[name].options.StudyOptions(out=tmp_path, record=folder)
    result = study.run(options)
    shipped = json.loads((folder / "results.json").read_text())
    assert shipped["claims"] == result["claims"]
    assert shipped["headline"] == result["headline"]
    assert (tmp_path / "index.html").stat().st_size < 600_000


@pytest.mark.parametrize("name", STUDIES)
def test_every_part_was_measured_by_this_plan(name, tmp_path):
    study, record = study_of(name), read_record(shipped_folder() / name / "record")
    plan = {part.name: part for part in study.plan(TASKS[name].options.StudyOptions(out=tmp_path))}
    assert set(record.parts) <= set(plan)
    for part, content in record.parts.items():
        key = key_of(name, part, plan[part].config, plan[part].version)
        assert content["key"] == key, f"the plan of {name} has changed: measure the part {part} again"
        assert content["cpu_seconds"] < 25 * 60


@pytest.mark.parametrize("name", STUDIES)
def test_no_part_names_a_machine_and_the_record_is_small(name):
    files = list((shipped_folder() / name).rglob("*.json"))
    assert sum(path.stat().st_size for path in files) < 1_000_000
    for path in files:
        assert not re.search(r'"/|/home/|/tmp/|/work/|/root', path.read_text()), path


def test_every_row_that_ships_is_a_claim():
    for name in STUDIES:
        rows = json.loads((shipped_folder() / name / "results.json").read_text())["claims"]
        assert {row["id"] for row in rows} <= {claim.id for claim in load_claims().values() if claim.system == name}
