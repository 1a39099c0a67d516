"""The same sweep on processes of this machine and on a dask cluster; engines that are not there."""

import builtins
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from headlab.analyses.sweep import engines
from headlab.analyses.sweep.configuration import Configuration, Unit
from headlab.analyses.sweep.engines import WorkersLost, opened
from headlab.analyses.sweep.run import sweep
from headlab.analyses.sweep.store import Store

UNITS = [Unit(Configuration.of("xor", {"bits": bits, "width": 12}), (0, 1, 2)) for bits in (16, 20, 24)]


def measured(folder, engine):
    with Store(folder) as store:
        sweep(UNITS, store, engine)
        return {key: row["measured"] for key, row in store.rows.items()}


@pytest.fixture
def cluster():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from distributed import LocalCluster

        with LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, protocol="tcp://", dashboard_address=None
        ) as made:
            yield made


@pytest.mark.filterwarnings("ignore")  # of distributed itself
def test_loky_and_dask_have_equal_results(tmp_path, cluster):
    with opened("loky", workers=1) as engine:
        here = measured(tmp_path / "loky", engine)
    with opened("dask", address=cluster.scheduler_address) as engine:
        assert (engine.workers, engine.parent) == (2, None)
        there = measured(tmp_path / "dask", engine)
    assert len(here) == 9
    assert here == there


@pytest.mark.filterwarnings("ignore")  # of ray itself
def test_loky_and_ray_have_equal_results(tmp_path):
    pytest.importorskip("ray", reason="ray is not installed: pip install 'headlab[ray]'")
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 100 * 1024**2}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        with opened("ray", address=made.address) as engine:
            there = measured(tmp_path / "ray", engine)
    finally:
        made.shutdown()
    with opened("loky", workers=1) as engine:
        assert measured(tmp_path / "loky", engine) == there


def test_an_engine_that_is_not_installed_names_its_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.split(".")[0] in ("distributed", "ray"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(engines.importlib, "import_module", without)
    for name in ("dask", "ray"):
        with (
            pytest.raises(ValueError, match=rf"{name} is not installed: pip install 'headlab\[{name}\]'"),
            opened(name, address="h:1"),
        ):
            pass


@pytest.mark.filterwarnings("ignore")
def test_a_listener_that_is_no_cluster_is_given_up_in_time(monkeypatch):
    monkeypatch.setattr(engines, "PATIENCE", 1.0)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ValueError, match="no dask cluster answers"), opened("dask", address=address):
            pass


def _die_over(number):
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.01)
    return number


def test_a_killed_worker_process_is_told_from_an_error():
    with opened("loky", workers=2) as engine:
        with pytest.raises(WorkersLost):
            list(engine.results(_die_over, [(0,), (1,), (2,)]))
        assert sorted(engine.results(_die_over, [(0,), (2,)])) == [0, 2]
        assert engine.apart(_die_over, 3) == 3
        with pytest.raises(WorkersLost):
            engine.apart(_die_over, 1)


def test_a_file_called_like_a_module_of_python_harms_no_worker(tmp_path):
    (tmp_path / "signal.py").write_text("raise SystemExit('this is not the signal of Python')")
    program = """
from headlab.analyses.sweep.engines import opened
from operator import neg
if __name__ == "__main__":
    with opened("loky", workers=2) as engine:
        print(sorted(engine.results(neg, [(1,), (2,), (3,)])), engine.apart(neg, 4))
"""
    root = str(Path(engines.__file__).resolve().parents[2])
    ran = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.stdout == "[-3, -2, -1] -4\n", ran.stderr
