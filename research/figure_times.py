"""How long the runs of the paper's figures take: `python -m research.figure_times` writes lab/paper/times.csv.

A short run of each method on each benchmark, on one thread; both scales share what has the same batches. What counts
is the processor's time, not that of the clock, so that other programs on the machine disturb it little. A step has its
share of the evaluation. Of a benchmark whose data is not found the stand-in is measured.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
from joblib import parallel_config

from excessmtl.files import write_whole
from excessmtl.lab.paper import times
from excessmtl.lab.paper.plans import SCALES
from excessmtl.lab.paper.registry import Figure, RunsFigure, registry
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.training.batches import make_batches
from excessmtl.lab.training.loop import train
from excessmtl.lab.training.resolve import load_benchmark, resolve


class Row(NamedTuple):
    """What `times.time_of` reads."""

    scale: str
    name: str
    method: str
    steps: int
    seconds_per_step: float
    start: float


_MOST_STEPS = 40


def cpu_seconds(config: RunConfig, epochs: int = 1) -> float:
    """Of a run of so many epochs, each with a few dozen steps at most."""
    limit = min(config.limit_batches or _MOST_STEPS, _MOST_STEPS)
    before = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        train(replace(config, epochs=epochs, limit_batches=limit, device="cpu"), Path(folder) / "run")
    return time.process_time() - before


def length_of(config: RunConfig) -> tuple[int, int]:
    """Of the whole run: epochs, and steps in each."""
    benchmark, device = load_benchmark(config), torch.device("cpu")
    resolved = resolve(config, benchmark, device)
    batches = make_batches(benchmark.train, resolved.batch_size, device).steps
    return resolved.epochs, min(batches, resolved.limit_batches or batches)


def measured() -> Iterator[Row]:
    """A row per scale, benchmark and method, and one per figure that is computed without runs (at the quick scale)."""
    start: dict[str, float] = {}
    per_step: dict[tuple[str, str, int | None], float] = {}
    for scale in SCALES:
        figures = list(registry().values())
        runs = [run for entry in figures if isinstance(entry, RunsFigure) for run in entry.runs(scale, {})]
        for run in {(run.benchmark, run.name): run for run in runs}.values():
            if run.benchmark not in start:
                # The first one is thrown away: it waits for what is imported once.
                _, one, two = (cpu_seconds(run, epochs) for epochs in (1, 1, 2))
                start[run.benchmark] = max(2 * one - two, 0.0)
            epochs, steps = length_of(run)
            key = (run.benchmark, run.name, run.batch_size)
            if key not in per_step:
                per_step[key] = (cpu_seconds(run) - start[run.benchmark]) / min(steps, _MOST_STEPS)
            yield Row(scale, run.benchmark, run.name, epochs * steps, per_step[key], start[run.benchmark])
    for entry in figures:
        if isinstance(entry, Figure):
            before = time.process_time()
            with parallel_config(backend="sequential"):  # the time of other processes would not be counted
                entry.compute("quick")
            yield Row("quick", entry.name, "", 1, time.process_time() - before, 0.0)


def main() -> None:
    """Measure everything; one row after the other on the screen."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    rows = []
    for row in measured():
        rows.append(row)
        print(row, flush=True)
    table = pd.DataFrame(rows).to_csv(index=False, float_format="%.3g", lineterminator="\n")
    write_whole(times.FILE, f"# python -m research.figure_times; on 2 CPU cores, approximate\n{table}".encode())


if __name__ == "__main__":
    main()
