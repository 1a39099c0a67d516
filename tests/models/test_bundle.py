import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headlab.models import bundle

OLD = {"weights": {"w": torch.zeros(64)}, "step-1": {"w": torch.zeros(8)}}
NEW = {"weights": {"w": torch.ones(64)}, "training": {"m": torch.ones(3)}}


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_replacing_a_bundle_leaves_only_what_its_manifest_names(tmp_path):
    folder = bundle.write(tmp_path / "a" / "b", "thing", {"which": "old"}, OLD)
    bundle.write(folder, "thing", {"which": "new"}, NEW)
    manifest = bundle.read(folder, "thing")
    assert manifest["which"] == "new"
    assert names(folder) == sorted([bundle.MANIFEST, *(entry["file"] for entry in manifest["files"].values())])
    assert torch.equal(bundle.read_tensors(folder, manifest, "training")["m"], NEW["training"]["m"])
    with pytest.raises(KeyError, match=r"holds no step-1; it holds weights, training"):
        bundle.read_tensors(folder, manifest, "step-1")


def interrupt_at(monkeypatch, count):
    """Ctrl-C at the `count`-th of all writes and renames; says whether it came to that."""
    calls = {"left": count}

    def counted(function):
        def wrapper(*arguments):
            calls["left"] -= 1
            if calls["left"] == 0:
                raise KeyboardInterrupt
            return function(*arguments)

        return wrapper

    monkeypatch.setattr(bundle, "_write_file", counted(bundle._write_file))
    monkeypatch.setattr(os, "rename", counted(os.rename))
    monkeypatch.setattr(os, "replace", counted(os.replace))
    return calls


@pytest.mark.parametrize("existing", [False, True])
def test_an_interrupt_at_any_write_leaves_the_folder_as_it_was(tmp_path, monkeypatch, existing):
    folder = tmp_path / "deep" / "er"
    if existing:
        bundle.write(folder, "thing", {"which": "old"}, OLD)
    before = contents(tmp_path)
    for count in range(1, 20):
        with monkeypatch.context() as patch:
            calls = interrupt_at(patch, count)
            try:
                bundle.write(folder, "thing", {"which": "new"}, NEW)
            except KeyboardInterrupt:
                assert contents(tmp_path) == before
                assert existing or not any(tmp_path.iterdir())
                continue
        assert calls["left"] > 0
        break
    assert count == (7 if existing else 5)  # two tensor files, the manifest, and one rename or three replacements
    assert bundle.read(folder, "thing")["which"] == "new"


SAVES_FOR_EVER = """
import sys, torch
from headlab.models import bundle
step = 0
while True:
    step += 1
    named = {"w": torch.full((200_000,), float(step))}
    bundle.write(sys.argv[1], "thing", {"step": step}, {"weights": named, f"step-{step}": named})
    print(step, flush=True)
"""


def test_a_kill_at_any_moment_leaves_a_whole_bundle(tmp_path):
    folder = tmp_path / "kept"
    for delay in (0.0, 0.017):
        child = subprocess.Popen(
            [sys.executable, "-c", SAVES_FOR_EVER, str(folder)],
            stdout=subprocess.PIPE,
            cwd=Path(bundle.__file__).parents[1],
        )
        assert child.stdout is not None
        for _ in range(3):
            child.stdout.readline()
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        manifest = bundle.read(folder, "thing")
        assert manifest["step"] >= 3
        weights = bundle.read_tensors(folder, manifest, "weights")["w"]
        assert weights.unique().tolist() == [manifest["step"]]
    bundle.write(folder, "thing", {"step": -1}, OLD)
    assert len(names(folder)) == 3


def test_damage_is_named(tmp_path):
    folder = bundle.write(tmp_path / "a", "thing", {}, NEW)
    manifest = bundle.read(folder, "thing")
    path = folder / manifest["files"]["weights"]["file"]
    whole = path.read_bytes()
    for damaged in (whole[:-7], b"", whole[:100] + b"?" + whole[101:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"is damaged: its content does not match the checksum"):
            bundle.read_tensors(folder, manifest, "weights")
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"damaged: its file weights-.* is missing"):
        bundle.read_tensors(folder, manifest, "weights")


def test_a_file_outside_the_folder_is_never_read(tmp_path):
    folder = bundle.write(tmp_path / "a", "thing", {}, NEW)
    outside = bundle.write(tmp_path / "b", "thing", {}, NEW)
    manifest = bundle.read(folder, "thing")
    elsewhere = outside / manifest["files"]["weights"]["file"]
    os.rename(folder / elsewhere.name, tmp_path / "moved")
    manifest["files"]["weights"]["file"] = str(elsewhere)
    with pytest.raises(FileNotFoundError, match="is missing"):
        bundle.read_tensors(folder, manifest, "weights")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is damaged: it is not JSON"),
        ("[]", "was written by something else"),
        ('{"optimizer": "adam"}', "was written by something else"),
        ('{"format": 2, "kind": "thing"}', "format 2, newer than the format 1 that this headlab reads"),
        ('{"format": 0, "kind": "thing"}', "format 0, older than the format 1 that this headlab reads"),
        ('{"format": 1, "kind": "other"}', "holds a other, not a thing"),
    ],
)
def test_a_foreign_manifest_is_refused_in_a_sentence(tmp_path, content, message):
    (tmp_path / bundle.MANIFEST).write_text(content)
    with pytest.raises(ValueError, match=message) as error:
        bundle.read(tmp_path, "thing")
    assert "\n" not in str(error.value)


def test_folders_that_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        bundle.read(tmp_path / "none", "thing")
    with pytest.raises(ValueError, match=r"is not a headlab thing: it has no checkpoint\.json"):
        bundle.read(tmp_path, "thing")


@pytest.mark.parametrize("act", [lambda path: bundle.write(path, "thing", {}, NEW), bundle.require_writable])
def test_folders_that_cannot_be_written(tmp_path, act):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=r"cannot write to .*: it is a file"):
        act(tmp_path / "file")
    with pytest.raises(ValueError, match=r"cannot write to .*/file/under"):
        act(tmp_path / "file" / "under")
    with pytest.raises(ValueError, match="holds other files and is not a headlab checkpoint"):
        act(tmp_path / "full")
    assert contents(tmp_path) == before


def test_asking_whether_a_folder_can_be_written_leaves_nothing(tmp_path):
    bundle.require_writable(tmp_path / "x" / "y")
    assert not any(tmp_path.iterdir())
    folder = bundle.write(tmp_path / "a", "thing", {}, NEW)
    before = contents(tmp_path)
    bundle.require_writable(folder)
    assert contents(tmp_path) == before


def test_numbers_that_json_cannot_hold_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"'metrics\.margin\[1\]' is nan"):
        bundle.write(tmp_path / "a", "thing", {"metrics": {"margin": [0.0, float("nan")]}}, {})
    with pytest.raises(ValueError, match="'model' is a object"):
        bundle.plain({"model": object()})
    assert not any(tmp_path.iterdir())


def test_json_files_are_whole_or_not_there(tmp_path, monkeypatch):
    path = bundle.write_json(tmp_path / "in" / "runs.json", {"a": torch.tensor([1, 2]), "b": np.float32(0.5)})
    assert json.loads(path.read_text()) == {"a": [1, 2], "b": 0.5}
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            bundle.write_json(path, {"a": 3})
    assert json.loads(path.read_text())["a"] == [1, 2]
    assert names(path.parent) == ["runs.json"]


SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
TREES = st.recursive(
    SCALARS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(TREES)
def test_plain_data_survives_unchanged(value):
    assert json.loads(json.dumps(bundle.plain({"value": value}))) == {"value": value}
