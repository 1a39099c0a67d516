"""The page on adding a task is true: its files in a copy of the repository make a fifth task, and its commands run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headlab.analyses.notebooks import FOLDER
from headlab.analyses.tasks import TASKS

ROOT = FOLDER.parent
TEXT = (FOLDER / "FIFTH_TASK.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r'```(\w+)(?: title="(.*?)")?\n(.*?)```', TEXT, re.DOTALL)
REGISTRY, CLAIMS = "analyses/tasks.py", "analyses/claims.toml"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three packages with the files of the page in them."""
    root = tmp_path_factory.mktemp("copy")
    for name in ("interp", "models", "analyses"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "headlab").mkdir()
    for name in ("__init__.py", "__init__.pyi"):
        shutil.copy(ROOT / "headlab" / name, root / "headlab" / name)
    for _, name, text in BLOCKS:
        path = root / name
        if name == REGISTRY:
            head, mark, tail = path.read_text().partition("    for entry in (\n")
            assert mark
            path.write_text(head + mark + text + tail)
        elif name:
            assert name == CLAIMS or not (ROOT / name).exists(), name
            path.parent.mkdir(exist_ok=True)
            with path.open("a") as file:
                file.write(text)
    return root


def run(root: Path, code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_code_of_the_page_runs(copy: Path) -> None:
    session = "\n".join(text for kind, name, text in BLOCKS if kind == "python" and not name)
    assert len(re.findall("assert ", session)) >= 8
    printed = run(copy, session + "\nassert '<svg' in figure.svg")
    assert "guessing one of four letters" in printed


def test_its_commands_run_with_the_fifth_task_among_them(copy: Path) -> None:
    for name in TASKS:  # the other studies are done, and taken up as they are
        folder = copy / "out" / "all" / name
        folder.mkdir(parents=True)
        results = {"headline": [name], "summary": "", "by_heads": None, "claims": [], "skipped": [], "seconds": 1.0}
        (folder / "results.json").write_text(json.dumps(results))
        (folder / "index.html").write_text("done")
    lines = [line for kind, _, text in BLOCKS if kind == "sh" for line in text.splitlines()]
    assert len(lines) >= 9
    commands = [[*shlex.split(line)[1:], "--json"] for line in lines]
    code = f"from headlab.analyses.cli import main\nfor words in {commands!r}: assert main(words) == 0, words"
    answers = [json.loads(line) for line in run(copy, code).splitlines()]
    by_command = dict(zip(lines, answers, strict=True))
    assert by_command["headlab evaluate out/runs"]["samples"] == 1024
    trained, resumed = (answer["runs"] for line, answer in by_command.items() if line.startswith("headlab train"))
    assert resumed == trained
    overview = next(answer for line, answer in by_command.items() if line.startswith("headlab study all"))
    verdicts = {row["id"]: row["verdict"] for row in overview["claims"] if row["system"] == "pick"}
    assert verdicts["P1"] == "holds"
    assert set(verdicts) == {"P1", "P2"}
    assert "How many heads does it take to look something up?" in (copy / "out/all/index.html").read_text()
    claims = next(answer for line, answer in by_command.items() if line.startswith("headlab claims"))
    assert [row["verdict"] for row in claims["claims"]] == list(verdicts.values())


def test_a_fifth_task_is_its_own_files_a_line_of_the_registry_and_its_claims() -> None:
    changed = {name for _, name, _ in BLOCKS if name and "pick" not in name}
    assert changed == {REGISTRY, CLAIMS}
    (line,) = (text for _, name, text in BLOCKS if name == REGISTRY)
    assert line.count("\n") == 1
    for name in set(re.findall(r"`((?:models|analyses|interp)/[\w/]+\.(?:py|toml))`", TEXT)):
        assert "pick" in name or (ROOT / name).is_file(), name
