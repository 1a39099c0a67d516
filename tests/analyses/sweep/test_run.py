"""Running a sweep in this process: what is done, once; what fails, recorded; a worker that dies, survived."""

import json
import os
from dataclasses import dataclass
from typing import Any

import pytest

from headlab.analyses.cli import main
from headlab.analyses.sweep import work as module
from headlab.analyses.sweep.configuration import Configuration, Unit
from headlab.analyses.sweep.engines import Engine, WorkersLost
from headlab.analyses.sweep.pilot import Cost, duration
from headlab.analyses.sweep.run import KILLED, failures, sweep
from headlab.analyses.sweep.store import Store
from headlab.analyses.sweep.trainings import Training
from headlab.analyses.sweep.work import Worked, work

HERE = Engine("loky", 1, "loky", os.getpid(), ())


def unit(seeds, **options):
    return Unit(Configuration.of("xor", {"bits": 16, "width": 12, **options}), tuple(seeds))


def test_what_is_missing_is_done_once(tmp_path):
    units = [unit(range(3)), unit(range(3, 5)), unit(range(2), width=8)]
    said, seen = [], []
    with Store(tmp_path) as store:
        first = sweep(units, store, HERE, say=said.append, progress=lambda *at: seen.append(at))
        again = sweep(units, store, HERE)
        assert (first.written, again.written, again.cost) == (7, 0, None)
        assert not failures(units, store)
        row = store.rows[units[0].run_keys[2]]
    assert (row["seed"], row["together"], row["options"]["width"]) == (2, 3, 12)
    assert row["measured"]["steps_done"] == 1
    assert 0 <= row["measured"]["error"] < 2
    assert [at[:2] for at in seen] == [(3, 7), (5, 7), (7, 7)]
    assert "7 runs: about" in said[0]
    assert "times what was predicted" in said[-1]
    (record,) = json.loads((tmp_path / "cost.json").read_text())
    assert record["predicted"]["core_hours"] > 0
    assert record["factor"] == first.factor


def test_a_seed_is_the_same_in_company_and_alone(tmp_path):
    alone, together = work(unit([1]), "cpu", None), work(unit(range(4)), "cpu", None)
    assert alone.measured[1] == pytest.approx(together.measured[1])


def test_a_failed_run_is_recorded_and_can_be_tried_again(tmp_path):
    wrong, right = unit(range(2), heads=3, targets=[0, 1]), unit(range(2))
    with Store(tmp_path) as store:
        sweep([wrong, right], store, HERE)
        told = [row["error"] for row in failures([wrong, right], store)]
        assert told == ["RequestError: 3 heads for 2 targets: the model takes one head per target"] * 2
        assert sweep([wrong, right], store, HERE).written == 0
        assert store.drop_failed(wrong.run_keys) == 2
        assert sweep([wrong, right], store, HERE).written == 2


def test_a_seed_that_fails_does_not_take_the_others_with_it(monkeypatch):
    def run(seeds, steps, progress):
        if 5 in seeds:
            raise ValueError("training diverged: the loss of seed 5 is nan")
        return [{"error": 0.0, "success": True, "steps_done": 1} for _ in seeds]

    monkeypatch.setattr(module, "_prepare", lambda configuration, device: Training(None, 1.0, run))
    found = work(unit(range(8)), "cpu", None)
    assert sorted(found.measured) == [0, 1, 2, 3, 4, 6, 7]
    assert found.failed == {5: "ValueError: training diverged: the loss of seed 5 is nan"}


@dataclass(frozen=True)
class Dying(Engine):
    """An engine whose worker dies over one unit, and again where that is alone."""

    deadly: Any = None
    alone: bool = False

    def results(self, function, tasks):
        for task in tasks:
            if function is work and task[0] is self.deadly:
                raise WorkersLost("a worker was killed")
            yield function(*task)

    def apart(self, function, *task):
        if self.alone:
            raise WorkersLost("again")
        return function(*task)


@pytest.mark.parametrize("alone", [False, True])
def test_a_worker_that_dies_costs_no_finished_run(tmp_path, alone):
    units = [unit(range(2), width=width) for width in (4, 6, 8)]
    said = []
    with Store(tmp_path) as store:
        sweep(units, store, Dying("dying", 1, "loky", None, (), units[1], alone), say=said.append)
        failed = failures(units, store)
        assert not [one for one in units if store.missing(one)]
    assert [row["error"] for row in failed] == ([KILLED] * 2 if alone else [])
    assert any("a worker died (a worker was killed)" in sentence for sentence in said)


def test_an_error_while_work_is_handed_out_is_not_lost(tmp_path, monkeypatch):
    units = [unit([seed]) for seed in range(3)]
    with Store(tmp_path) as store:
        claim, calls = store.claim, []

        def breaking(one):
            calls.append(one)
            if len(calls) == 2:
                raise RuntimeError("the disk has gone")
            return claim(one)

        monkeypatch.setattr(store, "claim", breaking)
        with pytest.raises(RuntimeError, match="the disk has gone"):
            sweep(units, store, HERE)
        assert not store.missing(units[0])


def test_a_figure_that_is_not_finite_is_a_failure(tmp_path, monkeypatch):
    from headlab.analyses.sweep.run import rows_of

    rows = rows_of(Worked(unit([0]), measured={0: {"error": float("nan")}}), "loky", "cpu")
    assert rows[0]["measured"] is None
    assert rows[0]["error"] == "ValueError: error is not finite"


def test_costs_are_told_in_units_that_suit_them():
    assert [duration(x) for x in (0.5, 119.0, 600.0, 7300.0)] == ["0.5 s", "119 s", "10 min", "2.03 h"]
    cost = Cost(7200.0, 3600.0, 2_000_000, 3, 1.0, {"a": 1.0, "b": 2.0})
    assert "60 min on 2 workers, 2 core-hours, 2 MB" in cost.sentence(10, 2)


def ask(capsys, *arguments):
    status = main(["sweep", *map(str, arguments), "--json"])
    shown = capsys.readouterr()
    return status, json.loads(shown.out) if status < 2 else shown.err


@pytest.mark.parametrize("name", ["esp-accuracy", "retrieval-error", "tree-depth", "xor-success"])
def test_the_small_version_of_a_ready_sweep_runs_and_is_shown(capsys, tmp_path, name):
    status, found = ask(capsys, name, "--small", "--workers", 1, "--out", tmp_path)
    assert status == 0
    assert found["done"] == found["runs"] == found["new"]
    assert sum(row["seeds"] for row in found["table"]) == found["runs"]
    for row in found["table"]:
        interval = row["interval"]
        assert interval is None or interval[0] <= row["median"] <= interval[1]
        assert row["success_interval"][0] <= row["success"] <= row["success_interval"][1]
    status, shown = ask(capsys, name, "--small", "--plot", "--out", tmp_path)
    assert status == 0
    assert "new" not in shown
    assert shown["table"] == found["table"]
    picture = (tmp_path / "plot.svg").read_text(encoding="utf-8")
    assert "interval" in picture or "interval" in (tmp_path / "plot.html").read_text(encoding="utf-8")
    option, first, second = {
        "xor-success": ("width", 4, 16),
        "retrieval-error": ("heads", 1, 3),
    }.get(name, ("heads", 1, 2))
    _, compared = ask(
        capsys, name, "--small", "--out", tmp_path, "--compare", f"{option}={first}", f"{option}={second}"
    )
    whole = compared["comparison"][-1]
    assert whole["pairs"] == found["runs"] / 2
    assert 0 < whole["p_value"] <= 1
    assert whole["interval"] is None or whole["interval"][0] <= whole["difference"] <= whole["interval"][1]
    assert main(["sweep", name, "--small", "--table", "--out", str(tmp_path)]) == 0
    assert f"{found['done']} of {found['runs']} runs done, 0 failed" in capsys.readouterr().out
    if name == "retrieval-error":
        assert main(["heads-needed", found["parquet"], "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["lengths"] == [4, 8]


def test_failures_set_the_status(capsys, tmp_path):
    file = tmp_path / "f.toml"
    file.write_text('seeds=2\n[[grid]]\ntask="xor"\nheads=[2, 3]\ntargets=[[0, 1]]\nbits=16\n')
    status, found = ask(capsys, file, "--workers", 1, "--out", tmp_path / "o")
    assert status == 1
    assert (found["done"], found["failed"]) == (2, 2)
    assert "3 heads for 2 targets" in found["errors"][0]["error"]
    status, found = ask(capsys, file, "--workers", 1, "--out", tmp_path / "o", "--retry")
    assert (status, found["new"], found["failed"]) == (1, 2, 2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing.toml"], "there is no sweep file 'nothing.toml'"),
        (["xor-success", "--table"], "there are no results in"),
        (["HUGE"], "asks for 2,000,000 runs, more than a million: say --yes"),
        (["xor-success", "--workers", "0"], "0 workers: at least 1 is needed"),
        (["xor-success", "--engine", "dask"], "give its address, --address tcp://HOST:8786"),
        (["xor-success", "--address", "h:1"], "an address belongs to --engine dask or --engine ray"),
        (["xor-success", "--engine", "dask", "--address", "127.0.0.1:1"], "no dask cluster answers at '127.0.0.1:1'"),
        (["xor-success", "--engine", "dask", "--address", "nonsense"], "is not an address of a dask cluster"),
    ],
)
def test_a_wrong_request_is_one_line_and_status_2(capsys, tmp_path, arguments, said):
    huge = tmp_path / "huge.toml"
    huge.write_text('[[grid]]\ntask="xor"\nseeds=2000000\n')
    arguments = [str(huge) if each == "HUGE" else each for each in arguments]
    status, told = ask(capsys, *arguments, "--out", tmp_path / "out")
    assert status == 2
    assert said in told
    assert told.count("\n") == 1


def test_the_ready_sweeps_are_listed(capsys):
    _, found = ask(capsys, "list")
    assert set(found["ready"]) == {"esp-accuracy", "esp-thousand", "retrieval-error", "tree-depth", "xor-success"}
