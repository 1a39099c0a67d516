"""The command line: arguments in, one command run, one answer out.

Exit status: 0 done, 1 the work failed, 2 the request was wrong (one line on stderr). What a command needs is imported
when it runs, so that help answers at once.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Union

import tyro

from headlab.analyses.options import all as all_systems
from headlab.analyses.options import esp, instruments, retrieval, sweep, tree, xor


def _named(options: Any, name: str) -> Any:
    return Annotated[options, tyro.conf.subcommand(name=name, prefix_name=False)]


def _choice(**options: Any) -> Any:
    """Several classes of options as subcommands by name."""
    return Union[tuple(_named(each, name) for name, each in options.items())]  # noqa: UP007


@dataclass(frozen=True)
class Study:
    """Train, construct, analyse, and write the report of one system or of all."""

    task: _choice(  # type: ignore[valid-type]
        esp=esp.StudyOptions,
        tree=tree.StudyOptions,
        xor=xor.StudyOptions,
        retrieval=retrieval.StudyOptions,
        all=all_systems.StudyOptions,
    )


@dataclass(frozen=True)
class Build:
    """Constructed weights into a checkpoint."""

    task: _choice(  # type: ignore[valid-type]
        esp=esp.BuildOptions, tree=tree.BuildOptions, xor=xor.BuildOptions, retrieval=retrieval.BuildOptions
    )


@dataclass(frozen=True)
class Train:
    """Learned weights into checkpoints."""

    task: _choice(  # type: ignore[valid-type]
        esp=esp.TrainOptions, tree=tree.TrainOptions, xor=xor.TrainOptions, retrieval=retrieval.TrainOptions
    )


COMMANDS: dict[str, type] = {
    "study": Study,
    "build": Build,
    "train": Train,
    "evaluate": instruments.Evaluate,
    "ablate": instruments.Ablate,
    "patch": instruments.Patch,
    "score": instruments.Score,
    "roles": instruments.Roles,
    "align": instruments.Align,
    "circuit": instruments.Circuit,
    "compare": instruments.Compare,
    "certify": instruments.Certify,
    "render": instruments.Render,
    "info": instruments.Info,
    "heads-needed": retrieval.HeadsNeeded,
    "sweep": sweep.Sweep,
    "claims": instruments.Claims,
    "bench": instruments.Bench,
    "notebooks": instruments.Notebooks,
}

_CONFIG = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff)
_REQUEST_ERRORS = (ValueError, KeyError, IndexError, OSError, ImportError)


def parse(arguments: Sequence[str]) -> tuple[str, Any]:
    """The command's name and its options. Raises ValueError with one sentence where the arguments are wrong."""
    union = _choice(**COMMANDS)
    arguments = list(arguments)
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            options: Any = tyro.cli(union, args=list(arguments), prog="headlab", config=_CONFIG, description=__doc__)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise ValueError(_one_line(errors.getvalue())) from None
    command = next(name for name, kind in COMMANDS.items() if isinstance(options, kind))
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
    told = [s for i, s in enumerate(sections) if i == 0 or (s and s[0].startswith("Available subcommands"))]
    return f"{'; '.join(' '.join(section) for section in told).rstrip('.')}. See headlab --help"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the return value is the exit status."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    debug = bool(os.environ.get("HEADLAB_DEBUG"))
    try:
        command, options = parse(arguments)
    except ValueError as error:
        print(f"headlab: {error}", file=sys.stderr)
        return 2
    module = importlib.import_module(f"headlab.analyses.commands.{command.replace('-', '_')}")
    try:
        import torch

        torch.set_num_threads(1)
        _require_device(options.common.device)
        result = module.run(options)
    except _REQUEST_ERRORS as error:
        if debug:
            raise
        print(f"headlab: {_sentence(error)}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        if debug:
            raise
        print(f"headlab: the work failed: {_sentence(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("headlab: interrupted; what was finished is kept, nothing half-written is left", file=sys.stderr)
        return 130
    if options.common.json:
        print(json.dumps(result, allow_nan=False))
    else:
        module.show(result)
    return module.status(result) if hasattr(module, "status") else 0


def _require_device(name: str) -> None:
    """Raise ValueError, with what there is, where `name` is no torch device of this machine."""
    import torch

    kinds = ["cpu"] + ["cuda"] * torch.cuda.is_available() + ["mps"] * torch.backends.mps.is_available()
    kind, _, number = name.partition(":")
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if kind not in kinds or (number and not (number.isdigit() and int(number) < count)):
        raise ValueError(f"there is no device '{name}' on this machine: there is {', '.join(kinds)}")


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return " ".join(text.split()) or type(error).__name__


def run() -> None:
    """The `headlab` program."""
    sys.exit(main())


if __name__ == "__main__":
    run()
