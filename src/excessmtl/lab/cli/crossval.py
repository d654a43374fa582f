"""`excessmtl crossval`: which training labels are bad, for all tasks from one cross-validation."""

from pathlib import Path
from typing import Annotated

import typer

from excessmtl.lab.cli.diagnose import check_file, show
from excessmtl.lab.cli.options import takes_a_run
from excessmtl.lab.cli.terminal import console, silence_lightning
from excessmtl.lab.runs.config import RunConfig

_FIELDS = ("method", "seed", "data", "benchmark_options", "noise", "noisy_tasks", "epochs", "device")


@takes_a_run(_FIELDS)
def crossval(
    config: RunConfig,
    out: Annotated[Path, typer.Option(help="Folder for the runs of the folds and predictions.npz.")],
    folds: Annotated[int, typer.Option(help="How many networks, each trained without one fold.")] = 5,
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
    from excessmtl.lab.training.crossval import FILE, cross_validate

    silence_lightning()
    check_file(suspects)
    show(cross_validate(config, out, folds), json, suspects)
    if not json:
        console.print(f"written: {out / FILE}", soft_wrap=True)
