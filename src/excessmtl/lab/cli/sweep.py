"""`excessmtl sweep`: all runs of a study, and what they say."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from excessmtl.lab.cli.app import console, silence_lightning

FAILED = 1


def sweep(
    study: Annotated[
        Path,
        typer.Argument(
            metavar="STUDY.yaml",
            help="The file of the study (docs/studies.md), or the name of one that comes with the package: demo, ...",
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Folder of the runs. Default: runs/ and the study's name.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Number of runs at a time. Default: one per core.")] = None,
    backend: Annotated[str, typer.Option(help="loky (this machine), ray or dask (a cluster).")] = "loky",
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, mps. Default: the study's.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would run.")] = False,
) -> None:
    """Run what is not finished of a study, and print its tables. If stopped or killed, the same command resumes it."""
    # Imported here: this takes seconds, and `--help` should not.
    from excessmtl.lab.studies.study import read_study
    from excessmtl.lab.studies.sweep import SweepProgress, described, next_runs, run_study
    from excessmtl.lab.studies.tables import write_tables
    from excessmtl.lab.studies.workers import check_in_a_worker

    silence_lightning()
    plan = read_study(study)
    if device is not None:
        changes: dict[str, Any] = {"device": device}
        plan = replace(plan, runs=tuple(replace(config, **changes) for config in plan.runs))
    place = Path("runs", plan.name) if out is None else out
    left, count, where = next_runs(plan, place)
    if dry_run:
        for config in left:
            console.print(described(config), soft_wrap=True)
        then = f"; then {len(plan.runs)} at what they choose, in {place}" if where != place else ""
        console.print(f"{len(left)} of {count} runs would run, in {where}{then}", soft_wrap=True)
        return
    if left:
        check_in_a_worker(left)
    with SweepProgress(console) as watcher:
        plan, outcome = run_study(plan, place, jobs=jobs, backend=backend, watcher=watcher)
    if outcome.finished or outcome.before:
        written = write_tables(plan, place)
        for table in written.tables:
            console.print(table.as_rich())
        for note in written.notes:
            console.print(note)
        console.print(f"written: {', '.join(map(str, written.files))}", soft_wrap=True)
    if outcome.failed:
        console.print(f"{len(outcome.failed)} runs failed (failed.txt in {place} has more):", soft_wrap=True)
        for failure in outcome.failed:
            console.print(f"  {described(failure.config)}: {failure.reason}", soft_wrap=True)
        raise typer.Exit(FAILED)
