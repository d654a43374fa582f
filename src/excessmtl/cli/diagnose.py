"""`excessmtl diagnose`: which tasks of a run have bad labels, and which labels."""

import csv
import io
import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from excessmtl.cli.terminal import console

if TYPE_CHECKING:
    from excessmtl.diagnosis import Report


def diagnose(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    json: Annotated[bool, typer.Option("--json", help="Print an object per task instead of a table.")] = False,
    suspects: Annotated[
        Path | None, typer.Option(help="CSV file for all labels, those most likely to be wrong first, task by task.")
    ] = None,
    save: Annotated[bool, typer.Option("--save", help="Keep it in the run's folder, for `excessmtl report`.")] = False,
) -> None:
    """Say which tasks have bad labels, and how bad, from predictions for the run's validation split.

    The validation labels are disturbed like the training labels, with draws of their own.
    """
    from excessmtl.training.held_out import diagnose_run

    check_file(suspects)
    report = diagnose_run(run)
    if save:
        from excessmtl.reports.diagnoses import save as keep

        keep(report, run)
    show(report, json, suspects)


def check_file(suspects: Path | None) -> None:
    """Before anything takes its time."""
    if suspects is not None and suspects.is_dir():
        raise ValueError(f"--suspects {suspects} is a folder; name a file, such as {suspects / 'suspects.csv'}")


def show(report: "Report", json: bool, suspects: Path | None) -> None:
    """Print a report as a table or as JSON, and write the ranked labels."""
    from excessmtl.files import write_whole

    if suspects is not None:
        write_whole(suspects, _as_csv(report).encode())
    if json:
        print(json_format.dumps(report.to_dict()["tasks"], indent=2, allow_nan=False))
        return
    console.print(str(report), soft_wrap=True)
    if suspects is not None:
        console.print(f"written: {suspects}", soft_wrap=True)


def _as_csv(report: "Report") -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("task", "sample", "label", "predicted", "margin", "noise_probability"))
    for task in report.tasks:
        for found in report.suspects(task.task, None):
            numbers = (f"{found.margin:.6g}", f"{found.noise_probability:.6g}")
            writer.writerow((task.task, found.sample, f"{found.label:g}", f"{found.predicted:g}", *numbers))
    return text.getvalue()
