"""The command line: one JSON object, one line for a wrong request, no slow import for help."""

import json
import subprocess
import sys

import pytest

from headlab.analyses.cli import COMMANDS, main, parse


def test_help_imports_neither_torch_nor_transformer_lens():
    code = (
        "import sys\nfrom analyses.cli import parse\n"
        "try: parse(['--help'])\nexcept SystemExit as stop: assert stop.code == 0\n"
        "assert not {'torch', 'transformer_lens', 'sklearn', 'pandas'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(command in done.stdout for command in COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["inf", "folder"], "Available subcommands: study, build"),
        (["patch", "folder", "--site", "zz"], "Expected one of ('resid_pre'"),
        (["build", "esp"], "--out PATH"),
        (["evaluate"], "dir"),
        (["claims", "E99"], "no claim 'E99'"),
        (["claims", "--device", "abacus"], "no device 'abacus'"),
        (["claims", "--device", "cpu:7"], "no device 'cpu:7'"),
    ],
)
def test_a_wrong_request_is_one_line_and_status_2(arguments, said, capsys):
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert said in shown.err
    assert "Traceback" not in shown.err


def test_json_is_one_object_and_nothing_else(capsys, tmp_path):
    assert main(["claims", "E3", "--results", str(tmp_path), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["claims"][0]
    assert row["id"] == "E3"
    assert row["verdict"] is None


def test_arguments_arrive_where_they_belong(tmp_path):
    command, options = parse(["build", "esp", "--out", str(tmp_path), "--variant", "two-head", "--tied", "--seed", "3"])
    assert command == "build"
    assert (options.variant, options.tied, options.common.seed) == ("two-head", True, 3)
