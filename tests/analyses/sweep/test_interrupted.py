"""Processes that are killed, and two of them at once: every run there once, with the figures of an unbroken sweep."""

import importlib.util
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("endurance", Path(__file__).with_name("endurance.py"))
endurance = importlib.util.module_from_spec(spec)
spec.loader.exec_module(endurance)

FILE = """
seeds = 8
together = 2
[[grid]]
task = "xor"
method = "plain"
steps = 60
bits = [32, 48]
width = 12
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweeps") / "short.toml"
    path.write_text(FILE)
    return path


def test_killed_and_taken_up_and_two_at_once(file, tmp_path):
    broken, both = tmp_path / "broken", tmp_path / "both"
    process = endurance.start(file, broken, "--workers", "1")
    assert endurance.kill_during(process, broken, 0.02, at_work=True)
    before = endurance.done(broken)
    assert 0 < before < 16
    last = endurance.finished(endurance.start(file, broken, "--workers", "1"))
    assert last["new"] == 16 - before
    pair = [endurance.start(file, both, "--workers", "1") for _ in range(2)]
    assert sum(endurance.finished(each)["new"] for each in pair) == 16
    assert endurance.figures(broken) == endurance.figures(both)
    assert len(endurance.figures(both)) == 16
