"""`headlab calibrate`: an instrument, held to models whose circuit is certain."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any, cast

from headlab.analyses.calibrate.instruments import BUILT_IN
from headlab.analyses.calibrate.ladder import NAMES
from headlab.analyses.calibrate.page import page
from headlab.analyses.calibrate.protocol import APART, Calibration, calibrate
from headlab.analyses.calibrate.record import load_record, tables
from headlab.analyses.calibrate.summary import by_kind, quote
from headlab.analyses.calibrate.tasks import SETTINGS
from headlab.analyses.calibrate.view import Method
from headlab.analyses.commands.tables import print_table
from headlab.analyses.options.calibrate import Calibrate
from headlab.analyses.study.folder import write_file
from headlab.interp.errors import MissingFile, RequestError, UnknownName


def run(options: Calibrate) -> dict[str, Any]:
    """The JSON of `headlab calibrate`: `cells`, `rungs`, `methods` (passed, scored and first broken rung per kind, with
    a sentence), `quote`; with --list what there is.

    Raises RequestError for no method, a file or function that does not exist, or a count below 1.
    """
    if options.list:
        return {
            "tasks": list(SETTINGS),
            "rungs": list(NAMES),
            "apart": list(APART),
            "instruments": {level: list(methods) for level, methods in BUILT_IN.items()},
        }
    if options.method is None:
        raise RequestError("no method was named: give FILE.py:FUNCTION or a built-in one, see headlab calibrate --list")
    if options.seeds < 1 or options.jobs < 1 or not options.limit > 0:
        raise RequestError("--seeds, --jobs and --limit must be at least 1, 1 and above 0")
    name, method = load_method(options.method, options.level)
    found = calibrate(
        {name: method},
        level=options.level,
        tasks=options.tasks or None,
        rungs=options.rungs or None,
        quick=options.quick,
        apart=options.apart,
        seeds=range(options.common.seed, options.common.seed + options.seeds),
        limit=options.limit,
        jobs=options.jobs,
        details=options.out is not None,
        progress=None if options.common.json else lambda text: print(text, file=sys.stderr),
    )
    result = {
        "method": name,
        "level": options.level,
        "seeds": options.seeds,
        **tables(found, reference=name),
        "problems": _problems(found),
        "quote": quote(found, name),
        "sentences": [summary.sentence for summary in by_kind(found, name)],
    }
    if options.out is not None:
        result["page"] = str(options.out / "calibration.html")
        write_file(options.out / "calibration.json", json.dumps(result, indent=1).encode())
        write_file(options.out / "calibration.html", page(found, _record()).encode())
    return result


def _record() -> dict[str, Any] | None:
    try:
        return load_record()
    except FileNotFoundError:
        return None


def _problems(found: Calibration) -> list[dict[str, Any]]:
    return [
        {"task": cell.task, "rung": cell.rung, "kind": cell.kind, "seed": cell.seed, "problem": cell.problem}
        for cell in found.cells
        if cell.problem
    ]


def load_method(text: str, level: str) -> tuple[str, Method]:
    """The name and the method behind FILE.py:FUNCTION, or a built-in instrument's name.

    Raises UnknownName for a built-in or a function that does not exist, MissingFile for a file, RequestError for a file
    that cannot be imported or what is no function.
    """
    if ".py:" not in text:
        if text not in BUILT_IN[level]:
            known = ", ".join(BUILT_IN[level])
            raise UnknownName(f"no instrument '{text}' for {level}: give FILE.py:FUNCTION, or one of {known}")
        return text, BUILT_IN[level][text]
    file, _, function = text.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise MissingFile(f"there is no file {path}: give FILE.py:FUNCTION")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where worker processes look the function's module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise RequestError(f"{path} cannot be imported ({type(error).__name__}: {error})") from error
    if not hasattr(module, function):
        raise UnknownName(f"{path} has no function '{function}'")
    method = getattr(module, function)
    if not callable(method):
        raise RequestError(f"'{function}' in {path} is no function: a method takes a view and gives scores")
    return function, cast("Method", method)


def show(result: dict[str, Any]) -> None:
    """Print it for a reader."""
    if "instruments" in result:
        for name in ("tasks", "rungs", "apart"):
            print(f"{name}: {', '.join(result[name])}")
        for level, names in result["instruments"].items():
            print(f"built in, {level}: {', '.join(names)}")
        return
    head = ["task", "rung", "kind", "AUROC", "faithfulness", "recall at 5 %", "scored"]
    keys = ("auroc", "faithfulness", "recall")
    rows = [
        [row["task"], row["rung"], row["kind"], *(row[key] for key in keys), f"{row['scored']}/{row['seeds']}"]
        for row in result["cells"]
    ]
    print_table(head, rows, title=f"{result['method']}, {result['level']}")
    for each in result["problems"]:
        print(f"{each['task']}, {each['rung']}, {each['kind']}, seed {each['seed']}: {each['problem']}")
    for sentence in result["sentences"]:
        print(sentence)
    print(result["quote"])
    if "page" in result:
        print(f"page: {result['page']}")
