"""The commands on constructed models, where every answer is known, and on bad requests."""

import json

import pytest
import torch

from headlab.analyses.cli import main
from headlab.models.esp.task import EspTask
from headlab.models.hooked import Architecture


def ask(capsys, *arguments):
    """Run a command with --json; its status and its one JSON object."""
    status = main([*map(str, arguments), "--json"])
    shown = capsys.readouterr()
    return status, json.loads(shown.out) if status == 0 else shown.err


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Checkpoints of constructed models on one graph: variant -> folder."""
    root = tmp_path_factory.mktemp("built")
    folders = {}
    for variant in ("two-head", "two-head-narrow", "one-head"):
        folders[variant] = root / variant
        assert (
            main(["build", "esp", "--graph", "click", "--variant", variant, "--out", str(root / variant), "--json"])
            == 0
        )
    return folders


def test_build_and_evaluate_agree_with_the_theorem(capsys, built):
    capsys.readouterr()
    _, two = ask(capsys, "evaluate", built["two-head"])
    assert (two["task"], two["samples"], two["errors"], two["accuracy"]) == ("esp", 92, 0, 1.0)
    _, one = ask(capsys, "evaluate", built["one-head"])
    assert one["errors"] == 9
    _, info = ask(capsys, "info", built["two-head"])
    assert (info["task"], info["variant"], info["recipe"]) == ("esp", "two-head", None)
    assert Architecture.from_json(info["config"]).config["n_heads"] == 2


def test_zero_ablation_takes_one_selector_from_each_head(capsys, built):
    _, result = ask(capsys, "ablate", built["two-head"], "--kind", "zero", "--metric", "accuracy", "--groups")
    lost = [head["by_factor"] for head in result["heads"]]
    assert lost == [{"1": 1.0, "2": 0.0}, {"1": 0.0, "2": 1.0}]
    assert result["groups"][0]["by_factor"] == {"1": 1.0, "2": 1.0}
    assert result["baseline"] == 1.0


def test_score_and_roles_name_what_each_head_does(capsys, built):
    _, result = ask(capsys, "score", built["two-head"], "--chance-seeds", "8")
    assert result["specialisation"] >= 0.99
    assert result["chance"]["sources"]["recipe initialisation"]["median"] <= 0.02
    assert result["chance"]["p95"] == max(each["p95"] for each in result["chance"]["sources"].values())
    assert (result["accuracy"], result["mechanism"]) == (1.0, ["divided", "divided"])
    assert max(result["causal"]["foreign"]) < 1e-4
    assert result["roles"] == ["endpoint 1", "endpoint 2"]
    _, roles = ask(capsys, "roles", built["two-head"])
    assert [(row["layer"], row["head"], row["role"]) for row in roles["heads"]] == [
        (0, 0, "endpoint 1"),
        (0, 1, "endpoint 2"),
    ]
    assert all(row["causal"] > 0.5 for row in roles["heads"])


def test_patching_finds_the_query_and_nothing_else(capsys, built):
    _, result = ask(capsys, "patch", built["two-head"], "--contrast", "selector", "--site", "z")
    effect = torch.tensor(result["effect"])
    assert list(effect.shape) == result["shape"] == [1, 2, 4]
    assert result["axes"]["position"] == ["u", "v", "selector", "query"]
    assert (effect[..., 3] > 0.49).all()
    assert (effect[..., :3] == 0).all()
    normalised = torch.tensor(result["normalised"])
    torch.testing.assert_close(normalised[..., 3].sum(), torch.tensor(1.0), atol=1e-4, rtol=0)


def test_the_known_circuit_is_found_again(capsys, built):
    _, result = ask(capsys, "circuit", built["two-head"])
    assert result["recovery"]["auroc"] == 1.0
    assert {(edge["from"], edge["to"]) for edge in result["edges"]} == {
        ("start", "0.0.v@0"),
        ("start", "0.1.v@1"),
        ("start", "0.0.k@2"),
        ("start", "0.1.k@2"),
        ("0.0", "end@3"),
        ("0.1", "end@3"),
    }
    assert result["distance"] < 1e-3


def test_the_certificate_is_the_minimum_feedback_arc_set(capsys, built):
    _, result = ask(capsys, "certify", built["one-head"])
    assert result["in_class"]
    assert (result["errors"], result["mfas"], result["mfas_exact"]) == (9, 9, True)
    assert len(result["feedback_arcs"]) == 9
    assert result["error_bound"] == pytest.approx(9 / 92)
    _, outside = ask(capsys, "certify", built["two-head"])
    assert not outside["in_class"]
    assert (outside["order"], outside["feedback_arcs"], outside["error_bound"]) == (None, None, None)
    assert "heads" in outside["reason"]


def test_a_model_compared_with_itself_is_itself(capsys, built):
    _, result = ask(capsys, "compare", built["two-head"], built["two-head"])
    assert result["qk"] == pytest.approx(1, abs=1e-5)
    assert result["ov"] == pytest.approx(1, abs=1e-5)
    assert result["function"]["agreement"] == 1.0
    _, narrow = ask(capsys, "compare", built["two-head"], built["two-head-narrow"])
    assert narrow["qk"] == pytest.approx(1, abs=1e-3)
    assert narrow["ov"] < 0.7


def test_render_writes_a_page_and_a_picture_that_ask_nothing_of_the_network(capsys, built, tmp_path):
    page = tmp_path / "look.html"
    assert ask(capsys, "render", built["two-head"], "--out", page)[0] == 0
    text = page.read_text()
    assert "click.decorators" in text
    assert ask(capsys, "render", built["two-head"], "--out", tmp_path / "look.svg")[0] == 0
    assert (tmp_path / "look.svg").read_text().rstrip().endswith("</svg>")
    status, said = ask(capsys, "render", built["two-head"], "--out", tmp_path / "look.gif")
    assert status == 2
    assert ".html, .svg, .png" in said
    assert not (tmp_path / "look.gif").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["build", "esp", "--variant", "one-head-dag", "--graph", "click"], "cycle"),
        (["build", "esp", "--variant", "three-head", "--graph", "click"], "one-head-dag, one-head, two-head"),
        (["build", "esp", "--graph", "nowhere.edgelist"], "no such file"),
        (["build", "esp", "--graph", "complete:1"], "at least two"),
        (["build", "esp", "--graph", "complete:x"], "complete:N"),
    ],
)
def test_a_bad_request_says_what_is_wrong_and_leaves_nothing(capsys, tmp_path, arguments, said):
    out = tmp_path / "out"
    status, shown = ask(capsys, *arguments, "--out", out)
    assert status == 2
    assert said in shown
    assert shown.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("command", "more", "said"),
    [
        ("ablate", ["--metric", "speed"], "logit_difference"),
        ("ablate", ["--factor", "colour"], "selector"),
        ("patch", ["--contrast", "colour"], "selector"),
        ("patch", ["--site", "resid_mid"], "attn"),
        ("patch", ["--count", "0"], "at least 1"),
        ("circuit", ["--ablation", "freeze"], "resample:u"),
        ("score", ["--chance-seeds", "0"], "at least one"),
    ],
)
def test_what_does_not_exist_is_named_with_what_does(capsys, built, command, more, said):
    status, shown = ask(capsys, command, built["two-head"], *more)
    assert status == 2
    assert said in shown
    assert "Traceback" not in shown


def test_two_tasks_are_not_compared(capsys, built, tmp_path):
    other = tmp_path / "httpx"
    assert main(["build", "esp", "--graph", "httpx", "--out", str(other), "--json"]) == 0
    capsys.readouterr()
    status, said = ask(capsys, "compare", built["two-head"], other)
    assert status == 2
    assert "vocabulary" in said


def test_a_folder_that_cannot_be_written_is_named(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    status, said = ask(capsys, "build", "esp", "--graph", "click", "--out", tmp_path / "file" / "below")
    assert status == 2
    assert "file" in said


def test_labels_are_kept_whatever_they_are(capsys, tmp_path):
    hostile = ['<b>&"quoted"</b>', "x" * 200, "plain"]
    graph = {
        "directed": True,
        "multigraph": False,
        "nodes": [{"id": h} for h in hostile],
        "adjacency": [[{"id": hostile[1]}], [{"id": hostile[0]}, {"id": hostile[2]}], []],
    }
    (tmp_path / "graph.json").write_text(json.dumps(graph))
    assert ask(capsys, "build", "esp", "--graph", tmp_path / "graph.json", "--out", tmp_path / "made")[0] == 0
    from headlab.analyses.systems import system
    from headlab.models.checkpoints import load

    task = system("esp").task(load(tmp_path / "made"))
    assert isinstance(task, EspTask)
    assert task.graph.labels == tuple(hostile)
    assert ask(capsys, "render", tmp_path / "made", "--out", tmp_path / "page.html")[0] == 0
    assert "<b>&" not in (tmp_path / "page.html").read_text()
