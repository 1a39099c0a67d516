"""The endpoint selection study on a small graph: every file whole, every verdict from a number, the page offline."""

import json
import re

import pandas as pd
import pytest

from headlab.analyses.claims import VERDICTS
from headlab.analyses.cli import main
from headlab.analyses.study.esp import plan
from headlab.analyses.study.esp.constructed import errors_at
from headlab.analyses.study.esp.diagrams import short_names
from headlab.analyses.study.record import read_record
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The folder of a quick study on a graph of 8 vertices whose labels are hostile."""
    root = tmp_path_factory.mktemp("study")
    names = ["<b>", "</script>", '"q"', "a&b", "e", "f", "g", "h" * 200]
    arcs = [(u, v) for u in range(8) for v in range(u + 1, 8) if (u + v) % 3] + [(5, 1), (7, 2), (2, 0)]
    lines = [{"source": names[u], "target": names[v]} for u, v in arcs]
    graph = {
        "directed": True,
        "multigraph": False,
        "graph": {},
        "nodes": [{"id": n} for n in names],
        "links": lines,
        "edges": lines,
    }
    (root / "graph.json").write_text(json.dumps(graph))
    out = root / "out"
    arguments = [
        "study",
        "esp",
        "--graph",
        str(root / "graph.json"),
        "--quick",
        "--seeds",
        "3",
        "--out",
        str(out),
        "--json",
    ]
    few = {"complete": range(3, 6), "tournaments": range(3, 6), "acyclic": 3, "multigraphs": 3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "_constructed", lambda quick: few)
        assert main(arguments) == 0
    return out


def test_the_record_holds_every_model_and_the_results_every_verdict(report):
    record, results = read_record(report / "record"), json.loads((report / "results.json").read_text())
    graph = record.one("graphs")
    bound = graph["mfas_upper"]
    assert graph["mfas_lower"] == bound > 0
    assert [row["errors"] for row in record.rows("models", way="one-head")] == [bound]
    assert [row["errors"] for row in record.rows("models", way="two-heads")] == [0, 0, 0]
    for row in record.rows("models", heads=1):
        assert row["errors"] >= bound
        assert row["in_class"]
        assert row["certified"]
    claims = {row["id"]: row for row in results["claims"]}
    assert set(claims) == {"E1", "E2", "E3", "E4", "E5", "E6", "B3"}
    assert all(row["verdict"] in VERDICTS and row["values"] and row["command"] for row in claims.values())
    assert all(claims[name]["verdict"] == "holds" for name in ("E1", "E2", "E3", "E4", "E5", "E6"))
    assert set(results["skipped"]) == {"E7", "E8", "E9", "E10", "E11", "E12", "E13", "B1", "B2", "B11"}
    assert len(record.rows("untrained")) == 64


def test_tables_figures_and_checkpoints_are_there(report):
    models = pd.read_csv(report / "tables" / "models.csv")
    assert (models.groupby("way").size()[["two-heads", "solver-guided"]] == 3).all()
    for name in ("ablation", "attribution", "specialisation", "comparison", "curves", "claims"):
        assert len(pd.read_csv(report / "tables" / f"{name}.csv")) > 0
    assert {path.name for path in (report / "figures").iterdir()} >= {"strip.svg", "order.svg", "circuit.svg"}
    assert main(["evaluate", str(report / "checkpoints" / "two-heads" / "seed-0"), "--json"]) == 0
    assert not [path for path in report.rglob("*") if "partial" in path.name or path.suffix == ".tmp"]


def test_the_record_alone_draws_the_page_again(report, tmp_path):
    assert main(["study", "esp", "--from", str(report), "--out", str(tmp_path), "--json"]) == 0
    pages = [re.sub(r"hl\d+-", "", (folder / "index.html").read_text()) for folder in (report, tmp_path)]
    assert pages[0] == pages[1]
    assert not (tmp_path / "record").exists()


def test_fewer_bits_than_needed_make_errors():
    task = EspTask(read_graph("complete:16"))
    assert errors_at(task, 24) == 0
    assert errors_at(task, 1) > 0


def test_the_page_is_one_offline_file_with_every_label_as_text(report):
    page = (report / "index.html").read_text()
    assert len(page) < 400_000
    assert not re.search(r"(?:src|href)=\"https?:", page)
    assert "url(" not in re.sub(r"url\(#", "", page)
    assert "&lt;b&gt;" in page
    assert '</script>"' not in page
    assert "One head can never pass" in page
    assert "not in quick" in page


def test_a_study_that_cannot_begin_says_why_and_writes_nothing(tmp_path, capsys):
    for arguments, said in (
        (["--graph", "complete:1"], "at least two"),
        (["--seeds", "1"], "at least 2 seeds"),
    ):
        assert main(["study", "esp", "--graph", "click", "--quick", "--out", str(tmp_path / "out"), *arguments]) == 2
        shown = capsys.readouterr()
        assert said in shown.err
        assert shown.err.count("\n") == 1
    (tmp_path / "file").write_text("")
    assert main(["study", "esp", "--graph", "click", "--out", str(tmp_path / "file")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_shared_package_name_is_left_out_of_labels():
    assert short_names(["rich", "rich.text", "rich.table"]) == ("rich", "text", "table")
    assert short_names(["a.b", "c.d"]) == ("a.b", "c.d")
    assert short_names(["a.b", "a.b.b"]) == ("b", "b.b")
    assert short_names(["a", "a.a"]) == ("a", "a.a")
