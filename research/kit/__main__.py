"""`python -m research.kit`: train every configuration on the choosing problems."""

import time
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import typer

from excessmtl.lab.cli.terminal import plain_errors
from research.kit.cases import load
from research.kit.configs import Runs, read_configs
from research.kit.problems import KINDS, PROBLEMS, Arrays, Case
from research.kit.records import table, write
from research.kit.training import Training

FILE = "kit.csv.gz"


def main(
    configs: Annotated[Path, typer.Option(help="JSON file of configurations, like research/kit/configs.json.")],
    out: Annotated[Path, typer.Option(help=f"Folder that {FILE} is written to.")],
    problems: Annotated[str, typer.Option(help=f"Some of {','.join(PROBLEMS)}.")] = ",".join(PROBLEMS),
    data: Annotated[Path | None, typer.Option(help="choose.npz, as `python -m research.kit.prepare` makes it.")] = None,
    levels: Annotated[str, typer.Option(help="Shares of labels that are disturbed.")] = "0,.3,.6",
    kinds: Annotated[str, typer.Option(help=f"Kinds of noise, of {', '.join(KINDS)}.")] = "uniform",
    lrs: Annotated[str, typer.Option(help="Learning rates.")] = "1e-3,3e-3",
    seeds: Annotated[int, typer.Option(help="How many.")] = 3,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    epochs: Annotated[float, typer.Option(help="Factor on every problem's number of epochs.")] = 1.0,
) -> None:
    """Train all configurations on all problems; write a row per network."""
    names = _known("--problems", problems, PROBLEMS)
    if seeds < 1 or first < 0 or not 0 < epochs < float("inf"):
        raise ValueError(
            f"--seeds is {seeds}, --first {first} and --epochs {epochs}: give at least 1, 0 and more than 0"
        )
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file: name a folder")
    shares, kinds_of_noise = _numbers("--levels", levels), _known("--kinds", kinds, KINDS)
    outside = [share for share in shares if not 0 <= share <= 1]
    if outside:
        raise ValueError(f"--levels holds {outside[0]:g}: give shares between 0 and 1")
    pairs = [(share, kind) for share in shares for kind in kinds_of_noise if share or kind == kinds_of_noise[0]]
    cases = [Case(share, kind, seed) for share, kind in pairs for seed in range(first, first + seeds)]
    rates, chosen, arrays = _numbers("--lrs", lrs), read_configs(configs), _arrays(data, names)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tables = []
    for name in names:
        start, problem = time.perf_counter(), PROBLEMS[name]
        runs = Runs(chosen, rates, cases, device)
        training = Training(problem, load(problem, arrays, cases, device), runs)
        outcome = training.run(max(1, round(problem.epochs * epochs)))
        tables.append(table(name, runs, outcome, problem.noisy))
        typer.echo(f"{name}: {runs.count} networks on {device}, {time.perf_counter() - start:.1f} s")
    write(pd.concat(tables, ignore_index=True), out / FILE)
    typer.echo(f"written: {out / FILE}")


def _known(option: str, text: str, known: Collection[str]) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"{option} {unknown[0]!r} is unknown: choose from {', '.join(known)}")
    return names


def _numbers(option: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} is {text!r}: give numbers, with commas between them") from None


def _arrays(path: Path | None, names: list[str]) -> Arrays:
    needed = {array for name in names for array in PROBLEMS[name].arrays}
    if not needed:
        return {}
    if path is None:
        raise ValueError(
            "--data is missing: name choose.npz (research/kit/prepare.py makes it), or only t-... problems"
        )
    try:
        with np.load(path) as file:
            return {array: file[array] for array in sorted(needed)}
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"--data {path} cannot be used ({error}): research/kit/prepare.py makes such a file"
        ) from error


def app() -> typer.Typer:
    """The command as an application, as tests call it."""
    application = typer.Typer(add_completion=False)
    application.command()(plain_errors(main, "nothing has been written"))
    return application


if __name__ == "__main__":
    app()(prog_name="python -m research.kit")
