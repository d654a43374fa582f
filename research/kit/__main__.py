"""`python -m research.kit`: train every configuration on the choosing problems, and write a row per network."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import typer

from excessmtl.files import atomic_write
from excessmtl.lab.cli.app import plain_errors
from research.kit.configs import Config, read_configs
from research.kit.problems import PROBLEMS, Case, Cases, load
from research.kit.training import Training

FILE = "kit.csv.gz"
COLUMNS = (
    *("problem", "config", "lr", "level", "kind", "seed"),
    # Means over the clean tasks, the noisy tasks and all tasks.
    *("clean", "noisy", "overall"),
    # On noisy validation labels, lower is better; the clean tasks' share of the weight.
    *("val", "cw"),
)


def rows(name: str, config: Config, data: Cases, cases: Sequence[Case], epochs: float) -> pd.DataFrame:
    """A row per learning rate and case."""
    problem = PROBLEMS[name]
    outcome = Training(problem, data, config).run(max(1, round(problem.epochs * epochs)))
    scores, weights = outcome.scores.numpy(), outcome.weights.numpy()
    bad = list(problem.noisy)
    good = [task for task in range(scores.shape[1]) if task not in bad]
    networks = [(rate, case) for rate in problem.rates for case in cases]
    frame = pd.DataFrame(
        [(name, config.name, rate, case.level, case.kind, case.seed) for rate, case in networks],
        columns=list(COLUMNS[:6]),
    )
    return frame.assign(
        clean=scores[:, good].mean(1),
        noisy=scores[:, bad].mean(1),
        overall=scores.mean(1),
        val=outcome.validation.numpy(),
        cw=weights[:, good].sum(1),
    )


def main(
    configs: Annotated[Path, typer.Option(help="JSON file of configurations, like research/kit/configs.json.")],
    data: Annotated[Path, typer.Option(help="choose.npz, as `python -m research.kit.prepare` makes it.")],
    out: Annotated[Path, typer.Option(help=f"Folder that {FILE} is written to.")],
    problems: Annotated[str, typer.Option(help="Some of those named by default.")] = ",".join(PROBLEMS),
    seeds: Annotated[int, typer.Option(min=1, help="How many.")] = 5,
    epochs: Annotated[float, typer.Option(help="Factor on every problem's number of epochs.")] = 1.0,
) -> None:
    """Train all configurations on all problems."""
    chosen, names = read_configs(configs), problems.split(",")
    unknown = [name for name in names if name not in PROBLEMS]
    if unknown:
        raise ValueError(f"--problems: {unknown[0]!r} is unknown: choose from {', '.join(PROBLEMS)}")
    with np.load(data) as file:
        arrays = {array: file[array] for array in file.files}
    torch.set_num_threads(1)  # so many small products are not faster with more
    tables = []
    for name in names:
        start, cases = time.perf_counter(), PROBLEMS[name].cases(seeds)
        loaded = load(PROBLEMS[name], arrays, cases)
        tables += [rows(name, config, loaded, cases, epochs) for config in chosen]
        print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)
    with atomic_write(out / FILE) as written:
        packing = {"method": "gzip", "compresslevel": 9, "mtime": 0}
        pd.concat(tables)[list(COLUMNS)].to_csv(written, index=False, float_format="%.6g", compression=packing)


if __name__ == "__main__":
    typer.run(plain_errors(main, "nothing was written"))
