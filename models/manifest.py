"""What a checkpoint's folder says about itself, read without its tensors: no torch is imported.

Of a folder of many runs (`runs.json`), the best run's checkpoint is meant.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from headlab.interp.errors import MissingFile, RequestError, UnknownName

MANIFEST = "checkpoint.json"
FORMAT = 1
CHECKSUM = "sha256"
KIND = "checkpoint"
RUNS = "runs.json"
DTYPES = ("float32", "float64", "float16", "bfloat16")
# What a checkpoint's manifest holds, with the types that JSON gives it.
FIELDS: Mapping[str, tuple[type, ...]] = {
    "architecture": (dict,),
    "dtype": (str,),
    "task": (str,),
    "task_options": (dict,),
    "variant": (str, type(None)),
    "recipe": (dict, type(None)),
    "seed": (int, type(None)),
    "metrics": (dict,),
    "history": (list,),
}


def read(directory: str | Path, kind: str, *, name: str = MANIFEST) -> dict[str, Any]:
    """The manifest of a bundle. One without a checksum, which earlier versions wrote, is read with a warning.

    Args:
        directory: the bundle's folder.
        kind: what it must hold, e.g. `checkpoint`.
        name: the manifest's file name.

    Raises:
        MissingFile: where there is no such folder.
        RequestError: where it is foreign, damaged, changed by hand, of another kind, or of a format that this version
            does not read (both formats are named).
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
    version = manifest["format"]
    if version != FORMAT:
        age = "newer" if version > FORMAT else "older"
        remedy = "install a newer headlab" if version > FORMAT else "train or build it again"
        raise RequestError(
            f"'{directory}' has {kind} format {version}, {age} than the format {FORMAT} that this headlab reads: "
            f"{remedy}"
        )
    if manifest["kind"] != kind:
        raise RequestError(f"'{directory}' holds a {manifest['kind']}, not a {kind}")
    files = manifest.get("files", {})
    if not isinstance(files, dict) or not all(
        isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("file", "sha256"))
        for entry in files.values()
    ):
        raise RequestError(f"'{directory}' is damaged: `files` in its {name} does not name files with their checksums")
    checksum = manifest.pop(CHECKSUM, None)
    if checksum is None:
        warnings.warn(f"'{path}' has no checksum: it was written by an earlier headlab", stacklevel=2)
    elif checksum != signed(manifest)[CHECKSUM]:
        raise RequestError(f"'{path}' was changed after it was written: its content does not match its checksum")
    return manifest


def read_checkpoint(directory: str | Path) -> dict[str, Any]:
    """The manifest of the checkpoint in `directory`, with all its fields, each of its type; errors as for `read`."""
    manifest = read(directory, KIND)
    for key, types in FIELDS.items():
        if key not in manifest:
            raise RequestError(f"'{directory}' is damaged: its {MANIFEST} has no '{key}'")
        if not isinstance(manifest[key], types) or isinstance(manifest[key], bool):
            shown = type(manifest[key]).__name__
            raise RequestError(f"'{directory}' is damaged: '{key}' in its {MANIFEST} is a {shown}")
    if manifest["dtype"] not in DTYPES:
        raise RequestError(f"'{directory}' has the dtype '{manifest['dtype']}': there are {', '.join(DTYPES)}")
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
    data = read(directory, "runs", name=RUNS)
    runs = data.get("runs")
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise RequestError(f"'{directory}' is damaged: `runs` in its {RUNS} is not a list of runs")
    if not isinstance(data.get("best"), str) or not runs:
        raise RequestError(f"'{directory}' is damaged: its {RUNS} names no best run among {len(runs)} runs")
    return data


def resolve(directory: str | Path) -> Path:
    """The checkpoint folder meant by `directory`: itself, or the best run's where it is a folder of many runs."""
    directory = Path(directory)
    if not (directory / RUNS).is_file():
        return directory
    return directory / Path(str(load_runs(directory)["best"])).name


def signed(data: Mapping[str, Any]) -> dict[str, Any]:
    """`data` with the checksum of its canonical JSON."""
    unsigned = {key: value for key, value in data.items() if key != CHECKSUM}
    content = json.dumps(unsigned, sort_keys=True, separators=(",", ":"))
    return {**unsigned, CHECKSUM: hashlib.sha256(content.encode()).hexdigest()}


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises RequestError where it is damaged."""
    try:
        return json.loads(path.read_bytes())
    except RecursionError:
        raise RequestError(f"'{path}' is damaged: it is nested too deeply") from None
    except ValueError as error:
        raise RequestError(f"'{path}' is damaged: it is not JSON ({error})") from error
