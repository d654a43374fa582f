"""A sweep: the runs of a study that are not finished yet, several at a time, whatever dies on the way.

A run that raises is reported and leaves the others alone. A run whose worker process dies is tried again from its
checkpoint, the third time alone, in case it was too much for the machine together with others; then it is given up.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from excessmtl.files import write_whole
from excessmtl.lab.compare.collect import collect, write_table
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.runs.folder import RunFolder
from excessmtl.lab.studies.backends import Compute, using_backend
from excessmtl.lab.studies.folders import folder_of
from excessmtl.lab.studies.outcome import Failure, Outcome, SweepWatcher
from excessmtl.lab.studies.worker import Result, run

_DEATHS_TOGETHER = 2
"""How often the worker of a run may die before the run is tried alone."""


def sweep(
    runs: Sequence[RunConfig],
    out: Path,
    *,
    jobs: int | None = None,
    backend: str = "loky",
    watcher: SweepWatcher | None = None,
) -> Outcome:
    """Run what is not finished yet, each run in `out / folder_of(run)`.

    Then `out` has `runs.csv`, a table of all runs in it, and, if runs of this sweep failed, `failed.txt`.

    Args:
        runs: all different; those of low seeds go first, so that a sweep that is stopped has all methods side by side.
        out: folder of the sweep; one sweep at a time works in it.
        jobs: how many runs at a time; None: as many as there are cores (or slots of the cluster).
        backend: `loky` (processes on this machine), `ray` or `dask` (a cluster that sees the same folder).
        watcher: told about every run.
    """
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be at least 1, found {jobs}")
    with using_backend(backend) as (compute, slots), only_one(out):
        return _Sweep(runs, out, jobs or slots, compute, watcher or SweepWatcher()).execute()


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Holds the folder of a sweep for the block, or until this process ends; refuses it while another sweep does."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(folder / ".lock").acquire(timeout=0)
    except Timeout:
        raise ValueError(f"another sweep is at work in {folder}; wait for it, or choose another --out") from None
    with lock:
        yield


def is_finished(config: RunConfig, out: Path) -> bool:
    """Whether a sweep in `out` has nothing left to do for this run."""
    return RunFolder(out / folder_of(config)).summary is not None


class _Sweep:
    """The state of a sweep; a run is known by its number."""

    def __init__(
        self, runs: Sequence[RunConfig], out: Path, jobs: int, compute: Compute, watcher: SweepWatcher
    ) -> None:
        self.runs = sorted(runs, key=lambda config: config.seed)
        self.folders = [out / folder_of(config) for config in self.runs]
        (often, count), *_ = [*Counter(self.folders).most_common(1), (None, 0)]
        if count > 1:
            raise ValueError(f"{count} runs of the sweep are the same (folder {often}); keep one")
        self.out, self.jobs, self.compute, self.watcher = out, jobs, compute, watcher
        self.left = [number for number, config in enumerate(self.runs) if not is_finished(config, out)]
        self.deaths = dict.fromkeys(self.left, 0)
        self.finished: list[int] = []
        self.failed: list[Failure] = []

    def execute(self) -> Outcome:
        """Round after round, until every run is finished or given up."""
        before = tuple(config for number, config in enumerate(self.runs) if number not in self.deaths)
        self.watcher.on_start([self.runs[number] for number in self.left], len(before), self.jobs)
        while self.left:
            together = [number for number in self.left if self.deaths[number] < _DEATHS_TOGETHER]
            self._round(together or self.left[:1], self.jobs if together else 1)
        if before or self.finished:
            write_table(collect(self.out), self.out / "runs.csv")
        self._write_failures()
        return Outcome(tuple(self.runs[number] for number in self.finished), before, tuple(self.failed))

    def _round(self, numbers: Sequence[int], jobs: int) -> None:
        """Each of these runs once."""
        tasks = {number: partial(run, self.runs[number], self.folders[number]) for number in numbers}
        for number, result in self.compute(tasks, jobs):
            self._end(number, result)

    def _end(self, number: int, result: Result) -> None:
        config, reason = self.runs[number], result.reason
        if result.died:
            self.deaths[number] += 1
            if self.deaths[number] <= _DEATHS_TOGETHER:
                self.watcher.on_death(config, reason)
                return
            reason = f"its worker died {self.deaths[number]} times, at last alone: {reason}"
        self.left.remove(number)
        if result.summary is not None:
            self.finished.append(number)
            self.watcher.on_finished(config, result.summary, result.seconds)
        else:
            self.failed.append(Failure(config, reason, result.details))
            self.watcher.on_failed(self.failed[-1])

    def _write_failures(self) -> None:
        path = self.out / "failed.txt"
        if not self.failed:
            path.unlink(missing_ok=True)
            return
        parts = [f"{folder_of(failure.config)}\n{failure.reason}\n\n{failure.details}\n" for failure in self.failed]
        write_whole(path, "\n".join(parts).encode())
