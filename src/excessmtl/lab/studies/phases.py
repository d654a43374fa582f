"""A study from beginning to end: its tuning runs, if it has any, and its own runs at what they choose."""

from dataclasses import replace
from pathlib import Path

from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.studies.outcome import Failure, Outcome, SweepWatcher
from excessmtl.lab.studies.study import Study
from excessmtl.lab.studies.sweep import is_finished, sweep
from excessmtl.lab.studies.tuning import tuning_folder


def run_study(
    study: Study,
    out: Path,
    *,
    jobs: int | None = None,
    backend: str = "loky",
    watcher: SweepWatcher | None = None,
) -> tuple[Study, Outcome]:
    """Run what is not finished of a study; the study with the runs as they were trained, and what became of them.

    `sweep` says what the arguments mean. Tuning runs lie in a folder beside `out`, which has `chosen.csv`. Failed
    tuning runs are in the outcome too; a method all of whose tuning runs failed is left out of the study.
    """
    failed: tuple[Failure, ...] = ()
    if study.tune is not None:
        beside = tuning_folder(out)
        tried = sweep(study.tune.runs(study.runs), beside, jobs=jobs, backend=backend, watcher=watcher)
        choice = study.tune.choose(study.runs, beside)
        choice.write(out)
        study, failed = replace(study, runs=choice.runs), tried.failed
        if not study.runs:
            return study, Outcome((), (), failed)
    outcome = sweep(study.runs, out, jobs=jobs, backend=backend, watcher=watcher)
    return study, replace(outcome, failed=(*failed, *outcome.failed))


def next_runs(study: Study, out: Path) -> tuple[list[RunConfig], int, Path]:
    """What would run now, of how many, and where: the tuning runs as long as some are not finished."""
    runs, place = study.runs, out
    if study.tune is not None:
        tries, beside = study.tune.runs(study.runs), tuning_folder(out)
        if not all(is_finished(config, beside) for config in tries):
            runs, place = tuple(tries), beside
        else:
            runs = study.tune.choose(study.runs, beside).runs
    return [config for config in runs if not is_finished(config, place)], len(runs), place
