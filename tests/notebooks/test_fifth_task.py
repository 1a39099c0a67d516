"""What the page on adding a task shows does run, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

from headlab.analyses.notebooks import FOLDER

PAGE = FOLDER / "FIFTH_TASK.md"


def test_every_piece_of_code_on_the_page_runs(capsys):
    text = PAGE.read_text(encoding="utf-8")
    pieces = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(pieces) >= 10
    # A method that is shown by itself belongs to the class above it.
    whole = "\n".join(pieces)
    space: dict[str, object] = {"__name__": "__main__"}
    exec(compile(whole, str(PAGE), "exec"), space)
    assert space["accuracy"] > 0.99  # type: ignore[operator]
    assert "<svg" in space["figure"].svg  # type: ignore[attr-defined]
    printed = capsys.readouterr().out
    assert "guessing one of four letters" in printed


def test_what_the_page_names_is_there():
    text = PAGE.read_text(encoding="utf-8")
    root = FOLDER.parent
    named = set(re.findall(r"`((?:models|analyses|interp)/[\w/]+\.py)`", text))
    assert Path("analyses/cli.py") in {Path(name) for name in named}
    for name in named:
        assert "pick" in name or (root / name).is_file(), name
