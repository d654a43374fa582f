"""Where the runs of a sweep are computed: processes of this machine, or a cluster behind joblib."""

import importlib
import logging
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, cpu_count, delayed, effective_n_jobs, parallel_config, register_parallel_backend
from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import TerminatedWorkerError

from excessmtl.extras import missing
from excessmtl.lab.runs.config import RunConfig

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_PATIENCE = 60.0
"""Seconds for the worker of a killed sweep to notice and let go of the run's folder."""
_LOOK_EVERY = 0.5
"""Seconds."""


@dataclass(frozen=True)
class Result:
    """What came of a run: its summary, or why there is none, in one line and at length."""

    seconds: float
    summary: dict[str, Any] | None = None
    reason: str = ""
    details: str = ""
    died: bool = False
    """Whether the worker has died, so that the run may be tried again."""


Task = Callable[[], Result]
Compute = Callable[[Mapping[Path, Task], int], Iterator[tuple[Path, Result]]]
"""Tasks by the folder of their run, and how many at a time -> each with what came of it, as they end."""


def run(config: RunConfig, folder: Path) -> Result:
    """Run, or go on with, one configuration; whatever it raises is sent back, not raised."""
    _begin_work()
    from excessmtl.lab.training.loop import train  # here: the sweep itself trains nothing

    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    start = time.monotonic()
    try:
        summary = train(config, folder, resume=True, wait=_PATIENCE)
        return Result(time.monotonic() - start, summary)
    except Exception as error:
        message = " ".join(str(error).split())
        reason = message if message and isinstance(error, ValueError) else f"{type(error).__name__}: {message}"
        return Result(time.monotonic() - start, None, reason, traceback.format_exc())


def _begin_work() -> None:
    """What every worker does first."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the sweep ends its workers
    end_with(os.getppid())  # of a cluster too, which starts its workers itself
    torch.set_num_threads(1)  # several runs share the cores


@cache
def end_with(parent: int) -> None:
    """Make this process end within a second of its parent, whatever either of them is doing.

    A killed sweep ends nobody: its workers would keep their memory, go on writing in folders that the next sweep works
    in, and wait for ever once they are idle.
    """

    def watch() -> None:
        while os.getppid() == parent:  # a process whose parent has died is given another one
            time.sleep(_LOOK_EVERY)
        os._exit(1)  # nobody is left to be told

    if os.name == "posix":  # elsewhere a process keeps the number of its dead parent
        threading.Thread(target=watch, name="end with the sweep", daemon=True).start()


def on_this_machine(tasks: Mapping[Path, Task], jobs: int) -> Iterator[tuple[Path, Result]]:
    """Begun in their order, `jobs` at a time.

    A pool of one process per job: where one breaks, the others do not notice, and a death is that of one task.
    """
    waiting = list(tasks.items())
    running: dict[Future[Result], tuple[Path, Any]] = {}
    idle: list[Any] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                folder, task = waiting.pop(0)
                pool = idle.pop() if idle else _pool_of_one()
                running[pool.submit(task)] = folder, pool
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                folder, pool = running.pop(future)
                error = future.exception()
                if error is None:
                    idle.append(pool)
                    yield folder, future.result()
                else:  # what a run raises is caught in its worker, so the worker has died
                    pool.shutdown(wait=False, kill_workers=True)
                    yield folder, _death(error)
    finally:
        for pool in [*idle, *(pool for _, pool in running.values())]:
            pool.shutdown(wait=True, kill_workers=True)


def _pool_of_one() -> Any:
    """A process that ends with this one, also where this one is killed."""
    return ProcessPoolExecutor(max_workers=1, env=_ONE_THREAD, initializer=end_with, initargs=(os.getpid(),))


def check_in_a_worker(runs: Sequence[RunConfig]) -> None:
    """`check_runs` in a process that ends afterwards: this one loads no data and nothing that trains."""
    pool = _pool_of_one()
    try:
        pool.submit(_check, tuple(runs)).result()
    except TerminatedWorkerError as error:
        raise ValueError(f"the process that looked at the data of the study died: {_death(error).reason}") from error
    finally:
        pool.shutdown(wait=True, kill_workers=True)


def _check(runs: Sequence[RunConfig]) -> None:
    _begin_work()
    from excessmtl.lab.studies.preflight import check_runs

    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    check_runs(runs)


def on_a_cluster(tasks: Mapping[Path, Task], jobs: int) -> Iterator[tuple[Path, Result]]:
    """The same behind joblib; where something dies, it may have been any of the tasks that have not ended."""
    left = dict.fromkeys(tasks)
    # One job gets a pool of two, of which one works: joblib would run it in this process, which must not die.
    pool = Parallel(n_jobs=max(jobs, 2), pre_dispatch=jobs, batch_size=1, return_as="generator_unordered")
    results = pool(delayed(_named)(folder, task) for folder, task in tasks.items())
    try:
        for folder, result in results:
            del left[folder]
            yield folder, result
    except Exception as error:
        for folder in left:
            yield folder, _death(error)


def _death(error: BaseException) -> Result:
    """In place of a result: the process that worked on the task has died."""
    message = " ".join(str(error).split())
    return Result(0.0, reason=message.split(". ")[0] or type(error).__name__, details=message, died=True)


def _named(folder: Path, task: Task) -> tuple[Path, Result]:
    return folder, task()


def _on_ray() -> AbstractContextManager[Any]:
    """Of RAY_ADDRESS, or one started here."""
    backend = importlib.import_module("ray.util.joblib.ray_backend").RayBackend
    # Joblib takes it for a pool of multiprocessing, whose results it will not hand out one by one: such a pool may
    # hang if nobody waits for the rest. A sweep always takes or closes them.
    streaming = type("StreamingRayBackend", (backend,), {"supports_return_generator": True})
    register_parallel_backend("ray", streaming)
    return importlib.import_module("ray").init(ignore_reinit_error=True, log_to_driver=False)  # type: ignore[no-any-return]


def _on_dask() -> AbstractContextManager[Any]:
    """Of DASK_SCHEDULER_ADDRESS, or one started here; a run at a time in each process."""
    return importlib.import_module("dask.distributed").Client(threads_per_worker=1)  # type: ignore[no-any-return]


_CLUSTERS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {"ray": _on_ray, "dask": _on_dask}
BACKENDS = ("loky", *_CLUSTERS)


@contextmanager
def using_backend(name: str) -> Iterator[tuple[Compute, int]]:
    """What computes tasks, ready for the block, and how many at a time it has room for; loky: on this machine."""
    if name not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, found {name!r}")
    if name not in _CLUSTERS:
        yield on_this_machine, int(cpu_count())
        return
    try:
        cluster = _CLUSTERS[name]()
    except ModuleNotFoundError as error:
        raise ValueError(missing(f"backend {name!r}", error, name)) from error
    with cluster, parallel_config(backend=name):
        yield on_a_cluster, int(effective_n_jobs(-1))
