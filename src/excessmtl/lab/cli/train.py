"""`excessmtl train`: one run."""

import re
from itertools import count, takewhile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from excessmtl.lab.cli.app import console, silence_lightning
from excessmtl.lab.cli.options import takes_a_run
from excessmtl.lab.runs.config import RunConfig


@takes_a_run()
def train(
    config: RunConfig,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run. Default: runs/BENCHMARK-METHOD-noise-P-seed-S, a new one.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            help="Resume the run in --out, or else the last one with the default name, to its number of epochs, or to "
            "more --epochs."
        ),
    ] = False,
) -> None:
    """Train a network on many tasks with one method and keep everything in a run folder."""
    # Imported here: this takes seconds, and `--help` should not.
    from excessmtl.lab.training.loop import Run
    from excessmtl.lab.training.progress import ProgressBar

    silence_lightning()
    place = _default_folder(config, resume) if out is None else out
    run = Run(config, place, resume)
    if not run.fabric.is_global_zero:
        run.execute()
        return
    console.print(
        f"{run.benchmark.name} ({run.benchmark.source}), method {config.name}, noise {config.noise:g}, "
        f"seed {config.seed}",
        soft_wrap=True,
    )
    primary = {task.name: task.kind.score for task in run.benchmark.tasks}
    with ProgressBar(console, run.config.epochs, primary) as bar:
        run.watcher = bar
        summary = run.execute()
    console.print(summary_table(summary))
    console.print(f"run folder: {place}", soft_wrap=True)


def _default_folder(config: RunConfig, resume: bool) -> Path:
    """Named after the run; where that is taken, with a number behind it. To resume: the last one of that name."""
    name = f"{Path(config.benchmark.removesuffix('.gz')).stem}-{config.name}-noise-{config.noise:g}-seed-{config.seed}"
    words = re.sub(r"[^A-Za-z0-9_.=-]+", "-", name).strip("-.")
    places = (Path("runs", words if number == 1 else f"{words}-{number}") for number in count(1))
    taken = list(takewhile(Path.exists, places))
    return taken[-1] if resume and taken else Path("runs", f"{words}-{len(taken) + 1}" if taken else words)


def summary_table(summary: dict[str, Any]) -> Table:
    """Scores and weights of a run, task by task."""
    table = Table(
        title=f"{summary['method']} on {summary['benchmark']}, noise {summary['noise']:g}, {summary['epochs']} epochs"
    )
    for column in ("task", "labels", "metric", "score", "weight"):
        table.add_column(column, justify="right" if column in ("score", "weight") else "left")
    for task, score in summary["scores"].items():
        weight = "" if summary["weights"] is None else f"{summary['weights'][task] or 0:.3f}"
        arrow = "↑" if summary["higher_is_better"][task] else "↓"
        labels = "noise added" if task in summary["noisy_tasks"] and summary["noise"] else "as given"
        shown = "diverged" if score is None else f"{score:.4f}"
        table.add_row(task, labels, f"{summary['primary_metric'][task]} {arrow}", shown, weight)
    return table
