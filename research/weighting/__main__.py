"""`python -m research.weighting`: try weighting rules over worlds, noise levels and seeds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import typer
from rich.console import Console

from excessmtl.lab.cli.errors import plain_errors
from excessmtl.lab.data.base import DataNotFoundError
from research.weighting.records import table, write
from research.weighting.regrets import by_noise
from research.weighting.stacked import StackedTraining
from research.weighting.tried import GROUPS, choose
from research.weighting.worlds import QUICK, SARCOS, WORLDS, Cases, load

_FILE = "weighting.csv"
_QUICK_SEEDS = 3
_WIDTH = 110
"""Columns that the table needs; where the terminal has fewer, formulas would be broken over many lines."""
console = Console(highlight=False, markup=False, width=max(Console().width, _WIDTH))


def main(
    out: Annotated[Path | None, typer.Option(help=f"Folder that {_FILE} is written to.")] = None,
    worlds: Annotated[list[str] | None, typer.Option(help=f"From {', '.join(WORLDS)}. Default: all.")] = None,
    candidates: Annotated[
        list[str] | None, typer.Option(help=f"Formulas or groups ({', '.join(GROUPS)}). Default: trust.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many. Default: 6.")] = None,
    first_seed: Annotated[int, typer.Option(help="Seeds from 100 on choose; those below 100 confirm.")] = 100,
    noise: Annotated[list[float] | None, typer.Option(help="Noise levels. Default: 0, 0.5 and 1.")] = None,
    epochs_factor: Annotated[float, typer.Option(help="Factor on every world's number of epochs.")] = 1.0,
    data_sarcos: Annotated[Path | None, typer.Option(help="The SARCOS file or folder.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Two worlds, few candidates, 3 seeds: for one core.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="Only print the candidates.")] = False,
) -> None:
    """Train every candidate in every world; write a row per run and print how much each is to be regretted."""
    if list_all:
        for group, members in GROUPS.items():
            console.print(f"{group}:\n" + "\n".join(f"  {candidate.name}" for candidate in members), soft_wrap=True)
        return
    chosen = choose(candidates or ["quick" if quick else "trust"])
    names = worlds or list(QUICK if quick else WORLDS)
    count = (_QUICK_SEEDS if quick else 6) if seeds is None else seeds
    levels = sorted(set(noise or (0.0, 0.5, 1.0)))
    place = _checked(out, names, count, first_seed, levels, epochs_factor)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    # All data is read before anything is trained: a file that is missing should be known at once.
    numbers = range(first_seed, first_seed + count)
    every = [_load(name, levels, numbers, data_sarcos, epochs_factor) for name in dict.fromkeys(names)]
    tables = []
    for cases in every:
        count = len(chosen) * len(cases.cases)
        console.print(f"{cases.world}: {count} runs of {cases.recipe.epochs} epochs on {device}")
        tables.append(table(cases, chosen, StackedTraining(cases, chosen, device).run()))
    frame = pd.concat(tables, ignore_index=True)
    write(frame, place / _FILE)
    console.print(by_noise(frame).as_rich())
    console.print(f"written: {place / _FILE}", soft_wrap=True)


def _load(
    world: str, levels: list[float], seeds: Sequence[int], data_sarcos: Path | None, epochs_factor: float
) -> Cases:
    data = data_sarcos if WORLDS[world].benchmark == SARCOS else None
    try:
        return load(world, levels, seeds, data, epochs_factor)
    except DataNotFoundError as error:
        where = "is missing" if data is None else f"is {data}, which cannot be used"
        raise ValueError(
            f"--data-sarcos {where}: {world} needs sarcos_inv_test.mat (or name other --worlds)"
        ) from error


def _checked(
    out: Path | None, worlds: list[str], seeds: int, first_seed: int, levels: list[float], epochs_factor: float
) -> Path:
    """The folder to write to, unless something is wrong with the options."""
    if out is None:
        raise ValueError("--out is missing: name a folder for the table")
    unknown = [world for world in worlds if world not in WORLDS]
    if unknown:
        raise ValueError(f"--worlds {unknown[0]!r} is unknown: choose from {', '.join(WORLDS)}")
    if seeds < 1:
        raise ValueError(f"--seeds is {seeds}: give at least 1")
    if first_seed < 0:
        raise ValueError(f"--first-seed is {first_seed}: give 0 or more")
    outside = [level for level in levels if not 0 <= level <= 1]
    if outside:
        raise ValueError(f"--noise is {outside[0]:g}: give shares between 0 and 1")
    if not 0 < epochs_factor < float("inf"):
        raise ValueError(f"--epochs-factor is {epochs_factor}: give a positive number")
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file: name a folder")
    return out


def app() -> typer.Typer:
    """The command as an application, as tests call it."""
    application = typer.Typer(add_completion=False)
    application.command()(plain_errors(main, "nothing has been written"))
    return application


if __name__ == "__main__":
    app()(prog_name="python -m research.weighting")
