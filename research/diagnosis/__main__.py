"""`python -m research.diagnosis`: train what has not been trained, and write what docs/diagnosis.md shows."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import typer
from joblib import Parallel, delayed
from rich.console import Console

from excessmtl.files import write_whole
from excessmtl.lab.cli.terminal import plain_errors
from research.diagnosis import page, raters
from research.diagnosis.cells import Cell, record
from research.diagnosis.measure import hard_summary, measured, samples_summary
from research.diagnosis.study import HARD, REPORTED, SEEDS, cells

console = Console(highlight=False, markup=False)


def main(
    folder: Annotated[Path, typer.Option(help="Folder of the recorded predictions.")] = Path("runs/diagnosis"),
    seeds: Annotated[int, typer.Option(help="How many.")] = SEEDS,
    data_sarcos: Annotated[Path | None, typer.Option(help="The SARCOS file or folder; else it is left out.")] = None,
    data_mnist: Annotated[Path | None, typer.Option(help="The folder of MNIST; else it is left out.")] = None,
    data_pacs: Annotated[Path | None, typer.Option(help="The folder or archive of PACS; else it is left out.")] = None,
    jobs: Annotated[int, typer.Option(help="Networks at a time.")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda: where they are trained.")] = "cpu",
    recorded: Annotated[bool, typer.Option("--recorded", help="Train nothing: measure what is there.")] = False,
) -> None:
    """About ten minutes a seed on one core, without MNIST and PACS; a stopped study goes on where it was."""
    vader = raters.path_of_data()
    os.environ["EXCESSMTL_DATA"] = str(folder / "no-data")  # the bundled digits, also where MNIST is in the cache
    data = {"sarcos": data_sarcos, "mnist": data_mnist, "pacs": data_pacs}
    main_cells, hard_cells = list(cells(REPORTED, range(seeds), data)), list(cells(HARD, range(seeds), {}))
    folder.mkdir(parents=True, exist_ok=True)
    if not recorded:
        train([*main_cells, *hard_cells], folder, jobs, device)
    frame, hard = measured(main_cells, folder), measured(hard_cells, folder)
    if frame.empty or hard.empty:
        raise ValueError(f"{folder} holds no recorded predictions; leave --recorded out")
    sizes = {str(most): measured(main_cells, folder, most) for most in (100, 200, 400)}
    _write(frame, page.TASKS)
    _write(hard_summary(hard), page.FOLDER / "hard.csv")
    _write(samples_summary({**sizes, "all": frame}), page.FOLDER / "samples.csv")
    if not recorded and vader is not None:
        _write(raters.domains(vader, seed=0), page.FOLDER / "vader_domains.csv")
    page.PAGE.write()
    console.print(f"written: {page.PAGE.path}, {page.TASKS}", soft_wrap=True)


def _write(frame: pd.DataFrame, path: Path) -> None:
    write_whole(path, frame.to_csv(index=False, float_format="%.4g").encode())


def train(cells: Sequence[Cell], folder: Path, jobs: int, device: str) -> None:
    """Train what is not recorded, `jobs` networks at a time."""
    done = Parallel(n_jobs=jobs, return_as="generator_unordered")(
        delayed(train_one)(cell, folder, device) for cell in cells
    )
    for path in done:
        console.print(str(path), soft_wrap=True)


def train_one(cell: Cell, folder: Path, device: str) -> Path:
    """In a process of its own, or in this one."""
    torch.set_num_threads(1)
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    return record(cell, folder, device)


if __name__ == "__main__":
    typer.run(plain_errors(main, "what is recorded is kept, the same command goes on"))
