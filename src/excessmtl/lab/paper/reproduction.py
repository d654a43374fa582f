"""Making figures: the runs that are missing first, all in one pool, then the drawings."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from excessmtl.files import write_whole
from excessmtl.lab.paper.plans import Data, Scale, needed_runs
from excessmtl.lab.paper.registry import Figure
from excessmtl.lab.paper.subjects import Runs
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.runs.folder import SECTIONS, folder_of

if TYPE_CHECKING:
    from excessmtl.lab.studies.sweep import SweepWatcher

POOL = "runs"
"""The folder in `out` whose runs all figures share."""
Made = Iterator[tuple[Figure, list[Path]]]


def reproduce(
    figures: Sequence[Figure],
    scale: Scale,
    out: Path,
    *,
    data: Data,
    jobs: int | None = None,
    watcher: "SweepWatcher | None" = None,
) -> Made:
    """Train what is missing, then draw; the figures with the files they wrote, one by one."""
    needed = needed_runs(figures, scale, data)
    pool = out / POOL
    if needed:
        _train(needed, pool, jobs, watcher)
        write_whole(out / SECTIONS, b'["paper"]\n')
    for entry in figures:
        if not entry.about:
            drawing = entry.draw(scale)
            yield entry, drawing.save(out, entry.name) if drawing else []
        else:
            # The runs that this figure asked for, not all that lie in the pool: another scale may have left some.
            wanted = {folder_of(run).as_posix() for run in entry.runs(scale, data)}
            runs = Runs.read(pool)
            yield entry, _saved(entry, Runs(runs.frame[runs.frame.folder.isin(wanted)]), out)


def _train(runs: Sequence[RunConfig], pool: Path, jobs: int | None, watcher: "SweepWatcher | None") -> None:
    from excessmtl.lab.studies.sweep import is_finished, sweep  # figures that need no run do without
    from excessmtl.lab.studies.workers import check_in_a_worker

    left = [run for run in runs if not is_finished(run, pool)]
    if left:
        check_in_a_worker(left)
    outcome = sweep(runs, pool, jobs=jobs, watcher=watcher)
    if outcome.failed:
        first = outcome.failed[0]
        raise ValueError(
            f"{len(outcome.failed)} of {len(runs)} runs failed, nothing was drawn; the first, "
            f"{folder_of(first.config)}: {first.reason}"
        )


def draw_from(figures: Sequence[Figure], runs: Path, out: Path) -> Made:
    """Draw from runs that exist (folders of runs, or a `runs.csv`), training nothing; figures without runs are left."""
    from_runs = [entry for entry in figures if entry.about]
    names = ", ".join(entry.name for entry in from_runs or figures)
    if not from_runs:
        raise ValueError(f"--runs draws from training runs, and {names} is not made of any; leave --runs out")
    found = Runs.read(runs)
    if not any(found.subjects(entry.about) for entry in from_runs):
        raise ValueError(f"{runs} holds no run that {names} shows; --list says what they are about")
    for entry in from_runs:
        yield entry, _saved(entry, found, out)


def _saved(entry: Figure, runs: Runs, out: Path) -> list[Path]:
    return [path for name, drawing in entry.drawings(runs) for path in drawing.save(out, name)]
