"""What a checkpoint's folder says about itself, read without its tensors: no torch is imported.

Of a folder of many runs (`runs.json`), the best run's checkpoint is meant.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from headlab.interp.errors import MissingFile, RequestError, UnknownName

MANIFEST = "checkpoint.json"
FORMAT = 1
KIND = "checkpoint"
RUNS = "runs.json"
_KEYS = ("architecture", "dtype", "task", "task_options", "variant", "recipe", "seed", "metrics", "history")


def read(directory: str | Path, kind: str, *, name: str = MANIFEST) -> dict[str, Any]:
    """The manifest of the bundle in `directory`; `name` is its file's.

    Raises FileNotFoundError where there is no such folder, ValueError where it is foreign, damaged, of another kind, or
    of a format that this version does not read (both formats are named).
    """
    directory = Path(directory)
    if not directory.exists():
        raise MissingFile(f"there is no folder '{directory}'")
    path = directory / name
    if not path.is_file():
        raise RequestError(f"'{directory}' is not a headlab {kind}: it has no {name}")
    manifest = read_json(path)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int) or "kind" not in manifest:
        raise RequestError(f"'{directory}' is not a headlab {kind}: its {name} was written by something else")
    number = manifest["format"]
    if number != FORMAT:
        age = "newer" if number > FORMAT else "older"
        remedy = "install a newer headlab" if number > FORMAT else "train or build it again"
        raise RequestError(
            f"'{directory}' has {kind} format {number}, {age} than the format {FORMAT} "
            f"that this headlab reads: {remedy}"
        )
    if manifest["kind"] != kind:
        raise RequestError(f"'{directory}' holds a {manifest['kind']}, not a {kind}")
    return manifest


def read_checkpoint(directory: str | Path) -> dict[str, Any]:
    """The manifest of the checkpoint in `directory`, with every entry that a checkpoint has; errors as for `read`."""
    manifest = read(directory, KIND)
    for key in _KEYS:
        if key not in manifest:
            raise RequestError(f"'{directory}' is damaged: its {MANIFEST} has no '{key}'")
    return manifest


def read_part(directory: str | Path, manifest: Mapping[str, Any], part: str) -> bytes:
    """The content of the file of one part of the tensors, checked against the manifest's checksum.

    Raises UnknownName where there is no such part, MissingFile where its file is gone, RequestError for a damaged one.
    """
    files = manifest.get("files", {})
    if part not in files:
        raise UnknownName(f"'{directory}' holds no {part}; it holds {', '.join(files) or 'no tensors'}")
    name = Path(str(files[part]["file"])).name
    path = Path(directory) / name
    if not path.is_file():
        raise MissingFile(f"'{directory}' is damaged: its file {name} is missing")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != files[part]["sha256"]:
        raise RequestError(f"'{path}' is damaged: its content does not match the checksum in {MANIFEST}")
    return content


def count_numbers(content: bytes) -> int:
    """How many numbers a safetensors file holds, from the shapes in its header (8 bytes of its size, then JSON)."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return sum(prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")


def load_runs(directory: str | Path) -> dict[str, Any]:
    """What `save_runs` wrote: at least `runs` and `best`.

    Raises FileNotFoundError where there is no such folder, ValueError where it holds no runs or is damaged.
    """
    return read(directory, "runs", name=RUNS)


def resolve(directory: str | Path) -> Path:
    """The checkpoint folder meant by `directory`: itself, or the best run's where it is a folder of many runs."""
    directory = Path(directory)
    if not (directory / RUNS).is_file():
        return directory
    return directory / Path(str(load_runs(directory)["best"])).name


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises RequestError where it is damaged."""
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise RequestError(f"'{path}' is damaged: it is not JSON ({error})") from error
