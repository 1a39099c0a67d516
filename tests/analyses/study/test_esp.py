"""The endpoint selection study on a small graph: every file whole, every verdict from a number, the page offline."""

import json
import re

import pandas as pd
import pytest

from headlab.analyses.claims import VERDICTS
from headlab.analyses.cli import main
from headlab.analyses.study.esp.names import short_names


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
    assert (
        main(
            [
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
        )
        == 0
    )
    return out


def test_results_hold_every_model_and_every_verdict(report):
    results = json.loads((report / "results.json").read_text())
    assert results["mfas"]["exact"]
    bound = results["mfas"]["upper"]
    assert bound > 0
    assert results["methods"]["one-head"]["errors"] == [bound]
    assert results["methods"]["two-heads"]["errors"] == [0, 0, 0]
    for method in results["methods"].values():
        if method["heads"] == 1:
            assert min(method["errors"]) >= bound
            assert all(c["in_class"] and c["holds"] for c in method["certificates"])
    claims = {row["id"]: row for row in results["claims"]}
    assert set(claims) == {"E1", "E2", "E3", "E4", "E5", "E6", "B3"}
    assert all(row["verdict"] in VERDICTS and row["measured"] and row["command"] for row in claims.values())
    assert all(claims[name]["verdict"] == "holds" for name in ("E1", "E2", "E3", "E4", "E5", "E6"))
    assert len(results["skipped"]) == 10
    assert len(results["specialisation"]["untrained"]) == 64


def test_tables_figures_and_checkpoints_are_there(report):
    models = pd.read_csv(report / "tables" / "models.csv")
    assert (models.groupby("method").size()[["two-heads", "solver-guided"]] == 3).all()
    for name in ("ablation", "attribution", "specialisation", "comparison", "curves", "claims"):
        assert len(pd.read_csv(report / "tables" / f"{name}.csv")) > 0
    assert {path.name for path in (report / "figures").iterdir()} >= {"strip.svg", "order.svg", "circuit.svg"}
    assert main(["evaluate", str(report / "checkpoints" / "two-heads" / "seed-0"), "--json"]) == 0
    assert not [path for path in report.rglob("*") if "partial" in path.name or path.suffix == ".tmp"]


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
        (["--nodes", "-1"], "-1 nodes"),
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
