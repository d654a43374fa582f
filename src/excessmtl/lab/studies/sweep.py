"""A sweep: the runs of a study that are not finished yet, several at a time, whatever dies on the way.

A run that raises is reported and leaves the others alone. A run whose worker process dies is tried again from its
checkpoint, the third time alone, in case it was too much for the machine together with others; then it is given up.
A watcher is told what happens: `SweepProgress` prints it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from excessmtl.files import write_whole
from excessmtl.lab.compare.collect import collect, csv_text, write_table
from excessmtl.lab.data.noise import UNIFORM
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.runs.folder import RunFolder, folder_of
from excessmtl.lab.runs.record import refuse_changed_data
from excessmtl.lab.studies.workers import Compute, run, using_backend

if TYPE_CHECKING:
    from excessmtl.lab.studies.study import Study

CHOSEN = "chosen.csv"
_DEATHS_TOGETHER = 2
"""How often the worker of a run may die before the run is tried alone."""
_SHOWN = 4
"""Tasks whose scores are in the line of a run."""


@dataclass(frozen=True)
class Failure:
    """A run that could not be finished: why, in one line, and what the machine says about it at length."""

    config: RunConfig
    reason: str
    details: str


@dataclass(frozen=True)
class Outcome:
    """What became of the runs of a sweep."""

    finished: tuple[RunConfig, ...]
    """Now."""
    before: tuple[RunConfig, ...]
    """Finished already when the sweep began."""
    failed: tuple[Failure, ...]


class SweepWatcher:
    """Told what happens, as it happens; does nothing itself."""

    def on_start(self, todo: Sequence[RunConfig], before: int, jobs: int) -> None:
        """Before the first run: what is to do, how many runs are finished already, how many go at a time."""

    def on_finished(self, config: RunConfig, summary: dict[str, Any], seconds: float) -> None:
        """After each run."""

    def on_failed(self, failure: Failure) -> None:
        """After each run that is given up."""

    def on_death(self, config: RunConfig, reason: str) -> None:
        """The worker of a run has died; the run will be tried again."""


def run_study(
    study: "Study", out: Path, *, jobs: int | None = None, backend: str = "loky", watcher: SweepWatcher | None = None
) -> "tuple[Study, Outcome]":
    """Run what is not finished of a study; the study with the runs as they were trained, and what became of them.

    `sweep` says what the arguments mean. Tuning runs lie in a folder beside `out`, which has `chosen.csv`. Failed
    tuning runs are in the outcome too; a method all of whose tuning runs failed is left out of the study.
    """
    failed: tuple[Failure, ...] = ()
    if study.tune is not None:
        beside = tuning_folder(out)
        failed = sweep(study.tune.runs(study.runs), beside, jobs=jobs, backend=backend, watcher=watcher).failed
        runs, table = study.tune.choose(study.runs, beside)
        write_whole(out / CHOSEN, csv_text(table).encode())
        study = replace(study, runs=runs)
        if not runs:
            return study, Outcome((), (), failed)
    outcome = sweep(study.runs, out, jobs=jobs, backend=backend, watcher=watcher)
    return study, replace(outcome, failed=(*failed, *outcome.failed))


def tuning_folder(out: Path) -> Path:
    """Beside the folder of the study, whose tables are about its own runs alone."""
    return out.with_name(f"{out.name}-tuning")


def next_runs(study: "Study", out: Path) -> tuple[list[RunConfig], int, Path]:
    """What would run now, of how many, and where: the tuning runs as long as some are not finished."""
    runs, place = study.runs, out
    if study.tune is not None:
        tries, beside = study.tune.runs(study.runs), tuning_folder(out)
        if not all(is_finished(config, beside) for config in tries):
            runs, place = tuple(tries), beside
        else:
            runs, _ = study.tune.choose(study.runs, beside)
    return [config for config in runs if not is_finished(config, place)], len(runs), place


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
    for folder, count in Counter(map(folder_of, runs)).items():
        if count > 1:
            raise ValueError(f"{count} runs of the sweep are the same (folder {out / folder}); keep one")
    with using_backend(backend) as (compute, slots), closing(RunFolder(out)) as held:
        held.claim(f"another sweep is at work in {out}; wait for it, or choose another --out")
        before, left = [], {}
        for config in sorted(runs, key=lambda config: config.seed):
            if is_finished(config, out):
                before.append(config)
            else:
                left[folder_of(config)] = config
        watcher = SweepWatcher() if watcher is None else watcher
        watcher.on_start(list(left.values()), len(before), jobs or slots)
        finished, failed = _run_all(left, out, jobs or slots, compute, watcher)
        if before or finished:
            write_table(collect(out), out / "runs.csv")
        parts = [f"{folder_of(failure.config)}\n{failure.reason}\n\n{failure.details}\n" for failure in failed]
        if failed:
            write_whole(out / "failed.txt", "\n".join(parts).encode())
        else:
            (out / "failed.txt").unlink(missing_ok=True)
        return Outcome(tuple(finished), tuple(before), tuple(failed))


def is_finished(config: RunConfig, out: Path) -> bool:
    """Whether a sweep in `out` has nothing left to do for this run."""
    folder = out / folder_of(config)
    summary = RunFolder(folder).summary
    if summary is not None:
        recorded = (summary.get("settings") or {}).get("data_checksum")
        refuse_changed_data(config.benchmark, config.data, recorded, folder)
    return summary is not None


def _run_all(
    runs: Mapping[Path, RunConfig], out: Path, jobs: int, compute: Compute, watcher: SweepWatcher
) -> tuple[list[RunConfig], list[Failure]]:
    """Round after round, until every run is finished or given up."""
    left, deaths = dict(runs), Counter[Path]()
    finished: list[RunConfig] = []
    failed: list[Failure] = []
    while left:
        together = [folder for folder in left if deaths[folder] < _DEATHS_TOGETHER]
        tasks = {folder: partial(run, left[folder], out / folder) for folder in together or list(left)[:1]}
        for folder, result in compute(tasks, jobs if together else 1):
            config, reason = left[folder], result.reason
            if result.died:
                deaths[folder] += 1
                if deaths[folder] <= _DEATHS_TOGETHER:
                    watcher.on_death(config, reason)
                    continue
                reason = f"its worker died {deaths[folder]} times, at last alone: {reason}"
            del left[folder]
            if result.summary is not None:
                finished.append(config)
                watcher.on_finished(config, result.summary, result.seconds)
            else:
                failed.append(Failure(config, reason, result.details))
                watcher.on_failed(failed[-1])
    return finished, failed


class SweepProgress(SweepWatcher):
    """A line for every run that ends, and on a terminal a bar below them; a context manager."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bar = Progress(
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,  # elsewhere a bar would be noise; the lines say as much
            speed_estimate_period=1e6,  # seconds: a run may take hours
        )
        self.bar.add_task("")
        (self.task,) = self.bar.tasks

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def on_start(self, todo: Sequence[RunConfig], before: int, jobs: int) -> None:
        """How much there is to do. A study that tunes starts twice."""
        if todo:
            known = f", {before} are finished already" if before else ""
            self._print(f"{len(todo)} runs to do{known}; {min(jobs, len(todo))} at a time")
        else:
            self._print(f"nothing to do, all {before} runs are finished")
        self.bar.reset(self.task.id, total=len(todo))

    def on_finished(self, config: RunConfig, summary: dict[str, Any], seconds: float) -> None:
        """Scores of the run."""
        scores = [
            f"{task} {'diverged' if score is None else f'{score:.4f}'}" for task, score in summary["scores"].items()
        ]
        self._end(config, ", ".join(scores[:_SHOWN]) + (", ..." if len(scores) > _SHOWN else ""))

    def on_failed(self, failure: Failure) -> None:
        """Why it failed."""
        self._end(failure.config, f"FAILED: {failure.reason}")

    def on_death(self, config: RunConfig, reason: str) -> None:
        """The sweep goes on."""
        self._print(f"{described(config)}: its worker died ({reason}); it will go on from its checkpoint")

    def _end(self, config: RunConfig, news: str) -> None:
        self.bar.advance(self.task.id)
        self._print(f"{self.task.completed:.0f}/{self.task.total:.0f}  {described(config)}: {news}")

    def _print(self, line: str) -> None:
        self.console.print(line, soft_wrap=True, markup=False, highlight=False)


def described(config: RunConfig) -> str:
    """A run in a few words."""
    kind = "" if config.noise_kind == UNIFORM else f" ({config.noise_kind})"
    return f"{config.benchmark}, {config.name}, noise {config.noise:g}{kind}, seed {config.seed}"
