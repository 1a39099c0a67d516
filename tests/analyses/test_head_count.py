"""D read off error tables: tables as training makes them, the controls where there is nothing to read, bad tables."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headlab.analyses.commands import heads_needed as command
from headlab.analyses.head_count import BEYOND, heads_needed, read_errors
from headlab.analyses.options.retrieval import HeadsNeeded

LENGTHS = (8, 32, 128)


def table(errors: dict[int, tuple[float, ...]], lengths: tuple[int, ...] = LENGTHS) -> pd.DataFrame:
    rows = [(h, t, e) for h, own in errors.items() for t, e in zip(lengths, own, strict=True)]
    return pd.DataFrame(rows, columns=["heads", "length", "error"])


def trained_like(d: int, most: int, random: np.random.Generator, *, drop: float = 3.0) -> pd.DataFrame:
    """Errors as linear encoders leave them: (D - h) / D below D, a plateau `drop` decades lower from D on."""
    rows = []
    for h in range(1, most + 1):
        for t in LENGTHS:
            level = np.log10((d - h) / d) - 0.2 if h < d else np.log10(1 / d) - drop - 0.05 * (h - d)
            rows.append((h, t, 10 ** (level + random.normal(0, 0.15))))
    return pd.DataFrame(rows, columns=["heads", "length", "error"])


@pytest.mark.parametrize("d", [2, 3, 4, 5])
def test_the_drop_is_found(d: int) -> None:
    random = np.random.default_rng(d)
    for _ in range(10):
        found = heads_needed(trained_like(d, 6, random))
        assert found.needed == d
        assert d in found.credible
        assert found.probability > 0.5
        assert found.drop is not None
        assert 100 < found.drop < 1e5


def test_a_table_that_was_trained_with_a_nonlinear_encoder() -> None:
    errors = {
        1: (5.7e-2, 1.2e-1, 1.4e-1),
        2: (2.8e-2, 4.4e-2, 5.2e-2),
        3: (1.2e-2, 2.0e-2, 9.5e-2),
        4: (1.6e-4, 2.2e-4, 1.7e-4),
        5: (1.3e-4, 1.6e-4, 2.0e-4),
    }
    found = heads_needed(table(errors))
    assert found.needed == 4
    assert found.probability > 0.8
    assert found.drop == pytest.approx(((1.2e-2 * 2.0e-2 * 9.5e-2) / (1.6e-4 * 2.2e-4 * 1.7e-4)) ** (1 / 3))


def test_a_flat_table_needs_one_head() -> None:
    random = np.random.default_rng(0)
    for level in (-4.0, -2.0, -0.3):
        for _ in range(10):
            flat = table({h: tuple(10 ** (level + random.normal(0, 0.1, 3))) for h in range(1, 6)})
            assert heads_needed(flat).needed == 1


def test_without_a_plateau_the_answer_lies_beyond_the_range() -> None:
    random = np.random.default_rng(1)
    right = 0
    for _ in range(20):
        rows = {h: tuple(10 ** (-0.4 - 0.35 * (h - 1) + random.normal(0, 0.1, 3))) for h in range(1, 6)}
        found = heads_needed(table(rows))
        right += found.needed is None
        assert None in found.credible
        assert found.needed is not None or found.to_json()["heads_needed"] == BEYOND
    assert right >= 18


def test_published_cells_with_gaps_are_taken_on_request() -> None:
    cells = pd.DataFrame(
        [(1, 8, 7.01e-2), (1, 128, 1.45e-1), (2, 128, 1e-2), (3, 128, 1.58e-3), (4, 8, 6.1e-5), (4, 128, 5.23e-6)],
        columns=["h", "T", "nmse"],
    )
    with pytest.raises(ValueError, match="no error for 2 heads at length 8"):
        heads_needed(cells)
    found = heads_needed(cells, complete=False)
    assert found.needed == 4
    fewer = heads_needed(cells[cells["h"] != 2], complete=False)
    assert fewer.needed == 4
    assert fewer.probability < found.probability  # fewer cells: the answer is less certain


def test_the_smallest_error_of_a_cell_counts_and_length_may_be_left_out() -> None:
    random = np.random.default_rng(3)
    once = trained_like(3, 5, random)
    stuck = once.assign(error=once["error"] * 50)
    assert heads_needed(pd.concat([stuck, once])).posterior.probability.tolist() == pytest.approx(
        heads_needed(once).posterior.probability.tolist()
    )
    short = pd.DataFrame({"h": [1, 2, 3, 4], "nmse": [0.3, 0.15, 1e-4, 1e-4]})
    assert heads_needed(short).needed == 3


def test_head_counts_that_skip_leave_the_gap_open() -> None:
    errors = {1: (0.2,) * 3, 2: (0.1,) * 3, 4: (1e-4,) * 3, 8: (1e-4,) * 3}
    found = heads_needed(table(errors))
    assert found.needed in (3, 4)
    assert {3, 4} <= set(found.credible)


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (table({2: (0.1, 0.1, 0.1)}), "one head count only, 2"),
        (table({1: (0.1,) * 3, 2: (0.1,) * 3}).drop(index=4), "no error for 2 heads at length 32"),
        (table({1: (0.1, 0.0, 0.1), 2: (0.1,) * 3}), "for 1 heads at length 32 is 0.0"),
        (table({1: (0.1, float("nan"), 0.1), 2: (0.1,) * 3}), "is nan"),
        (pd.DataFrame({"heads": [1, 2], "accuracy": [0.1, 0.2]}), "no column 'error' .or 'nmse'.; it has heads"),
        (pd.DataFrame({"heads": [0, 2], "error": [0.1, 0.2]}), "row 0 of the table has no whole number from 1"),
        (pd.DataFrame({"heads": ["one", 2], "error": [0.1, 0.2]}), "no whole number from 1 as its heads"),
        (pd.DataFrame({"heads": [], "error": []}), "empty"),
    ],
)
def test_bad_tables_are_refused_in_a_sentence(frame: pd.DataFrame, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        heads_needed(frame)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "errors.csv"
    trained_like(4, 5, np.random.default_rng(0)).to_csv(path, index=False)
    result = command.run(HeadsNeeded(path))
    assert result["heads_needed"] == 4
    assert result["set"][0] == 4
    assert result["lengths"] == [8, 32, 128]
    assert sum(row["probability"] for row in result["posterior"]) == pytest.approx(1)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    command.show(result)
    assert "heads_needed" in capsys.readouterr().out
    pd.read_csv(path).to_parquet(tmp_path / "errors.parquet")
    assert command.run(HeadsNeeded(tmp_path / "errors.parquet"))["posterior"] == result["posterior"]
    with pytest.raises(ValueError, match="between 0 and 1"):
        command.run(HeadsNeeded(path, mass=1.0))


def test_files_that_are_no_table(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"errors\.csv"):
        read_errors(tmp_path / "errors.csv")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(ValueError, match="not a table that can be read"):
        read_errors(tmp_path / "empty.csv")
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not a table that can be read"):
        read_errors(tmp_path / "bad.parquet")
