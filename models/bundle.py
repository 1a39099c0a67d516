"""A bundle: a folder of one JSON manifest and some safetensors files that is written whole or not at all.

Tensor files are named after their content and the manifest names them. A new bundle is made beside its place and
renamed into it; an existing one changes in the one moment in which its manifest is replaced. Whoever reads, also after
a kill at any point, finds the old bundle or the new one. The manifest has the checksums of the tensor files and one of
itself, so that no edited word of it passes for what was written. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.models.manifest import FORMAT, MANIFEST, read, read_json, read_part, signed

__all__ = ["FORMAT", "MANIFEST", "plain", "read", "read_tensors", "require_writable", "write", "write_json"]

_TENSOR_FILE = re.compile(r".+-[0-9a-f]{16}\.safetensors")


def write(
    directory: str | Path, kind: str, data: Mapping[str, Any], tensors: Mapping[str, Mapping[str, Tensor]]
) -> Path:
    """Write the bundle and return its folder; an existing bundle there is replaced, a foreign folder is refused.

    tensors: part name -> named tensors, one safetensors file each. After an error or Ctrl-C the folder is as it was
    before. Raises ValueError where the folder cannot be written, holds something else, or `data` is not JSON.
    """
    directory = Path(directory)
    _refuse_foreign(directory)
    manifest = {"format": FORMAT, "kind": kind, **plain(data), "files": {}}
    with _staging(directory) as staging:
        for part, named in tensors.items():
            content = save_safetensors({name: tensor.detach().cpu().contiguous() for name, tensor in named.items()})
            digest = hashlib.sha256(content).hexdigest()
            name = f"{part}-{digest[:16]}.safetensors"
            manifest["files"][part] = {"file": name, "sha256": digest}
            _write_file(staging / name, content)
        _write_file(staging / MANIFEST, _to_json(signed(manifest)))
        if not directory.exists():
            os.rename(staging, directory)
            return directory
        try:
            for entry in manifest["files"].values():
                os.replace(staging / entry["file"], directory / entry["file"])
            os.replace(staging / MANIFEST, directory / MANIFEST)
        finally:
            _sweep(directory)
    return directory


def read_tensors(directory: str | Path, manifest: Mapping[str, Any], part: str) -> dict[str, Tensor]:
    """The named tensors of one part, on the CPU, checked against the manifest's checksum.

    Raises as `headlab.models.manifest.read_part`, and RequestError where the tensors are damaged.
    """
    content = read_part(directory, manifest, part)
    try:
        return load_safetensors(content)
    except SafetensorError as error:
        raise RequestError(f"the {part} in '{directory}' are damaged: {error}") from error


def write_json(path: str | Path, data: Mapping[str, Any]) -> Path:
    """Write `data` as one JSON file, whole or not at all; one with a `kind` gets a checksum, which `read` compares.

    Raises RequestError as `write` does.
    """
    path = Path(path)
    data = plain(data)
    content = _to_json(signed(data) if "kind" in data else data)
    with _parents(path):
        partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
        try:
            _write_file(partial, content)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    return path


def require_writable(directory: str | Path) -> None:
    """Raise ValueError now, before hours of work, where `write` could not write `directory`; leaves nothing behind."""
    directory = Path(directory)
    _refuse_foreign(directory)
    with _staging(directory):
        pass
    if directory.exists():
        with _staging(directory / MANIFEST):
            pass


def plain(value: Any, where: str = "") -> Any:
    """`value` with numpy and torch scalars, tuples and paths turned into JSON's own types.

    Raises ValueError naming the entry where a number is not finite or a value has no JSON form.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{where}.{key}" if where else str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if hasattr(value, "tolist"):
        return plain(value.tolist(), where)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise RequestError(f"'{where}' is {value}, which a checkpoint cannot hold: leave it out or store None")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise RequestError(f"'{where}' is a {type(value).__name__}, which JSON cannot hold")


def _refuse_foreign(directory: Path) -> None:
    if directory.is_file():
        raise RequestError(f"cannot write to '{directory}': it is a file, choose a folder")
    if directory.is_dir() and not (directory / MANIFEST).exists() and any(directory.iterdir()):
        raise RequestError(f"'{directory}' holds other files and is not a headlab checkpoint: choose another folder")


@contextmanager
def _staging(directory: Path) -> Iterator[Path]:
    with _parents(directory):
        staging = directory.with_name(f".{directory.name}.{secrets.token_hex(4)}.partial")
        try:
            staging.mkdir()
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def _parents(path: Path) -> Iterator[None]:
    """The folders above `path`, made where missing, and taken away again where the body fails or left them empty."""
    made = [parent for parent in path.absolute().parents if not parent.exists()]
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise RequestError(f"cannot write to '{path}': {error.strerror or error}") from error
    finally:
        for parent in made:
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()


def _write_file(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sweep(directory: Path) -> None:
    path = directory / MANIFEST
    named = {entry["file"] for entry in read_json(path)["files"].values()} if path.exists() else set()
    for path in directory.iterdir():
        if _TENSOR_FILE.fullmatch(path.name) and path.name not in named:
            path.unlink(missing_ok=True)


def _to_json(data: Any) -> bytes:
    return (json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
