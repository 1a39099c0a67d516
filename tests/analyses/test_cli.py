"""The command line: one JSON object, one line for a wrong request, no slow import for help."""

import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from headlab.analyses.cli import commands, main, parse
from headlab.interp.errors import RequestError, UnknownName, WorkFailed


def test_help_imports_neither_torch_nor_transformer_lens():
    code = (
        "import sys\nfrom headlab.analyses.cli import parse\n"
        "try: parse(['--help'])\nexcept SystemExit as stop: assert stop.code == 0\n"
        "assert not {'torch', 'transformer_lens', 'sklearn', 'pandas'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(command in done.stdout for command in commands())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["inf", "folder"], "no command 'inf' (did you mean 'info'?): there are study, build"),
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
    (row,) = json.loads(capsys.readouterr().out)["claims"]
    assert row["id"] == "E3"
    assert row["command"].startswith("headlab study esp")


def test_arguments_arrive_where_they_belong(tmp_path):
    command, options = parse(["build", "esp", "--out", str(tmp_path), "--variant", "two-head", "--tied", "--seed", "3"])
    assert command == "build"
    assert (options.variant, options.tied, options.common.seed) == ("two-head", True, 3)


class _Command:
    """A command that raises, or returns, what it is given."""

    def __init__(self, outcome):
        self.outcome = outcome

    def run(self, options):
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome

    def show(self, result):
        print(result)


def _run(outcome, monkeypatch, *arguments):
    monkeypatch.delenv("HEADLAB_DEBUG", raising=False)
    monkeypatch.setitem(sys.modules, "headlab.analyses.commands.claims", _Command(outcome))
    return main(["claims", *arguments])


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (RequestError("no such thing: there are a, b"), 2, "no such thing: there are a, b"),
        (UnknownName("no 'c': there are a, b"), 2, "no 'c': there are a, b"),
        (WorkFailed("a worker died"), 1, "the work failed: a worker died"),
        (FileNotFoundError(errno.ENOENT, "No such file", "here.toml"), 2, "here.toml: No such file"),
        (OSError(errno.ENOSPC, "No space left on device", "out"), 1, "out: No space left on device"),
        (
            MemoryError("Unable to allocate 9 TiB"),
            1,
            "not enough memory for 'headlab claims' (Unable to allocate 9 TiB)",
        ),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"),
            1,
            "not enough memory",
        ),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_each_kind_of_error_has_its_status_and_one_line(error, status, sentence, monkeypatch, capsys):
    assert _run(error, monkeypatch) == status
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"headlab: {sentence}")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize("error", [KeyError("step"), ValueError("shapes differ"), AssertionError(), TypeError("x")])
def test_a_fault_of_the_program_is_one_line_that_names_the_log_of_its_traceback(error, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert _run(error, monkeypatch, "--json") == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    (log,) = tmp_path.iterdir()
    assert str(log) in shown.err
    text = log.read_text()
    assert text.startswith("headlab claims --json\n")
    assert "Traceback" in text
    assert type(error).__name__ in text
    monkeypatch.setenv("HEADLAB_DEBUG", "1")
    with pytest.raises(type(error)):
        main(["claims"])


def test_json_never_holds_a_number_that_is_not_finite(monkeypatch, capsys):
    assert _run({"rows": [{"loss": 1.0}, {"loss": float("nan")}]}, monkeypatch, "--json") == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "not finite, at 'rows.1.loss'" in shown.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize("arguments", [["claims", "--json"], ["claims"]])
def test_a_closed_pipe_and_a_full_device_end_quietly(arguments):
    command = [sys.executable, "-m", "headlab.analyses.cli", *arguments]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
    with open("/dev/full", "w") as device:
        done = subprocess.run(command, stdout=device, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "headlab: the work failed: the output cannot be written: No space left on device\n"
