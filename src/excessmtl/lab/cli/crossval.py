"""`excessmtl crossval`: which training labels are bad, for all tasks from one cross-validation."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from excessmtl.lab.cli.diagnose import check_file, show
from excessmtl.lab.cli.terminal import console, names_in
from excessmtl.lab.cli.train import of_a_table, pairs


def crossval(
    benchmark: Annotated[str, typer.Argument(help="What `excessmtl train` takes: a benchmark, a table, a function.")],
    out: Annotated[Path, typer.Option(help="Folder for the runs of the folds and predictions.npz.")],
    folds: Annotated[int, typer.Option(help="How many networks, each trained without one fold.")] = 5,
    method: Annotated[str, typer.Option(help="A method, or 'single' for one network per task.")] = "excess",
    seed: Annotated[int, typer.Option(help="Of weights, batches, noise and folds.")] = 0,
    noise: Annotated[float, typer.Option(help="Share of bad labels to add to the noisy tasks, 0 to 1.")] = 0.0,
    noisy_tasks: Annotated[str | None, typer.Option(help="Comma-separated. Default: the benchmark's.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Default: the benchmark's.")] = None,
    data: Annotated[str | None, typer.Option(help="File or folder with the benchmark's data.")] = None,
    targets: Annotated[str | None, typer.Option(help="Of a table: the columns to predict.")] = None,
    kind: Annotated[list[str], typer.Option(help="Of a table: target=kind; repeat.")] = [],  # noqa: B006
    id: Annotated[str | None, typer.Option(help="Of a table: the column that names its rows, no input.")] = None,
    benchmark_option: Annotated[list[str], typer.Option(help="Option of the benchmark, name=value.")] = [],  # noqa: B006
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print an object per task instead of a table.")] = False,
    suspects: Annotated[
        Path | None,
        typer.Option(
            help="CSV or .parquet file for all labels, the worst first; by the row of your table (0: the first "
            "below the header), else by the sample of the training split."
        ),
    ] = None,
) -> None:
    """Predict every training sample by a network that has not seen it; say which labels are bad, in every task.

    Stopped? The same command goes on.
    """
    from excessmtl.lab.training.config import RunConfig
    from excessmtl.lab.training.crossval import FILE, cross_validate

    for name in ("lightning.fabric", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.WARNING)
    check_file(suspects)
    config = RunConfig(
        benchmark,
        method,
        seed=seed,
        noise=noise,
        noisy_tasks=None if noisy_tasks is None else tuple(names_in(noisy_tasks)),
        epochs=epochs,
        data=data,
        benchmark_options=pairs("--benchmark-option", benchmark_option) | of_a_table(targets, kind, id),
        device=device,
    )
    show(cross_validate(config, out, folds), json, suspects)
    if not json:
        console.print(f"written: {out / FILE}", soft_wrap=True)
