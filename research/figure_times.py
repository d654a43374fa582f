"""How long the runs of the paper's figures take: `python -m research.figure_times` completes lab/paper/times.csv.

Rows that are in the file stay: to measure one anew, delete it first. A row is measured by runs of one and of two short
epochs, on one thread: the second epoch tells what all others take. What counts is the processor's time, not that of the
clock, so that other programs on the machine disturb it little. Of a benchmark whose data is not found the stand-in is
measured.
"""

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch
from joblib import parallel_config

from excessmtl.files import write_whole
from excessmtl.lab.paper import plans
from excessmtl.lab.paper.registry import Figure, registry
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.training.batches import Batches
from excessmtl.lab.training.loop import train
from excessmtl.lab.training.resolve import load_benchmark, resolve

_MOST_STEPS = 40


def seconds_of(figure: Figure) -> float:
    """Of a figure that is computed without runs, at the quick scale."""
    before = time.process_time()
    with parallel_config(backend="sequential"):  # the time of other processes would not be counted
        figure.draw("quick")
    return time.process_time() - before


def seconds_of_run(config: RunConfig) -> float:
    """The whole run, as it is planned."""
    benchmark, device = load_benchmark(config), torch.device("cpu")
    resolved = resolve(config, benchmark, device)
    batches = Batches(benchmark.train, resolved.batch_size, device).steps
    steps = min(batches, resolved.limit_batches or batches)
    measured = min(steps, _MOST_STEPS)
    seconds = []
    for epochs in (1, 1, 2):
        before = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            train(replace(config, epochs=epochs, limit_batches=measured, device="cpu"), Path(folder) / "run")
        seconds.append(time.process_time() - before)
    _, one, two = seconds  # the first run waits for what is imported once
    return one + (two - one) * (resolved.epochs * steps / measured - 1)


def main() -> None:
    """Measure what is missing; the file is written after every row."""
    torch.set_num_threads(1)
    figures = list(registry().values())
    work: dict[tuple[str, ...], RunConfig | Figure] = {
        (scale, run.benchmark, run.name): run
        for scale in plans.SCALES
        for run in plans.needed_runs(figures, scale, None)
    }
    work |= {("quick", figure.name, ""): figure for figure in figures if not figure.about}
    table = pd.read_csv(plans.TIMES, comment="#", keep_default_na=False)
    known = set(zip(table["scale"], table["name"], table["method"], strict=True))
    for key, subject in ((key, subject) for key, subject in work.items() if key not in known):
        seconds = seconds_of_run(subject) if isinstance(subject, RunConfig) else seconds_of(subject)
        table.loc[len(table)] = [*key, seconds]
        text = table.to_csv(index=False, float_format="%.3g", lineterminator="\n")
        write_whole(plans.TIMES, f"# python -m research.figure_times; on 2 CPU cores, approximate\n{text}".encode())
        print(key, seconds, flush=True)


if __name__ == "__main__":
    main()
