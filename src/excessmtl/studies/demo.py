"""The small robustness study behind `make demo`: what label noise in one task does to the other, method by method.

Bundled digits, two per picture; labels of the bottom-right digit are replaced at random. Runs are kept under `--out`
and not run again.
"""

import argparse
import itertools
import time
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table

from excessmtl.training.config import RunConfig
from excessmtl.training.loop import train

METHODS = ("excess", "uniform", "gradnorm", "mgda", "groupdro", "imtl")
NOISE = (0.0, 0.4, 0.8)


def one_run(method: str, noise: float, epochs: int, out: Path) -> dict[str, Any]:
    """One cell of the table, in a process of its own."""
    torch.set_num_threads(1)
    config = RunConfig("multimnist", method, noise=noise, epochs=epochs, batch_size=128, device="cpu")
    return train(config, out / f"{method}-noise-{noise:g}", resume=True)


def table(summaries: list[dict[str, Any]]) -> Table:
    """Scores and weights, one block of rows per noise level."""
    shown = Table(title="Accuracy in percent; noise = share of wrong labels in the bottom-right task")
    for column in ("noise", "method", "clean task", "noisy task", "mean", "clean weight"):
        shown.add_column(column, justify="left" if column == "method" else "right")
    cells = {(summary["method"], summary["noise"]): summary for summary in summaries}
    for noise in NOISE:
        for method in METHODS:
            summary = cells[method, noise]
            scores = [f"{100 * summary[f'{group}_score']:.1f}" for group in ("clean", "noisy", "overall")]
            last = method == METHODS[-1]
            shown.add_row(f"{noise:g}", method, *scores, f"{summary['clean_weight']:.2f}", end_section=last)
    return shown


def main() -> None:
    """Run what has not been run, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder of the runs")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    options = parser.parse_args()
    console = Console(highlight=False)
    cells = list(itertools.product(METHODS, NOISE))
    console.print(f"{len(cells)} runs of {options.epochs} epochs, {options.jobs} at a time, kept in {options.out}")
    started = time.monotonic()
    runs = Parallel(n_jobs=options.jobs, return_as="generator_unordered")(
        delayed(one_run)(method, noise, options.epochs, options.out) for method, noise in cells
    )
    summaries = []
    for summary in runs:
        summaries.append(summary)
        scores = ", ".join(f"{task} {100 * score:.1f} %" for task, score in summary["scores"].items())
        console.print(f"{len(summaries):>2}/{len(cells)}  {summary['method']:<9} noise {summary['noise']:g}: {scores}")
    console.print(table(summaries))
    console.print(
        "Test scores of the last epoch, one seed: differences below a point mean nothing. Weight: share of the clean "
        f"task in the last epoch. {time.monotonic() - started:.0f} s."
    )


if __name__ == "__main__":
    main()
