"""The notebooks run from scratch without an error or a warning, and are kept as their scripts say."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import nbformat
import pytest

from headlab.analyses import notebooks
from headlab.analyses.cli import main

SCRIPTS = notebooks.sources()
LARGEST = 400_000  # bytes of an executed notebook


def kept(script: Path) -> Any:
    return nbformat.read(script.with_suffix(".ipynb"), as_version=4)


def kinds(notebook: Any) -> list[Counter[str]]:
    """Per code cell, what its outputs are."""
    return [
        Counter(kind for output in cell.outputs for kind in output.get("data", {output.output_type: ""}))
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_there_are_five():
    assert [script.stem for script in SCRIPTS] == [
        "1_activation_patching",
        "2_head_specialisation",
        "3_attention_circuits",
        "4_learned_and_constructed",
        "5_how_many_heads",
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_it_runs_from_scratch_and_shows_what_is_kept(script):
    executed = notebooks.execute(script)
    now = notebooks.static(executed)
    assert kinds(now) == kinds(kept(script))
    assert len(notebooks.write(now)) < LARGEST
    page = notebooks.page(executed, script.stem)
    assert page.count("<svg") >= 2 * sum(count["image/svg+xml"] for count in kinds(now))
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_and_notebook_are_in_step(script):
    said, held = notebooks.read(script), kept(script)
    assert [(cell.cell_type, cell.source) for cell in said.cells] == [
        (cell.cell_type, cell.source) for cell in held.cells
    ]
    assert said.metadata == held.metadata


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_what_is_kept_is_small_static_and_the_same_every_time(script):
    text = script.with_suffix(".ipynb").read_text(encoding="utf-8")
    held = kept(script)
    assert len(text.encode()) < LARGEST
    assert sum(count["image/svg+xml"] for count in kinds(held)) >= 3
    for cell in held.cells:
        assert not {"execution", "ExecuteTime"} & set(cell.metadata)
        for output in cell.get("outputs", ()):
            assert output.output_type in ("stream", "display_data", "execute_result")
            if "image/svg+xml" in output.get("data", {}):
                assert "text/html" not in output.data
                assert output.data["image/svg+xml"].startswith("<svg")
                assert "<desc" in output.data["image/svg+xml"]
    assert "language_info" not in held.metadata
    assert notebooks.write(held) == text


def test_it_ends_in_what_to_take_home():
    for script in SCRIPTS:
        last = [cell for cell in notebooks.read(script).cells if cell.cell_type == "markdown"][-1]
        assert "## What to take home" in last.source


def test_a_warning_is_an_error(tmp_path):
    script = tmp_path / "1_bad.py"
    script.write_text("# %%\nimport warnings\n\nwarnings.warn('old', UserWarning)\n", encoding="utf-8")
    with pytest.raises(RuntimeError, match=r"1_bad\.py: (.|\n)*UserWarning: old"):
        notebooks.execute(script)


def test_the_command_writes_a_notebook_and_a_page(tmp_path, monkeypatch, capsys):
    script = tmp_path / "1_small.py"
    script.write_text(
        "# %% [markdown]\n# # Small\n\n# %%\nfrom interp.render import effect_grid\n\neffect_grid([[1, -1]], "
        "rows=['r'], columns=['</script>', 'b'], title='t', description='d', caption=['<b>', 'a_b'])\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path)
    assert main(["notebooks", "--out", str(tmp_path / "made"), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["notebooks"]
    figure, caption = nbformat.read(row["ipynb"], as_version=4).cells[1].outputs
    assert set(figure.data) == {"image/svg+xml", "text/plain"}
    assert figure.data["text/plain"] == "t: d"
    assert caption.data["text/markdown"] == "&lt;b&gt;a\\_b"
    assert "&lt;/script&gt;" in Path(row["html"]).read_text(encoding="utf-8")
    assert main(["notebooks", "--out", str(tmp_path / "made"), "--names", "9_none"]) == 2
    assert "there is no notebook '9_none': there are 1_small" in capsys.readouterr().err


def test_without_its_libraries_it_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(__import__("sys").modules, "jupytext", None)
    assert main(["notebooks", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"headlab: {notebooks.MISSING}\n"


def test_without_a_checkout_it_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="come with the repository"):
        notebooks.sources(folder=tmp_path)
