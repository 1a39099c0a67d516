"""The command line: arguments in, one command run, one answer out.

Exit status: 0 done, 1 the work failed, 2 the request was wrong (one line on stderr). What a command needs is imported
when it runs, so that help answers at once.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import importlib
import io
import json
import math
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import make_dataclass
from typing import Annotated, Any, Union

import tyro

from headlab.analyses.options import instruments
from headlab.analyses.options.all import StudyOptions as StudyOfAllOptions
from headlab.analyses.options.calibrate import Calibrate
from headlab.analyses.options.retrieval import HeadsNeeded
from headlab.analyses.options.sweep import SweepOptions
from headlab.analyses.tasks import TASKS, task_entry
from headlab.interp.errors import RequestError, WorkFailed
from headlab.models.manifest import read_checkpoint, resolve


def _named(options: Any, name: str) -> Any:
    return Annotated[options, tyro.conf.subcommand(name=name, prefix_name=False)]


def _choice(**options: Any) -> Any:
    """Several classes of options as subcommands by name."""
    return Union[tuple(_named(each, name) for name, each in options.items())]  # noqa: UP007


def commands() -> dict[str, Any]:
    """name -> class of the arguments of every command; those of study, build and train are a class for each task."""

    def for_each_task(kind: str, text: str, **more: Any) -> type:
        options = {name: getattr(entry.options, kind) for name, entry in TASKS.items()}
        return make_dataclass(kind, [("task", _choice(**options, **more))], frozen=True, namespace={"__doc__": text})

    return {
        "study": for_each_task(
            "StudyOptions",
            "Train, construct, analyse, and write the report of one task or of all.",
            all=StudyOfAllOptions,
        ),
        "build": for_each_task("BuildOptions", "Constructed weights into a checkpoint."),
        "train": for_each_task("TrainOptions", "Learned weights into checkpoints."),
        "evaluate": instruments.Evaluate,
        "ablate": instruments.Ablate,
        "patch": instruments.Patch,
        "score": instruments.Score,
        "roles": instruments.Roles,
        "align": instruments.Align,
        "circuit": instruments.CircuitOptions,
        "compare": instruments.Compare,
        "certify": instruments.Certify,
        "render": instruments.Render,
        "info": instruments.Info,
        "heads-needed": HeadsNeeded,
        "sweep": SweepOptions,
        "claims": instruments.Claims,
        "bench": instruments.Bench,
        "calibrate": Calibrate,
        "notebooks": instruments.Notebooks,
    }


_CONFIG = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff)
_DEVICE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM)
_MEMORY = re.compile("out of memory|can't allocate memory|not enough memory", re.IGNORECASE)


def parse(arguments: Sequence[str]) -> tuple[str, Any]:
    """The command's name and its options.

    Args:
        arguments: The words after `headlab`.

    Raises:
        RequestError: The arguments are wrong.
        SystemExit: Help was asked for, and is printed.
    """
    kinds, words, program = commands(), list(arguments), "headlab"
    name = words[0] if words and not words[0].startswith("-") else None
    if name is not None and name not in kinds:
        near = difflib.get_close_matches(name, kinds, n=1)
        hint = f" (did you mean '{near[0]}'?)" if near else ""
        raise RequestError(f"there is no command '{name}'{hint}: there are {', '.join(kinds)}. See headlab --help")
    if name is not None:  # the parser of one command is soon built
        words, program = words[1:], f"headlab {name}"
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            options: Any = tyro.cli(
                _choice(**kinds) if name is None else kinds[name],
                args=words,
                prog=program,
                config=_CONFIG,
                description=__doc__ if name is None else None,
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise RequestError(f"{_one_line(errors.getvalue())}. See {program} --help") from None
    command = name or next(each for each, kind in kinds.items() if isinstance(options, kind))
    return command, options if not hasattr(options, "task") else options.task


def _one_line(panel: str) -> str:
    """The sentences of an error panel (boxed, or ruled where the output is not UTF-8), and where to find help."""
    rows = [re.sub(r"^[│|]\s?|\s*[│|]$", "", row).strip() for row in panel.splitlines()]
    rows = [row for row in rows if row and not row.startswith(("╭", "╰"))]
    sections: list[list[str]] = [[]]
    for row in rows:
        if re.fullmatch(r"[─-]+", row):
            sections.append([])
        else:
            sections[-1].append(row)
    if "╭" not in panel:
        sections = sections[1:] or sections  # the ruled form puts its title into a section of its own
    sentences = [s for i, s in enumerate(sections) if i == 0 or (s and s[0].startswith("Available subcommands"))]
    return "; ".join(" ".join(section) for section in sentences).rstrip(".")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the return value is the exit status.

    Args:
        arguments: The words after `headlab`; those of the process where None.

    Returns:
        0 done; 1 the work failed, or the program has a fault (its traceback is in the log that the line names, or is
        raised where HEADLAB_DEBUG is set); 2 the request was wrong; 130 interrupted; 141 the reader of the output left.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        command, options = parse(arguments)
        _require_checkpoints(options)
        _require_device(options.common.device)
        module = importlib.import_module(f"headlab.analyses.commands.{command.replace('-', '_')}")
        _one_thread()
        result = module.run(options)
        return _write(module, result, options.common.json)
    except KeyboardInterrupt:
        print("headlab: interrupted; finished work is kept, nothing is half written", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _close_output()
        return 141
    except Exception as error:
        if os.environ.get("HEADLAB_DEBUG"):
            raise
        status, sentence = report(error, arguments)
        print(f"headlab: {sentence}", file=sys.stderr)
        return status


def _write(module: Any, result: Any, as_json: bool) -> int:
    """Print the result; the command's exit status."""
    if as_json:
        try:
            text = json.dumps(result, allow_nan=False)
        except ValueError:
            raise WorkFailed(f"the result holds a number that is not finite, at {_not_finite(result)}") from None
    try:
        if as_json:
            print(text)
        else:
            module.show(result)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except SystemExit:  # how rich reacts to a reader that has left
        raise BrokenPipeError from None
    except OSError as error:
        _close_output()
        raise WorkFailed(f"the output cannot be written: {error.strerror}") from None
    return module.status(result) if hasattr(module, "status") else 0


def _close_output() -> None:
    """Send what is still buffered nowhere, so that the interpreter does not fail on it when it ends."""
    with contextlib.suppress(OSError, ValueError):  # a stream without a file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _not_finite(value: Any, path: str = "") -> str:
    """Where the first number stands that is NaN or infinite; empty where there is none."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"'{path}'"
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    return next(filter(None, (_not_finite(each, f"{path}.{key}".lstrip(".")) for key, each in items)), "")


def report(error: Exception, arguments: Sequence[str]) -> tuple[int, str]:
    """The exit status that belongs to an error, and one sentence about it.

    Args:
        error: What a command raised.
        arguments: The words of the command line, for a fault's log.
    """
    text = " ".join(str(error).split())
    if isinstance(error, RequestError):
        return 2, text
    if isinstance(error, WorkFailed):
        return 1, f"the work failed: {text}"
    command = " ".join(["headlab", *arguments])
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _MEMORY.search(text)):
        return 1, f"not enough memory for '{command}' ({text or 'refused'}): ask for a smaller model, batch or graph"
    if isinstance(error, OSError) and error.filename is not None:
        return (1 if error.errno in _DEVICE_ERRORS else 2), f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.errno in _DEVICE_ERRORS:
        return 1, f"the work failed: {error.strerror}"
    with tempfile.NamedTemporaryFile(
        "w", prefix="headlab-", suffix=".log", delete=False, encoding="utf-8", errors="backslashreplace"
    ) as log:
        log.write(f"{command}\n\n{''.join(traceback.format_exception(error))}")
    return 1, f"a fault of the program ({type(error).__name__}: {text or 'no message'}); the traceback is in {log.name}"


def _require_checkpoints(options: Any) -> None:
    """Raise RequestError for a folder that is not a checkpoint's, before torch is imported, which takes seconds."""
    for name in ("dir", "dir_a", "dir_b"):
        if hasattr(options, name):
            task_entry(read_checkpoint(resolve(getattr(options, name)))["task"])


def _require_device(name: str) -> None:
    """Raise RequestError, with what there is, where `name` is not a torch device of this machine."""
    kind, _, number = name.partition(":")
    if name == "cpu":
        return
    if kind not in ("cpu", "cuda", "mps"):
        raise RequestError(f"there is no device '{name}': write cpu, cuda, cuda:N or mps")
    import torch

    kinds = ["cpu"] + ["cuda"] * torch.cuda.is_available() + ["mps"] * torch.backends.mps.is_available()
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if kind not in kinds or (number and not (number.isdigit() and int(number) < count)):
        raise RequestError(f"there is no device '{name}' on this machine: there is {', '.join(kinds)}")


def _one_thread() -> None:
    """One thread of linear algebra, whether the command has imported torch or will."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def run() -> None:
    """The `headlab` program."""
    sys.exit(main())


if __name__ == "__main__":
    run()
