"""What the README says is what the package does: its snippet runs, its verdicts are those of the record that ships."""

import re
from collections import Counter
from pathlib import Path

import pytest

from headlab.analyses.claims import load_claims
from headlab.analyses.commands.claims import run
from headlab.analyses.options.instruments import Claims
from headlab.analyses.rules import VERDICTS

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
SHOWN = ("holds", "exceeds", "fails", "not reached", "not tested")


def verdict_table(tmp_path) -> str:
    """A row per system: how many rows of the claims file have which verdict by the record that ships."""
    rows = run(Claims(results=tmp_path))["claims"]
    lines = ["| system | " + " | ".join(SHOWN) + " | no record yet |", "| --- |" + " --- |" * (len(SHOWN) + 1)]
    for system in ("esp", "xor", "tree", "retrieval"):
        own = [row for row in rows if load_claims()[row["id"]].system == system]
        counts = Counter(row["verdict"] for row in own)
        assert set(counts) <= {*VERDICTS, None}
        cells = [str(counts[verdict] or "") for verdict in (*SHOWN, None)]
        lines.append(f"| `{system}` | " + " | ".join(cells) + " |")
    failed = [row["id"] for row in rows if row["verdict"] == "fails"]
    lines += ["", f"Fails, with the evidence: {', '.join(failed)}." if failed else ""]
    return "\n".join(lines).strip()


def test_the_verdicts_are_those_of_the_record_that_ships(tmp_path):
    shown = re.search(r"<!-- verdicts -->\n(.*?)\n<!-- /verdicts -->", README.read_text(), re.DOTALL)
    assert shown is not None
    assert shown[1].strip() == verdict_table(tmp_path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_first_snippet_runs(capsys):
    snippet = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[0]
    exec(compile(snippet, "README.md", "exec"), {})
    assert "torch.Size([2, 4, 12])" in capsys.readouterr().out


def test_every_file_that_is_named_exists():
    text = README.read_text()
    for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (ROOT / link).exists(), link


def test_it_is_short():
    assert len(README.read_text().splitlines()) < 240
