"""The folder of a sweep: one JSON line per run, whole or not at all, shared safely by every process that sweeps there.

Whatever is written is written under one file lock, after what others have written was read; so a run is never there
twice. Who works on what stands in claims.json. A claim holds as long as the lock file of its owner is held, which the
system lets go of when the owner ends in any way: claims of the dead are free at once. Each line carries a checksum.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from headlab.analyses.sweep.configuration import Unit
from headlab.interp.errors import RequestError, WorkFailed

RESULTS, DAMAGED, CLAIMS, LOCK, OWNERS = "results.jsonl", "damaged.jsonl", "claims.json", ".lock", ".owners"
_OWNER = re.compile("[0-9a-f]{32}")
Row = dict[str, Any]


class Store:
    """The results in a folder, and this process's claims on work; a context that lets go of them at its end.

    rows: key -> the run's row. damaged: lines that could not be read when the folder was opened; they were moved to
    damaged.jsonl and their runs count as not done. Raises RequestError where the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: dict[str, Row] = {}
        self.damaged = 0
        self._path = folder / RESULTS
        self._read: tuple[int, int] = (0, 0)  # inode, bytes read
        self._thread = threading.RLock()
        self._name = uuid.uuid4().hex
        try:
            (folder / OWNERS).mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(folder / LOCK)
            self._owner = FileLock(folder / OWNERS / self._name)
            with self._lock:
                self._path.touch()
                self._repair()
        except OSError as error:
            raise RequestError(
                f"the folder '{folder}' cannot be written ({error.strerror}): choose another --out"
            ) from None

    def __enter__(self) -> Store:
        self._owner.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            if self._path.exists():
                with self._locked():
                    self._write_claims({key: name for key, name in self._claims().items() if name != self._name})
        except OSError:
            pass  # a claim of somebody who has gone holds nothing
        self._owner.release()
        (self.folder / OWNERS / self._name).unlink(missing_ok=True)

    def refresh(self) -> None:
        """Take up what other processes have written. Raises RuntimeError where the folder has gone."""
        with self._locked():
            pass

    def missing(self, unit: Unit) -> list[int]:
        """The seeds of a unit that have no row, done or failed."""
        return [seed for seed, key in zip(unit.seeds, unit.run_keys, strict=True) if key not in self.rows]

    def claim(self, unit: Unit) -> bool:
        """Take a unit for this process: False where it is done, or somebody alive has it."""
        with self._locked():
            claims = self._claims()
            if not self.missing(unit) or (unit.key in claims and self._alive(claims[unit.key])):
                return False
            self._write_claims({**claims, unit.key: self._name})
            return True

    def held(self, unit: Unit) -> bool:
        """Whether this process has the unit."""
        with self._locked():
            return self._claims().get(unit.key) == self._name

    def add(self, unit: Unit, rows: Iterable[Row]) -> list[Row]:
        """Append the rows of a unit that are not there yet, all or none, and give the unit up. Returns those written.

        Raises RuntimeError, in one sentence, where the disk is full or the folder has gone; what was there is kept.
        """
        rows = list(rows)
        try:
            with self._locked():
                new = [row for row in rows if row["key"] not in self.rows]
                self._append(new)
                self._take(new)
                self._write_claims({key: name for key, name in self._claims().items() if key != unit.key})
                return new
        except FolderGone:
            raise WorkFailed(self._rescue(rows)) from None
        except OSError as error:
            raise WorkFailed(
                f"'{self._path}' cannot be written ({error.strerror}): the {len(self.rows)} finished runs in it are "
                "kept; make room and run the same command again"
            ) from None

    def drop_failed(self, keys: Iterable[str]) -> int:
        """Forget the failed ones among the runs `keys`, so that they are tried again. Returns how many."""
        keys = set(keys)
        with self._locked():
            failed = [key for key in keys if self.rows.get(key, {}).get("error") is not None]
            if failed:
                self._replace([row for key, row in self.rows.items() if key not in failed])
            return len(failed)

    def note(self, name: str, record: Mapping[str, Any]) -> None:
        """Append a record to one of the folder's own lists of records, `name`.json."""
        with self._locked():
            path = self.folder / f"{name}.json"
            try:
                held = list(json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError, TypeError, RecursionError):
                held = []  # the first record, or a damaged list, which is no reason to lose this one
            _write(path, json.dumps([*held, record], indent=1).encode())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._thread:
            if not self._path.exists():  # the lock would make the folder again
                raise FolderGone(f"the folder '{self.folder}' has gone: put it back, or sweep again with another --out")
            with self._lock:
                self._catch_up()
                yield

    def _catch_up(self) -> None:
        status = self._path.stat()
        inode, done = self._read
        if inode != status.st_ino or done > status.st_size:
            self.rows.clear()
            done = 0
        if done < status.st_size:
            with self._path.open("rb") as file:
                file.seek(done)
                content = file.read()
            content = content[: content.rfind(b"\n") + 1]
            self._take(row for row in map(parse, content.splitlines()) if row is not None)
            done += len(content)
        self._read = (status.st_ino, done)

    def _repair(self) -> None:
        """Read everything, and move the lines that are not results out of the way."""
        good, bad = [], []
        for line in self._path.read_bytes().splitlines(keepends=True):
            row = parse(line) if line.endswith(b"\n") else None
            (bad.append(line) if row is None else good.append(row))
        if bad:
            with (self.folder / DAMAGED).open("ab") as file:
                file.write(b"".join(line.rstrip(b"\n") + b"\n" for line in bad))
        once = {row["key"]: row for row in good}
        if bad or len(once) < len(good):
            self._replace(once.values())
        self.damaged = len(bad)
        self._catch_up()

    def _take(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.rows.setdefault(row["key"], row)

    def _append(self, rows: Sequence[Row]) -> None:
        content = b"".join(map(line_of, rows))
        handle = os.open(self._path, os.O_RDWR | os.O_APPEND)
        try:
            before = os.fstat(handle).st_size
            whole = self._read[1]
            if before > whole:  # the beginning of a line that somebody was killed over
                os.ftruncate(handle, whole)
            try:
                if os.write(handle, content) != len(content):
                    raise OSError(28, "No space left on device")
                os.fsync(handle)
            except OSError:
                os.ftruncate(handle, whole)
                raise
            self._read = (os.fstat(handle).st_ino, whole + len(content))
        finally:
            os.close(handle)

    def _replace(self, rows: Iterable[Row]) -> None:
        _write(self._path, b"".join(map(line_of, rows)))
        self._read = (0, 0)
        self._catch_up()

    def _claims(self) -> dict[str, str]:
        try:
            claims = json.loads((self.folder / CLAIMS).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            claims = None  # without claims work may be done twice, and is still written once
        held = claims.items() if isinstance(claims, dict) else ()
        # A name is that of a lock file which may be deleted: nothing but our own names is followed.
        return {key: name for key, name in held if isinstance(name, str) and _OWNER.fullmatch(name)}

    def _write_claims(self, claims: Mapping[str, str]) -> None:
        _write(self.folder / CLAIMS, json.dumps(dict(claims)).encode())

    def _alive(self, name: str) -> bool:
        if name == self._name:
            return True
        path = self.folder / OWNERS / name
        if not path.exists():
            return False
        probe = FileLock(path)
        try:
            probe.acquire(blocking=False)
        except Timeout:
            return True
        probe.release()
        path.unlink(missing_ok=True)
        return False

    def _rescue(self, unsaved: Sequence[Row]) -> str:
        """Keep all that this process knows beside the folder that has gone; the sentence that says where."""
        rows = {row["key"]: row for row in [*self.rows.values(), *unsaved]}
        path = self.folder.with_name(f"{self.folder.name}.rescued.jsonl")
        sentence = f"the folder '{self.folder}' has gone while the sweep ran"
        try:
            _write(path, b"".join(map(line_of, rows.values())))
        except OSError as error:
            return f"{sentence}, and its {len(rows)} runs cannot be kept beside it ({error.strerror})"
        return f"{sentence}: its {len(rows)} finished runs are kept in '{path}'; put that back as '{self._path}'"


class FolderGone(WorkFailed):
    """The folder of a sweep is not there any more."""


def line_of(row: Row) -> bytes:
    """A row as its line, checksum included."""
    body = json.dumps({key: value for key, value in row.items() if key != "sum"}, sort_keys=True, allow_nan=False)
    return f'{body[:-1]}, "sum": "{_digest(body)}"}}\n'.encode()


def parse(line: bytes) -> Row | None:
    """The row of a line; None where it is not a row, or not the one that was written."""
    try:
        row = json.loads(line)
        body = {key: value for key, value in row.items() if key != "sum"}
        whole = row["sum"] == _digest(json.dumps(body, sort_keys=True)) and isinstance(row["key"], str)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return row if whole else None


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:12]


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all; the folder must be there."""
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
