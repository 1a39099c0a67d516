"""Path finding on the command line: build, evaluate, train, the instruments, and requests that cannot be met."""

import json
from pathlib import Path

import pytest

from headlab.analyses.bench.generation import measure
from headlab.analyses.cli import main
from headlab.analyses.options.tree import TrainOptions
from headlab.analyses.systems import tree as system
from headlab.models.checkpoints import load


def ask(capsys, *arguments):
    """Run a command with --json; its status and its one JSON object."""
    status = main([*map(str, arguments), "--json"])
    shown = capsys.readouterr()
    return status, json.loads(shown.out) if status == 0 else shown.err


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Constructed checkpoints: variant -> folder."""
    root = tmp_path_factory.mktemp("built")
    for variant in ("forward", "backward"):
        arguments = ["build", "tree", "--variant", variant, "--depth", 3, "--vocabulary", 24, "--out", root / variant]
        assert main([*map(str, arguments), "--json"]) == 0
    return root


def test_constructed_models_are_exact(capsys, built):
    capsys.readouterr()
    for variant, heads in (("forward", 2), ("backward", 1)):
        _, found = ask(capsys, "evaluate", built / variant, "--count", 40)
        assert (found["task"], found["paths"], found["path_accuracy"], found["token_accuracy"]) == (
            "tree",
            40,
            1.0,
            1.0,
        )
        _, info = ask(capsys, "info", built / variant)
        assert info["config"]["config"]["n_heads"] == heads


def test_every_instrument_takes_them(capsys, built):
    capsys.readouterr()
    folder = built / "forward"
    _, scored = ask(capsys, "score", folder, "--chance-seeds", 3)
    assert scored["specialisation"] >= 0.995
    assert scored["chance"]["sources"]["recipe initialisation"]["median"] <= 0.01
    _, roles = ask(capsys, "roles", folder)
    assert [row["role"] for row in roles["heads"]] == ["backward", "reverse"]
    assert min(row["causal"] for row in roles["heads"]) > 0.5
    _, lost = ask(capsys, "ablate", folder, "--count", 32, "--metric", "backward")
    assert lost["heads"][0]["effect"] > 0.5
    assert lost["heads"][1]["effect"] == 0.0
    _, patched = ask(capsys, "patch", folder, "--contrast", "predecessor", "--count", 8)
    share = patched["normalised"][0]
    assert max(map(max, share)) == max(share[1]) == pytest.approx(1.0)
    assert max(map(abs, share[0])) == 0.0
    for ablation in ("resample:goal", "resample:edge", "resample:predecessor"):
        _, circuit = ask(capsys, "circuit", folder, "--ablation", ablation, "--count", 48)
        assert circuit["recovery"]["auroc"] == 1.0
    _, alike = ask(capsys, "compare", folder, folder)
    assert alike["qk"] == pytest.approx(1.0)


def test_a_picture_of_it(capsys, built, tmp_path):
    status, _ = ask(capsys, "render", built / "forward", "--out", tmp_path / "tree.svg")
    assert status == 0
    assert "back" in (tmp_path / "tree.svg").read_text("utf-8")


SMALL = ("--vocabulary", 10, "--depth", 2, "--nodes", 5, "--steps", 6, "--batch", 4, "--seeds", 2, "--paths", 8)


@pytest.mark.parametrize(
    "more",
    [
        ("--d-model", 12, "--d-head", 4),
        ("--recipe", "frozen-labels", "--label-width", 6, "--d-head", 4),
        ("--recipe", "plain-descent"),
        ("--recipe", "curriculum", "--shape", "path", "--depth", 1, 2, "--d-model", 12, "--d-head", 4),
        ("--no-chain-of-thought", "--layers", 2, "--d-model", 12, "--d-head", 4),
        ("--form", "plain", "--direction", "backward", "--d-model", 12, "--d-head", 4),
    ],
)
def test_every_recipe_trains_evaluates_and_resumes(capsys, tmp_path, more):
    arguments = ("train", "tree", *SMALL, *more, "--out", tmp_path / "runs")
    status, found = ask(capsys, *arguments)
    assert status == 0, found
    assert (found["task"], len(found["runs"])) == ("tree", 2)
    assert {run["seed"] for run in found["runs"]} == {0, 1}
    assert found["best"] in [run["dir"] for run in found["runs"]]
    _, evaluated = ask(capsys, "evaluate", found["best"], "--count", 8)
    best = next(run for run in found["runs"] if run["dir"] == found["best"])
    assert 0 <= evaluated["path_accuracy"] <= 1
    assert best["steps"] == 6
    again = ask(capsys, *arguments, "--resume")[1]
    assert again["runs"] == found["runs"]


def test_untrained_peers_keep_what_does_not_train(capsys, tmp_path):
    ask(capsys, "train", "tree", *SMALL, "--recipe", "frozen-labels", "--d-head", 4, "--out", tmp_path)
    checkpoint = load(tmp_path)
    one, other = (system.untrained(checkpoint, seed) for seed in (0, 1))
    assert one.embed.W_A.equal(checkpoint.model.embed.W_A)
    assert not one.W_Q.equal(other.W_Q)
    assert system.constructed(checkpoint).variant == "forward"
    plain = load(tmp_path)
    assert system.task(plain).options() == dict(checkpoint.task_options)


def test_the_construction_that_a_checkpoint_holds_is_made_again(built):
    checkpoint = load(built / "backward")
    again = system.constructed(checkpoint).model
    assert again.W_Q.equal(checkpoint.model.W_Q)


def test_a_tree_from_a_file(capsys, tmp_path):
    (tmp_path / "tree.txt").write_text("a b\nb c\na d\n")
    status, found = ask(
        capsys,
        "build",
        "tree",
        "--tree",
        tmp_path / "tree.txt",
        "--goal",
        "c",
        "--vocabulary",
        8,
        "--out",
        tmp_path / "x",
    )
    assert status == 0
    assert found["metrics"]["errors"] == 0
    assert load(tmp_path / "x").task_options["given"]["names"] == ["a", "b", "d", "c"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("build", "--depth", 0), "one node has no path"),
        (("build", "--depth", 1000, "--vocabulary", 4000, "--label-width", 9), "beyond the context"),
        (("build", "--depth", 9, "--shape", "binary"), "use more labels"),
        (("build", "--goal", "z"), "give the file with --tree"),
        (("build", "--tree", "/nowhere.txt"), "no tree file"),
        (("build", "--variant", "sideways"), "there are backward, forward"),
        (("build", "--beta", 0), "beta is 0"),
        (("train", "--recipe", "curriculum"), "a curriculum needs two depths"),
        (("train", "--recipe", "plain-descent", "--layers", 2), "one layer on pair tokens"),
        (("train", "--seeds", 0), "train at least 1"),
        (("train", "--heads", 0), "0 heads in 1 layers"),
    ],
)
def test_bad_requests_are_one_line_and_status_2(capsys, tmp_path, arguments, words):
    command, *rest = arguments
    status = main([command, "tree", *map(str, rest), "--out", str(tmp_path / "x")])
    shown = capsys.readouterr().err.strip()
    assert status == 2
    assert words in shown
    assert "\n" not in shown
    assert not (tmp_path / "x").exists()


def test_what_is_no_tree_is_named(capsys, tmp_path):
    (tmp_path / "cycle.txt").write_text("a b\nb c\nc b\n")
    assert main(["build", "tree", "--tree", str(tmp_path / "cycle.txt"), "--out", str(tmp_path / "x")]) == 2
    assert "the cycle b -> c -> b" in capsys.readouterr().err


def test_options_make_the_plan_they_name():
    plan = system.plan(TrainOptions(Path("x"), depth=(3, 5), shape="binary", recipe="curriculum", steps=50))
    assert [stage.steps for stage in plan.stages] == [30, 20]
    assert [stage.batch for stage in plan.stages] == [64, 64]
    assert plan.recipe.steps == 50
    assert system.plan(TrainOptions(Path("x"), lr=0.5)).recipe.lr == 0.5


def test_generation_and_its_peer_write_the_same_tokens():
    found = measure(3, 2, pairs=2)
    assert found["max_difference"] == 0.0
    # One fused product makes queries for the prompt too, which nobody asks: more arithmetic than the floor, less time.
    assert found["work"]["floor"] <= found["work"]["ours"] <= 1.25 * found["work"]["floor"]
    assert found["ratio"]["min"] <= found["ratio"]["median"] <= found["ratio"]["max"]
