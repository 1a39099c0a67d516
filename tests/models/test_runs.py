"""A folder of runs: one request, resumed or refused; states are removed, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from headlab.models import bundle
from headlab.models import runs as folders
from headlab.models.checkpoints import load_runs
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.runs import train_and_save as train_esp
from headlab.models.esp.task import EspTask
from headlab.models.retrieval.architecture import architecture
from headlab.models.retrieval.family import sum_of_maxima
from headlab.models.retrieval.recipes import recipe
from headlab.models.retrieval.runs import train_and_save as train_retrieval
from headlab.models.retrieval.task import RetrievalTask
from headlab.models.runs import RunFolder
from headlab.models.tree.recipes import RECIPE, direct
from headlab.models.tree.runs import train as train_tree
from headlab.models.tree.source import TreeSource
from headlab.models.tree.task import TreeTask
from headlab.models.xor.method import Method
from headlab.models.xor.runs import train as train_xor
from headlab.models.xor.runs import train_feedforward
from headlab.models.xor.task import XorTask


def esp(steps: int):
    return partial(train_esp, EspTask(read_graph("cycle:4")), heads=1, steps=steps)


def tree(steps: int):
    recipe = replace(RECIPE, steps=steps, batch=4, warmup=2)
    plan = direct(TreeTask(TreeSource(depths=(1,), labels=6)), heads=1, d_model=8, d_head=4, recipe=recipe)
    return partial(train_tree, plan, paths=8, validation=8)


def xor(steps: int):
    return partial(train_xor, XorTask(12), Method("plain", steps=steps))


def feedforward(steps: int):
    return partial(train_feedforward, XorTask(8), 4, steps=steps)


def retrieval(steps: int):
    family = sum_of_maxima(2, 4)
    return partial(
        train_retrieval, RetrievalTask(family), architecture(family, 2), recipe("quick", steps=steps), examples=40
    )


@pytest.mark.parametrize("make", [esp, tree, xor, feedforward, retrieval])
def test_every_task_keeps_resumes_and_refuses_alike(make, tmp_path: Path, monkeypatch):
    out = tmp_path / "runs"
    train = make(20)
    runs = train(range(3, 5), out)
    assert [row["seed"] for row in runs["runs"]] == [3, 4]
    assert not (out / folders.STATES).exists()
    monkeypatch.setattr(folders, "write_runs", lambda *a, **b: pytest.fail("trained again"))
    assert train(range(3, 5), out, resume=True) == runs
    for other, seeds in ((make(21), range(3, 5)), (train, range(3, 6))):
        with pytest.raises(ValueError, match=r"holds the runs of another request \(.*choose another folder"):
            other(seeds, out, resume=True)


def test_an_interrupted_training_is_resumed_with_its_own_request_only(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(folders, "SAVE_EVERY", 0.0)

    class Interrupted(Exception):
        pass

    def stop(step: int, steps: int) -> None:
        if step == 15:
            raise Interrupted

    whole = esp(40)(range(2), tmp_path / "whole")
    out = tmp_path / "part"
    with pytest.raises(Interrupted):
        esp(40)(range(2), out, progress=stop)
    assert (out / folders.STATES / "state").is_dir()
    with pytest.raises(ValueError, match=r"\(steps was 40, not 50\)"):
        esp(50)(range(2), out, resume=True)
    steps: list[int] = []
    resumed = esp(40)(range(2), out, resume=True, progress=lambda step, total: steps.append(step))
    assert 0 < steps[0] <= 15
    assert resumed == whole
    # Begun anew with another request, the finished runs of the first one are not its result.
    with pytest.raises(Interrupted):
        esp(50)(range(2), out, progress=stop)
    assert esp(50)(range(2), out, resume=True)["request"]["steps"] == 50


def test_what_else_lies_in_the_folder_stays(tmp_path: Path):
    own = tmp_path / "training" / "notes"
    own.mkdir(parents=True)
    (own / "a.txt").write_text("mine")
    esp(5)(range(2), tmp_path)
    assert (own / "a.txt").read_text() == "mine"


def test_runs_of_an_unknown_request_are_not_taken_for_another(tmp_path: Path):
    runs = xor(5)(range(2), tmp_path)
    content = load_runs(tmp_path)
    del content["request"]
    bundle.write_json(tmp_path / folders.RUNS, content)
    with pytest.raises(ValueError, match="another request"):
        xor(5)(range(2), tmp_path, resume=True)
    assert runs["best"]


def test_no_seeds_are_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="no seeds"):
        RunFolder(tmp_path / "out", {"seeds": []})
    assert not (tmp_path / "out").exists()
