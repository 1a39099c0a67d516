"""Wrong requests for retrieval on the command line: exit status 2 and one sentence that says what was wrong."""

import json
from pathlib import Path

import pytest

from headlab.analyses.cli import main
from headlab.models.retrieval.family import nearest_points

SETS = nearest_points(2, 5, sets=((0, 1), (2, 3, 4))).options()


def said(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    """The one line that the command prints when it refuses."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.strip().splitlines()
    assert "Traceback" not in line
    return line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["build", "retrieval", "--coordinates", "0"], "D = 0 coordinates: retrieval needs at least 1"),
        (["train", "retrieval", "--coordinates", "0"], "D = 0 coordinates: retrieval needs at least 1"),
        (["build", "retrieval", "--length", "0"], "length T = 0: a sequence has at least 1 token"),
        (["train", "retrieval", "--heads", "0"], "heads = 0: it must be at least 1"),
        (["train", "retrieval", "--examples", "1"], "there must be 2 of each"),
        (["train", "retrieval", "--total-width", "32", "--heads", "3"], "use 33"),
        (["train", "retrieval", "--layers", "2", "--grow"], "one layer without positions only"),
        (["train", "retrieval", "--recipe", "slow"], "there are quick, standard, long"),
        (["study", "retrieval", "--seeds", "1"], "at least 2 seeds"),
    ],
)
def test_impossible_numbers(arguments: list[str], says: str, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    assert says in said(capsys, [*arguments, "--out", str(tmp_path / "out")])
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"length": 2}, "the position set S_1 has 3 positions, more than the length T = 2"),
        ({"sets": [[0, 1], []]}, "the position set S_1 is empty: coordinate 1 has nothing to choose from"),
        ({"vectors": [[0.1, float("nan")], [0.2, 0.3]]}, "a vector has an entry that is NaN or infinite"),
        ({"vectors": []}, "D = 0 coordinates"),
        ({"kind": "cosine"}, "choose projection or distance"),
    ],
)
def test_impossible_targets(change: dict, says: str, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "target.json"
    path.write_text(json.dumps({**SETS, **change}))
    for command in ("build", "train"):
        line = said(capsys, [command, "retrieval", "--target", str(path), "--out", str(tmp_path / "out")])
        assert says in line
        assert "target.json" in line


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("heads,length,error\n1,8,.1\n2,8,.01\n1,32,.2\n", "no error for 2 heads at length 32"),
        ("heads,length,error\n2,8,.1\n2,32,.2\n", "one head count only, 2"),
        ("heads,length,error\n1,8,nan\n2,8,.2\n", "the error for 1 heads at length 8 is nan"),
        ("heads,length\n1,8\n", "no column 'error'"),
    ],
)
def test_tables_from_which_nothing_can_be_read(table: str, says: str, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "errors.csv"
    path.write_text(table)
    assert says in said(capsys, ["heads-needed", str(path)])
