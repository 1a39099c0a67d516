"""Sparse parity on the command line: every instrument on models whose answers are known, and bad requests."""

import json

import pytest

from headlab.analyses.cli import main
from headlab.analyses.options.common import Common
from headlab.analyses.options.xor import StudyOptions
from headlab.analyses.study.xor import study


def ask(capsys, *arguments):
    """Run a command with --json; its status and its one JSON object, or what it said."""
    status = main([*map(str, arguments), "--json"])
    shown = capsys.readouterr()
    return status, json.loads(shown.out) if status == 0 else shown.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """limit: constructed; one, small, ffn: trained; all on bits 5 and 11 of 16."""
    root = tmp_path_factory.mktemp("xor")
    common = ["--bits", "16", "--targets", "5", "11", "--json"]
    assert main(["build", "xor", "--out", str(root / "limit"), *common]) == 0
    assert main(["train", "xor", "--out", str(root / "one"), "--seeds", "3", *common]) == 0
    assert main(["train", "xor", "--out", str(root / "small"), "--seeds", "1", "--method", "plain", *common]) == 0
    assert main(["train", "xor", "--out", str(root / "ffn"), "--seeds", "2", "--method", "feed-forward", *common]) == 0
    return root


def test_build_train_and_evaluate_keep_their_keys(capsys, folder):
    capsys.readouterr()
    _, limit = ask(capsys, "evaluate", folder / "limit")
    assert (limit["task"], limit["samples"], limit["one_to_one"]) == ("xor", 4096, True)
    assert limit["loss"] < 1e-10
    assert min(limit["attention_at_targets"]) > 1 - 1e-8
    _, one = ask(capsys, "evaluate", folder / "one", "--count", "128")
    assert one["samples"] == 128
    assert one["loss"] < 1e-6
    _, ffn = ask(capsys, "evaluate", folder / "ffn")
    assert ffn["one_to_one"] is None
    assert ffn["attention_at_targets"] is None
    assert ffn["loss"] < 0.1
    _, info = ask(capsys, "info", folder / "small")
    assert info["recipe"]["name"] == "plain"
    assert info["recorded_steps"] == [0, 1, 2, 4, 8, 16, 32, 64, 128, 200]
    _, again = ask(
        capsys, "train", "xor", "--bits", 16, "--targets", 5, 11, "--seeds", 3, "--out", folder / "one", "--resume"
    )
    assert [run["seed"] for run in again["runs"]] == [0, 1, 2]
    assert again["best"] in [run["dir"] for run in again["runs"]]


def test_three_bits_are_trained_by_normalised_steps(capsys, tmp_path):
    _, found = ask(capsys, "train", "xor", "--bits", 16, "--heads", 3, "--seeds", 2, "--out", tmp_path / "three")
    assert found["heads"] == 3
    assert all(run["one_to_one"] for run in found["runs"])
    assert all(run["steps"] == 150 for run in found["runs"])


def test_align_reads_now_and_over_training(capsys, folder):
    _, found = ask(capsys, "align", folder / "small")
    assert found["alignment"] > 0.99
    assert found["rank"] == 1.0
    assert {head["target"] for head in found["heads"]} == {"target-0", "target-1"}
    assert found["alignment"] > found["chance"]["p95"]
    traced = found["over_training"]
    assert traced["steps"][0] == 0
    assert traced["alignment"][0] < 0.1 < traced["alignment"][-1]
    _, limit = ask(capsys, "align", folder / "limit")
    assert limit["over_training"] is None
    assert [head["target"] for head in limit["heads"]] == ["target-0", "target-1"]
    status, said = ask(capsys, "align", folder / "limit", "--shuffles", 0)
    assert status == 2
    assert "at least one shuffle" in said


def test_score_roles_and_ablation_know_the_heads(capsys, folder):
    _, score = ask(capsys, "score", folder / "one", "--chance-seeds", 16)
    assert score["specialisation"] > 0.99
    assert score["chance"]["sources"]["recipe initialisation"]["p95"] < 0.1
    _, roles = ask(capsys, "roles", folder / "limit")
    assert [row["role"] for row in roles["heads"]] == ["target-0", "target-1"]
    _, lost = ask(capsys, "ablate", folder / "limit", "--kind", "zero", "--groups")
    assert [head["effect"] for head in lost["heads"]] == pytest.approx([1.0, 1.0], abs=1e-5)
    assert lost["groups"][0]["effect"] == pytest.approx(1.0, abs=1e-5)  # one head is enough to answer 0


@pytest.mark.parametrize(("contrast", "expected"), [("target-0", [1, 0]), ("target-1", [0, 1]), ("background", None)])
def test_patching_shows_which_head_carries_which_bit(capsys, folder, contrast, expected):
    _, found = ask(capsys, "patch", folder / "limit", "--contrast", contrast, "--site", "z")
    assert found["contrasts"] == ["target-0", "target-1", "background"]
    if expected is None:
        assert found["normalised"] is None
        assert "nothing to recover" in found["why_not_normalised"]
        return
    (layer,) = found["normalised"]
    at_cls = [head[-1] for head in layer]
    assert at_cls == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("ablation", ["resample", "positional_mean", "mean", "zero", "resample:target-1"])
def test_the_known_circuit_is_recovered(capsys, folder, ablation):
    _, found = ask(capsys, "circuit", folder / "limit", "--ablation", ablation, "--count", 24)
    assert found["recovery"]["auroc"] == 1.0
    assert found["recovery"]["average_precision"] == 1.0
    assert found["recovery"]["smallest_true"] > 0.3
    # a mean over positions carries the sample's mean bit into the CLS, where it is not exactly 0
    assert found["recovery"]["largest_false"] < (0.1 if ablation == "mean" else 0.01)


def test_learned_beside_constructed(capsys, folder):
    _, found = ask(capsys, "compare", folder / "one", folder / "limit")
    assert found["function"]["r2"] == pytest.approx(1.0)
    assert found["in_use"] > 0.99
    assert found["qk"] > 0.5 > found["chance"]["qk"]["p95"]


def test_render_writes_a_page_without_requests(capsys, folder, tmp_path):
    _, found = ask(capsys, "render", folder / "one", "--out", tmp_path / "one.svg")
    assert found["figures"] == ["circuit"]
    assert "x5" in (tmp_path / "one.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["build", "xor", "--bits", 1], "at least 2 bits"),
        (["build", "xor", "--bits", 8, "--targets", 3, 3], "named twice"),
        (["build", "xor", "--bits", 8, "--targets", 0, 8], "positions count from 0 to 7"),
        (["build", "xor", "--bits", 2, "--targets", 0, 1, 0], "more targets than bits"),
        (["build", "xor", "--bits", 8, "--width", 0], "at least 1 dimension"),
        (["build", "xor", "--bits", 8, "--width", 1], "no query tells them apart"),
        (["build", "xor", "--bits", 8, "--scale", "-2"], "positive and finite"),
        (["build", "xor", "--variant", "two-head"], "there is limit"),
        (["train", "xor", "--bits", 8, "--heads", 3, "--targets", 0, 1], "one head per target"),
        (["train", "xor", "--bits", 8, "--heads", 0], "at least 1"),
        (["train", "xor", "--bits", 8, "--seeds", 0], "train at least 1"),
        (["train", "xor", "--bits", 8, "--heads", 7], "1 to 6 heads"),
        (["train", "xor", "--bits", 8, "--heads", 3, "--start", "antisymmetric"], "cannot start as pairs"),
        (["train", "xor", "--bits", 8, "--method", "plain", "--size", "1e300", "--attention", "linear"], "overflows"),
        (["train", "xor", "--bits", 8, "--method", "plain", "--size", "nan"], "positive and finite"),
        (["train", "xor", "--bits", 8, "--method", "plain", "--steps", 0], "at least 1"),
        (["train", "xor", "--bits", 8, "--samples", 0], "at least one"),
        (["train", "xor", "--bits", 100000], "too long for a transformer"),
        (["train", "xor", "--bits", 8, "--method", "feed-forward", "--neurons", 0], "at least 1"),
        (["study", "xor", "--quick", "--device", "meta"], "there is no device"),
    ],
)
def test_bad_requests_are_one_sentence_and_leave_nothing(capsys, tmp_path, arguments, said):
    status, told = ask(capsys, *arguments, "--out", tmp_path / "out")
    assert status == 2
    assert said in told
    assert told.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_network_has_no_heads_to_score(capsys, folder):
    for command in ("score", "align", "roles", "ablate", "patch", "circuit"):
        status, told = ask(capsys, command, folder / "ffn")
        assert status == 2
        assert "network without heads" in told
        assert told.count("\n") == 1
    status, told = ask(capsys, "compare", folder / "limit", folder / "ffn")
    assert status == 2
    assert "network without heads" in told


def test_the_study_refuses_a_device_that_it_does_not_use(tmp_path):
    with pytest.raises(ValueError, match="on the CPU, not on cuda"):
        study.run(StudyOptions(out=tmp_path / "out", common=Common(device="cuda")))
    assert not (tmp_path / "out").exists()
