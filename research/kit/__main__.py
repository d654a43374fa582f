"""`python -m research.kit`: train every configuration on the choosing problems, and write a row per network."""

import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import typer

from excessmtl.files import atomic_write
from excessmtl.lab.cli.app import plain_errors
from research.kit.problems import PROBLEMS, Case, Data, load
from research.kit.rules import CONFIGS
from research.kit.training import Training

FILE = "kit.csv.gz"


def named(option: str, value: str, known: Collection[str]) -> list[str]:
    """The names in the value of an option, with commas between."""
    names = value.split(",")
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"{option}: {unknown[0]!r} is unknown: choose from {', '.join(known)}")
    return names


def rows(name: str, config: str, data: Data, cases: Sequence[Case], epochs: float) -> pd.DataFrame:
    """A row per learning rate and case: the mean scores of clean, noisy and all tasks; `val`: see `Training.run`."""
    problem = PROBLEMS[name]
    scores, validation = Training(problem, data, CONFIGS[config]).run(max(1, round(problem.epochs * epochs)))
    noisy = torch.tensor([task in problem.noisy for task in range(scores.shape[1])])
    networks = [(name, config, rate, *vars(case).values()) for rate in problem.rates for case in cases]
    frame = pd.DataFrame(networks, columns=["problem", "config", "lr", "level", "kind", "seed"])
    means = {"clean": scores[:, ~noisy], "noisy": scores[:, noisy], "overall": scores}
    return frame.assign(**{name: own.mean(1).numpy() for name, own in means.items()}, val=validation.numpy())


def main(
    data: Annotated[Path, typer.Option(help="choose.npz, as `python -m research.kit.prepare` makes it.")],
    out: Annotated[Path, typer.Option(help=f"Folder that {FILE} is written to.")],
    configs: Annotated[str, typer.Option(help="Some of those named by default.")] = ",".join(CONFIGS),
    problems: Annotated[str, typer.Option(help="Some of those named by default.")] = ",".join(PROBLEMS),
    seeds: Annotated[int, typer.Option(min=1, help="How many.")] = 5,
    epochs: Annotated[float, typer.Option(help="Factor on every problem's number of epochs.")] = 1.0,
) -> None:
    """Train all configurations on all problems."""
    labels, names = named("--configs", configs, CONFIGS), named("--problems", problems, PROBLEMS)
    with np.load(data) as file:
        arrays = {array: file[array] for array in file.files}
    torch.set_num_threads(1)  # so many small products are not faster with more
    tables = []
    for name in names:
        start, cases = time.perf_counter(), PROBLEMS[name].cases(seeds)
        loaded = load(PROBLEMS[name], arrays, cases)
        tables += [rows(name, label, loaded, cases, epochs) for label in labels]
        print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)
    with atomic_write(out / FILE) as written:
        packing = {"method": "gzip", "compresslevel": 9, "mtime": 0}
        pd.concat(tables).to_csv(written, index=False, float_format="%.6g", compression=packing)


if __name__ == "__main__":
    typer.run(plain_errors(main, "nothing was written"))
