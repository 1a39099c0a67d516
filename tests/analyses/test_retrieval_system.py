"""Retrieval behind the commands: build, train, evaluate, and the requests that are refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headlab.analyses.options.common import Common
from headlab.analyses.options.retrieval import BuildOptions, TrainOptions
from headlab.analyses.systems import system
from headlab.interp.roles import score
from headlab.models.checkpoints import load
from headlab.models.outer import product
from headlab.models.retrieval.family import nearest_points

ROOM = system("retrieval")


def test_what_is_built_keeps_its_bound_after_loading(tmp_path: Path) -> None:
    built = ROOM.build(BuildOptions(tmp_path / "heads", coordinates=3, length=6, dtype="float64"))
    loaded = load(tmp_path / "heads")
    found = ROOM.evaluate(loaded, seed=5, count=200)
    assert (found["task"], found["samples"]) == ("retrieval", 200)
    assert 0 < found["max_error"] <= found["bound"] == built.metrics["bound"]
    assert found["nmse"] <= 1e-8
    peer = ROOM.constructed(loaded)
    assert peer is not None
    assert dict(peer.options) == loaded.metrics["options"]
    roles = ROOM.task(loaded).roles(count=64)
    assert score(loaded.model, roles).specialisation > 0.9  # type: ignore[operator]
    assert score(ROOM.untrained(loaded, 0), roles).specialisation < 0.5  # type: ignore[operator]


def test_fewer_heads_have_no_bound_and_memory_is_exact(tmp_path: Path) -> None:
    control = ROOM.build(BuildOptions(tmp_path / "control", heads=3))
    assert control.metrics["bound"] is None
    assert control.metrics["nmse"] > 0.1
    memory = ROOM.build(BuildOptions(tmp_path / "memory", variant="memorise", coordinates=2))
    assert memory.metrics["max_error"] <= 1e-5
    assert ROOM.evaluate(memory)["bound"] == 0.0


def test_a_target_may_come_from_a_file(tmp_path: Path) -> None:
    family = nearest_points(2, 5, product(2), sets=((0, 1), (2, 3, 4)))
    path = tmp_path / "target.json"
    path.write_text(json.dumps(family.options()))
    built = ROOM.build(BuildOptions(tmp_path / "out", target=path, dtype="float64"))
    assert ROOM.task(built).family == family
    assert built.metrics["max_error"] <= built.metrics["bound"]
    for text, says in (("{", "is not a JSON file"), ("{}", "lacks 'length'"), ("[1]", "does not describe a target")):
        path.write_text(text)
        with pytest.raises(ValueError, match=says):
            ROOM.build(BuildOptions(tmp_path / "bad", target=path))
    path.write_text(json.dumps({**family.options(), "sets": [[0, 1], []]}))
    with pytest.raises(ValueError, match="the position set S_1 is empty"):
        ROOM.build(BuildOptions(tmp_path / "bad", target=path))
    with pytest.raises(FileNotFoundError):
        ROOM.build(BuildOptions(tmp_path / "bad", target=tmp_path / "none.json"))


def test_training_writes_runs_that_load_and_resume(tmp_path: Path) -> None:
    seen: list[str] = []
    options = TrainOptions(
        tmp_path / "runs", coordinates=2, length=4, seeds=2, steps=30, examples=300, common=Common(seed=3)
    )
    result = ROOM.train(options, lambda name, step, steps: seen.append(name))
    assert [run["seed"] for run in result["runs"]] == [3, 4]
    assert result["heads"] == 2
    assert set(seen) == {"steps"}
    best = load(tmp_path / "runs")
    assert str(best.directory) == result["best"]
    assert best.history[-1]["step"] == 30
    assert best.metrics["validation_nmse"] == min(run["nmse"] for run in result["runs"])
    assert ROOM.evaluate(best)["nmse"] == best.metrics["nmse"]
    assert ROOM.constructed(best).variant == "head-per-coordinate"
    assert ROOM.train(replace(options, resume=True)) == result
    with pytest.raises(ValueError, match="runs of another request"):
        ROOM.train(replace(options, resume=True, steps=31))


def test_bad_requests_are_named(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="there are head-per-coordinate, memorise"):
        ROOM.build(BuildOptions(tmp_path / "out", variant="limit"))
    with pytest.raises(ValueError, match="D = 0 coordinates"):
        ROOM.build(BuildOptions(tmp_path / "out", coordinates=0))
    with pytest.raises(ValueError, match="train at least 1"):
        ROOM.train(TrainOptions(tmp_path / "out", seeds=0))
    assert not (tmp_path / "out").exists()
