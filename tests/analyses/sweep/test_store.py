"""The folder of a sweep: whole lines only, each run once, whoever writes and however it ends."""

import errno
import json
import os
import shutil
import subprocess
import sys

import pytest

from headlab.analyses.sweep import store as module
from headlab.analyses.sweep.configuration import Configuration, Unit
from headlab.analyses.sweep.store import Store, line_of, parse

UNIT = Unit(Configuration.of("xor", {"bits": 16}), (0, 1, 2))
OTHER = Unit(Configuration.of("xor", {"bits": 32}), (0,))


def rows(unit, error=None):
    return [
        {"key": key, "seed": seed, "measured": {"error": 0.1 + seed}, "error": error, "task": "xor"}
        for seed, key in zip(unit.seeds, unit.run_keys, strict=True)
    ]


def lines(folder):
    return (folder / "results.jsonl").read_bytes().splitlines()


def test_a_line_reads_as_it_was_written_and_a_changed_one_does_not():
    (row, *_) = rows(UNIT)
    line = line_of(row)
    assert {**row, "sum": parse(line)["sum"]} == parse(line)
    assert parse(line.replace(b"0.1", b"0.2")) is None
    assert all(parse(bad) is None for bad in (b"", b"{", b"3", b'{"key": 1}', line[:-20], b"\xff" + line))


def test_runs_are_there_once_whoever_adds_them(tmp_path):
    with Store(tmp_path) as one, Store(tmp_path) as two:
        assert len(one.add(UNIT, rows(UNIT))) == 3
        assert two.missing(UNIT) == [0, 1, 2]
        assert two.add(UNIT, rows(UNIT)) == []
        assert two.missing(UNIT) == []
        two.add(OTHER, rows(OTHER))
        one.refresh()
        assert len(one.rows) == len(lines(tmp_path)) == 4


def test_a_unit_is_claimed_by_one_and_free_when_its_owner_is_gone(tmp_path):
    with Store(tmp_path) as one:
        with Store(tmp_path) as two:
            assert one.claim(UNIT)
            assert one.held(UNIT)
            assert not two.claim(UNIT)
            assert two.claim(OTHER)
            assert not one.claim(OTHER)
        assert one.claim(OTHER)
        one.add(UNIT, rows(UNIT))
        assert not one.claim(UNIT)


def test_the_claim_of_a_killed_process_is_free(tmp_path):
    code = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from headlab.analyses.sweep.configuration import Configuration, Unit\n"
        "from headlab.analyses.sweep.store import Store\n"
        "unit = Unit(Configuration.of('xor', {'bits': 16}), (0, 1, 2))\n"
        "with Store(Path(sys.argv[1])) as store:\n"
        "    assert store.claim(unit)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -9
    assert len(json.loads((tmp_path / "claims.json").read_text())) == 1
    with Store(tmp_path) as store:
        assert store.claim(UNIT)


def test_damaged_lines_are_moved_away_and_their_runs_count_as_not_done(tmp_path):
    with Store(tmp_path) as store:
        store.add(UNIT, rows(UNIT))
    first, second, third = lines(tmp_path)
    bad = second.replace(b"1.1", b"9.9")
    (tmp_path / "results.jsonl").write_bytes(b"\n".join([first, bad, b"\x00\xff", third, third[:30]]))
    with Store(tmp_path) as store:
        assert store.damaged == 3
        assert store.missing(UNIT) == [1]
        assert lines(tmp_path) == [first, third]
        assert (tmp_path / "damaged.jsonl").read_bytes().splitlines() == [bad, b"\x00\xff", third[:30]]
        assert [row["seed"] for row in store.add(UNIT, rows(UNIT))] == [1]
    assert len(lines(tmp_path)) == 3


def test_half_a_line_of_a_process_that_was_killed_over_it_is_written_over(tmp_path):
    with Store(tmp_path) as store:
        store.add(OTHER, rows(OTHER))
        with (tmp_path / "results.jsonl").open("ab") as file:
            file.write(line_of(rows(UNIT)[0])[:40])
        store.add(UNIT, rows(UNIT))
    assert len(lines(tmp_path)) == 4
    assert all(parse(line) for line in lines(tmp_path))


def test_a_full_disk_keeps_what_was_finished_and_says_so(tmp_path, monkeypatch):
    with Store(tmp_path) as store:
        store.add(OTHER, rows(OTHER))
        before, write = (tmp_path / "results.jsonl").read_bytes(), os.write

        def full(handle, content):
            write(handle, content[:50])
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(module.os, "write", full)
        with pytest.raises(RuntimeError, match=r"No space left on device\): the 1 finished runs in it are kept"):
            store.add(UNIT, rows(UNIT))
        assert (tmp_path / "results.jsonl").read_bytes() == before
        monkeypatch.undo()
        assert len(store.add(UNIT, rows(UNIT))) == 3


def test_a_folder_that_vanishes_leaves_its_runs_beside_it(tmp_path):
    folder = tmp_path / "out"
    with Store(folder) as store:
        store.add(OTHER, rows(OTHER))
        shutil.rmtree(folder)
        with pytest.raises(RuntimeError, match="has gone while the sweep ran: its 4 finished runs are kept in"):
            store.add(UNIT, rows(UNIT))
    assert not folder.exists()
    kept = tmp_path / "out.rescued.jsonl"
    folder.mkdir()
    kept.rename(folder / "results.jsonl")
    with Store(folder) as store:
        assert store.missing(UNIT) == store.missing(OTHER) == []


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be written"):
        Store(tmp_path / "file" / "out")


def test_failed_runs_are_forgotten_to_be_tried_again(tmp_path):
    with Store(tmp_path) as store:
        store.add(UNIT, rows(UNIT, error="ValueError: no"))
        store.add(OTHER, rows(OTHER))
        assert store.missing(UNIT) == []
        assert store.drop_failed([*UNIT.run_keys[:2], *OTHER.run_keys]) == 2
        assert store.missing(UNIT) == [0, 1]
        assert store.missing(OTHER) == []
        assert store.claim(UNIT)


DEEP = "[" * 200_000


@pytest.mark.parametrize("content", ["null", "[1, 2]", "7", '{"a": 1, "b": null}', DEEP, "{", ""])
def test_claims_that_are_not_claims_stop_nobody(tmp_path, content):
    (tmp_path / "claims.json").write_text(content)
    with Store(tmp_path) as store:
        assert store.claim(UNIT)
        assert len(store.add(UNIT, rows(UNIT))) == 3


def test_a_claim_that_names_a_file_elsewhere_touches_nothing(tmp_path):
    folder, victim = tmp_path / "sweep", tmp_path / "thesis.txt"
    victim.write_text("years of work")
    folder.mkdir()
    (folder / "claims.json").write_text(json.dumps({UNIT.key: "../../thesis.txt"}))
    with Store(folder) as store:
        assert store.claim(UNIT)
    assert victim.read_text() == "years of work"


@pytest.mark.parametrize("line", ["null", "7", DEEP, '{"key": 1}', "\udcff\udcfe", '{"sum": null}'])
def test_foreign_lines_are_moved_away_and_the_sweep_goes_on(tmp_path, line):
    with Store(tmp_path) as store:
        store.add(UNIT, rows(UNIT))
    content = (line + "\n").encode(errors="surrogateescape")
    path = tmp_path / "results.jsonl"
    path.write_bytes(content + path.read_bytes() + content)
    (tmp_path / "notes.txt").write_text("a foreign file")
    with Store(tmp_path) as store:
        assert store.damaged == 2
        assert store.missing(UNIT) == []
        with path.open("ab") as file:  # another process, or a hand, writes while the sweep runs
            file.write(content)
        store.refresh()
        assert len(store.rows) == 3
    assert (tmp_path / "damaged.jsonl").read_bytes() == 2 * content
