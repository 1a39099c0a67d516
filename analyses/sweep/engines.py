"""Where a sweep runs: processes of this machine, or a dask or ray cluster that exists already."""

from __future__ import annotations

import importlib
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from headlab.interp.errors import RequestError, WorkFailed

PATIENCE = 10.0  # seconds for a cluster to answer
ENGINES = ("loky", "dask", "ray")


class WorkersLost(WorkFailed):
    """A worker process died while it worked."""


@dataclass(frozen=True)
class Engine:
    """Workers to hand tasks to. workers: how many tasks run at once. parent: the process that local workers belong to,
    None on a cluster.
    """

    name: str
    workers: int
    backend: str
    parent: int | None
    lost: tuple[type[BaseException], ...]

    def results(self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """What `function(*task)` returns, as tasks finish. Raises WorkersLost where a worker died; the rest is undone.

        Tasks are drawn from the iterable when workers are free for them.
        """
        if self.backend == "ray":
            yield from self._by_ray(function, tasks)
            return
        from joblib import Parallel, delayed, parallel_config

        inner = {"inner_max_num_threads": 1} if self.backend == "loky" and self.workers > 1 else {}
        with parallel_config(backend=self.backend, **inner):
            options: dict[str, Any] = {"return_as": "generator_unordered", "batch_size": 1}
            parallel = Parallel(n_jobs=self.workers, pre_dispatch=f"{self.workers + 1}", **options)
            outcomes: Any = parallel(delayed(function)(*task) for task in tasks)
            try:
                yield from outcomes
            except self.lost as error:
                raise WorkersLost(" ".join(str(error).split())) from None
            finally:
                outcomes.close()

    def _by_ray(self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """ray's backend for joblib gives results only all at once, so ray is asked itself."""
        ray: Any = importlib.import_module("ray")
        remote = ray.remote(num_cpus=1, max_retries=0)(function)
        waiting, rest = [], iter(tasks)
        while True:
            waiting += [remote.remote(*task) for task in islice(rest, self.workers + 1 - len(waiting))]
            if not waiting:
                return
            (ready, *_), waiting = ray.wait(waiting, num_returns=1)
            try:
                outcomes = ray.get(ready)
            except self.lost as error:
                for each in waiting:
                    ray.cancel(each, force=True)
                raise WorkersLost(" ".join(str(error).split())) from None
            yield outcomes

    def apart(self, function: Callable[..., Any], *task: Any) -> Any:
        """One task with a worker of its own. Raises WorkersLost where that dies."""
        if self.backend != "loky":
            return next(self.results(function, [task]))
        from joblib.externals.loky import ProcessPoolExecutor

        with ProcessPoolExecutor(max_workers=1) as pool:
            try:
                return pool.submit(function, *task).result()
            except self.lost as error:
                raise WorkersLost(" ".join(str(error).split())) from None


@contextmanager
def opened(name: str, *, address: str | None = None, workers: int | None = None) -> Iterator[Engine]:
    """The engine `name`. Raises RequestError with one sentence: an engine that is not installed (naming the extra), an
    address that is missing, superfluous or does not answer, fewer than one worker.
    """
    if workers is not None and workers < 1:
        raise RequestError(f"{workers} workers: at least 1 is needed")
    if name == "loky":
        if address is not None:
            raise RequestError("an address belongs to --engine dask or --engine ray: loky runs on this machine")
        with _without_current_folder():
            yield _loky(workers)
        return
    module = {"dask": "distributed", "ray": "ray"}[name]
    try:
        library = importlib.import_module(module)
    except ImportError:
        raise RequestError(
            f"the engine {name} is not installed: pip install 'headlab[{name}]', or use --engine loky"
        ) from None
    if address is None:
        shape = {"dask": "tcp://HOST:8786", "ray": "HOST:6379"}[name]
        raise RequestError(f"--engine {name} runs on a cluster that exists: give its address, --address {shape}")
    _knock(address, name)
    with (_dask if name == "dask" else _ray)(library, address, workers) as engine:
        yield engine


@contextmanager
def _without_current_folder() -> Iterator[None]:
    """Processes started in the body do not import from the current folder: a reader's `signal.py` there is not
    Python's. What this process imports is handed to them by path."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        os.environ.pop("PYTHONSAFEPATH")
        if before is not None:
            os.environ["PYTHONSAFEPATH"] = before


def _loky(workers: int | None) -> Engine:
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    at_hand = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Engine("loky", workers or at_hand, "loky", os.getpid(), (TerminatedWorkerError,))


@contextmanager
def _dask(library: Any, address: str, workers: int | None) -> Iterator[Engine]:
    try:
        client = _in_time(lambda: library.Client(address, timeout=PATIENCE, set_as_default=True))
    except (OSError, TimeoutError, ValueError) as error:
        raise RequestError(_silent(address, "dask", error)) from None
    with client:
        threads = sum(client.nthreads().values())
        if not threads:
            raise RequestError(f"the dask scheduler at '{address}' has no workers: start some with 'dask worker'")
        lost = (importlib.import_module("distributed.scheduler").KilledWorker,)
        yield Engine("dask", min(workers or threads, threads), "dask", None, lost)


@contextmanager
def _ray(library: Any, address: str, workers: int | None) -> Iterator[Engine]:
    try:
        _in_time(lambda: library.init(address=address, logging_level="ERROR", log_to_driver=False))
    except Exception as error:
        raise RequestError(_silent(address, "ray", error)) from None
    try:
        cores = int(library.cluster_resources().get("CPU", 0))
        if not cores:
            raise RequestError(f"the ray cluster at '{address}' has no CPUs: start workers with 'ray start'")
        errors = library.exceptions
        lost = (errors.WorkerCrashedError, errors.RayActorError, errors.NodeDiedError)
        yield Engine("ray", min(workers or cores, cores), "ray", None, lost)
    finally:
        library.shutdown()


def _in_time(connect: Callable[[], Any]) -> Any:
    """What `connect` returns. Raises TimeoutError where it has not after the time, whatever it waits for then."""
    outcomes: list[Any] = []

    def run() -> None:
        try:
            outcomes.append((connect(), None))
        except BaseException as error:
            outcomes.append((None, error))

    thread = threading.Thread(target=run, daemon=True, name="connecting")
    thread.start()
    thread.join(PATIENCE)
    if not outcomes:
        raise TimeoutError("it was reached, and says nothing")
    result, error = outcomes[0]
    if error is not None:
        raise error
    return result


def _knock(address: str, name: str) -> None:
    """Raise RequestError where nobody listens at an address within the time."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise RequestError(f"'{address}' is not an address of a {name} cluster: write HOST:PORT")
    try:
        socket.create_connection((host, port), timeout=PATIENCE).close()
    except OSError as error:
        raise RequestError(_silent(address, name, error)) from None


def _silent(address: str, name: str, error: BaseException) -> str:
    reason = " ".join(str(error).split())[:120] or type(error).__name__
    return f"no {name} cluster answers at '{address}' within {PATIENCE:.0f} seconds ({reason}): check the address"
