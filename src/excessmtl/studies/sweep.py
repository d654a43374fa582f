"""A sweep: the runs of a study that are not finished yet, several at a time, whatever dies on the way.

A run that raises is reported and leaves the others alone. When a worker process dies, the pool goes with it: a new one
goes on with what is left, from the checkpoints. A run that was under way at two deaths is then run alone; if its worker
dies again, the run itself is at fault and is given up.
"""

import logging
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from joblib import Parallel, delayed, effective_n_jobs

from excessmtl.step import Step
from excessmtl.studies.backends import using_backend
from excessmtl.studies.collect import collect, write_table
from excessmtl.studies.folders import folder_of
from excessmtl.studies.lock import only_one
from excessmtl.training.config import RunConfig
from excessmtl.training.loop import train
from excessmtl.training.progress import Silent
from excessmtl.training.run_folder import RunFolder

_DEATHS_TOGETHER = 2
"""How often a run may be under way at the death of a pool before it is run alone."""


@dataclass(frozen=True)
class Failure:
    """A run that could not be finished, and why in one line; `details` is the traceback where there is one."""

    config: RunConfig
    reason: str
    details: str = ""


@dataclass(frozen=True)
class Outcome:
    """What became of the runs of a sweep."""

    finished: tuple[RunConfig, ...]
    """Now."""
    before: tuple[RunConfig, ...]
    """Finished already when the sweep began."""
    failed: tuple[Failure, ...]


class SweepWatcher(Protocol):
    """Told what happens, as it happens."""

    def on_start(self, todo: Sequence[RunConfig], before: int, jobs: int) -> None:
        """Before the first run: what is to do, how many runs are finished already, how many go at a time."""
        ...

    def on_finished(self, config: RunConfig, summary: dict[str, Any], seconds: float) -> None:
        """After each run."""
        ...

    def on_failed(self, failure: Failure) -> None:
        """After each run that is given up."""
        ...

    def on_death(self, reason: str, again: int) -> None:
        """A worker has died; `again` runs that were under way will go on from their checkpoints."""
        ...


class SilentSweep:
    """For sweeps nobody looks at."""

    def on_start(self, todo: Sequence[RunConfig], before: int, jobs: int) -> None:
        """Nothing."""

    def on_finished(self, config: RunConfig, summary: dict[str, Any], seconds: float) -> None:
        """Nothing."""

    def on_failed(self, failure: Failure) -> None:
        """Nothing."""

    def on_death(self, reason: str, again: int) -> None:
        """Nothing."""


def sweep(
    runs: Sequence[RunConfig],
    out: Path,
    *,
    jobs: int | None = None,
    backend: str = "loky",
    watcher: SweepWatcher | None = None,
) -> Outcome:
    """Run what is not finished yet, each run in `out / folder_of(run)`; then write `runs.csv`.

    Args:
        runs: all different; those of low seeds go first, so that a sweep that is stopped has all methods side by side.
        out: folder of the sweep; one sweep at a time works in it.
        jobs: how many runs at a time; None: as many as there are cores (or slots of the cluster).
        backend: `loky` (processes on this machine), `ray` or `dask` (a cluster that sees the same folder).
        watcher: told about every run.
    """
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be at least 1, found {jobs}")
    with only_one(out), using_backend(backend):
        return _Sweep(runs, out, jobs or effective_n_jobs(-1), watcher or SilentSweep()).execute()


@dataclass(frozen=True)
class _Result:
    """What a worker sends back."""

    number: int
    seconds: float
    summary: dict[str, Any] | None = None
    reason: str = ""
    details: str = ""


class _Sweep:
    def __init__(self, runs: Sequence[RunConfig], out: Path, jobs: int, watcher: SweepWatcher) -> None:
        self.runs = sorted(runs, key=lambda run: run.seed)
        self.folders = [out / folder_of(run) for run in self.runs]
        if len(set(self.folders)) < len(self.folders):
            twice = next(folder for folder in self.folders if self.folders.count(folder) > 1)
            raise ValueError(f"two runs of the sweep are the same (folder {twice}); leave one out")
        self.out, self.jobs, self.watcher = out, jobs, watcher
        self.left = [number for number in range(len(self.runs)) if not self._is_finished(number)]
        self.deaths = dict.fromkeys(self.left, 0)
        self.finished: list[int] = []
        self.failed: list[Failure] = []

    def _is_finished(self, number: int) -> bool:
        return RunFolder(self.folders[number]).summary is not None

    def execute(self) -> Outcome:
        before = [run for number, run in enumerate(self.runs) if number not in self.deaths]
        self.watcher.on_start([self.runs[number] for number in self.left], len(before), self.jobs)
        while self.left:
            together = [number for number in self.left if self.deaths[number] < _DEATHS_TOGETHER]
            if together:
                self._round(together, self.jobs)
            else:
                self._round(self.left[:1], 1)
        if before or self.finished:
            write_table(collect(self.out), self.out / "runs.csv")
        return Outcome(tuple(self.runs[number] for number in self.finished), tuple(before), tuple(self.failed))

    def _round(self, numbers: Sequence[int], jobs: int) -> None:
        """Runs in one pool of workers, until all have ended or a worker dies."""
        under_way: set[int] = set()

        def tasks() -> Iterator[Any]:
            for number in numbers:
                under_way.add(number)
                yield delayed(_run)(number, self.runs[number], self.folders[number])

        # Joblib takes a task only when a worker is free for it (`pre_dispatch`), so `under_way` is what it says. One
        # job is given a pool of two, of which one works: joblib would run it in this process, which must not die.
        pool = Parallel(n_jobs=max(jobs, 2), pre_dispatch=jobs, batch_size=1, return_as="generator_unordered")
        results = pool(tasks())
        try:
            for result in results:
                under_way.discard(result.number)
                self._end(result)
        except Exception as death:  # of a worker: what a run raises is caught there
            self._bury(under_way, death)
        finally:
            results.close()

    def _end(self, result: _Result) -> None:
        config = self.runs[result.number]
        self.left.remove(result.number)
        if result.summary is None:
            self._give_up(Failure(config, result.reason, result.details))
        else:
            self.finished.append(result.number)
            self.watcher.on_finished(config, result.summary, result.seconds)

    def _bury(self, under_way: set[int], death: Exception) -> None:
        if not under_way:
            raise death
        reason = " ".join(str(death).split()) or type(death).__name__
        self.watcher.on_death(reason, len(under_way))
        for number in under_way:
            self.deaths[number] += 1
            if self.deaths[number] > _DEATHS_TOGETHER:
                self.left.remove(number)
                self._give_up(Failure(self.runs[number], f"its worker died {self.deaths[number]} times: {reason}"))

    def _give_up(self, failure: Failure) -> None:
        self.failed.append(failure)
        self.watcher.on_failed(failure)


class _EndsWithParent(Silent):
    """A worker whose sweep has been killed stops: the next sweep may already be at the same run."""

    def __init__(self) -> None:
        self.parent = os.getppid()

    def on_step(self, epoch: int, step: int, steps: int, result: Step) -> None:
        """Look for the parent."""
        if os.getppid() != self.parent:
            raise RuntimeError("the sweep has ended")


def _run(number: int, config: RunConfig, folder: Path) -> _Result:
    """One run, in a worker."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the sweep ends its workers
    torch.set_num_threads(1)  # several runs share the cores
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    start = time.monotonic()
    try:
        summary = train(config, folder, resume=True, watcher=_EndsWithParent())
    except Exception as error:
        reason = " ".join(str(error).split())
        told = reason if isinstance(error, ValueError) and reason else f"{type(error).__name__}: {reason}"
        return _Result(number, time.monotonic() - start, None, told, traceback.format_exc())
    return _Result(number, time.monotonic() - start, summary)
