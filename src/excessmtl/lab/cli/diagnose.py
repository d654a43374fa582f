"""`excessmtl diagnose` and `excessmtl crossval`: which tasks have bad labels, and which labels."""

import json as json_format
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from excessmtl.files import check_replaceable, write_whole
from excessmtl.lab.cli.app import console, errors, silence_lightning
from excessmtl.lab.cli.options import kinds_in, takes_a_run
from excessmtl.lab.runs.config import RunConfig

if TYPE_CHECKING:
    from excessmtl.diagnosis import Report

_CROSSVAL = ("method", "seed", "data", "benchmark_options", "noise", "noisy_tasks", "epochs", "device")
_Json = Annotated[bool, typer.Option("--json", help="Print an object per task instead of a table.")]
_Suspects = Annotated[
    Path | None,
    typer.Option(
        help="CSV or .parquet file for all labels, those most likely to be wrong first, task by task; by the row of "
        "your table (0: the first below the header), else by the sample of the split."
    ),
]


def diagnose(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="Folder of a run.")] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="In place of a run: a CSV or .parquet file with a column of labels and one of predictions per task, "
            "churn and churn_predicted; for several classes a column of scores each, churn_predicted_CLASS. The model "
            "must not have been trained on these rows.",
        ),
    ] = None,
    kind: Annotated[
        list[str], typer.Option(metavar="TASK=KIND", help="With --predictions: a kind that is not inferred; repeat.")
    ] = [],  # noqa: B006
    id: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="With --predictions: the column that identifies the rows.")
    ] = None,
    json: _Json = False,
    suspects: _Suspects = None,
    save: Annotated[
        bool, typer.Option("--save", help="Save the diagnosis in the run's folder, for `excessmtl report`.")
    ] = False,
    trust: Annotated[
        bool, typer.Option("--trust", help="Import the code that the run's config.yaml names, which runs it.")
    ] = False,
) -> None:
    """Find the tasks with bad labels, from predictions for the validation split of a run, or from your own.

    The validation labels of a run are disturbed like its training labels, with draws of their own.
    """
    _check_file(suspects)
    if predictions is not None:
        if run is not None or save:
            raise ValueError("--predictions takes the place of a run; leave RUN and --save out")
        from excessmtl.lab.data.prediction_table import diagnose_table

        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            report = diagnose_table(predictions, kinds_in(kind), id)
        for sentence in dict.fromkeys(str(note.message) for note in notes):
            errors.print(sentence)
        _show(report, json, suspects)
        return
    if run is None or kind or id is not None:
        raise ValueError("name the folder of a run, or --predictions FILE, to which --kind and --id belong")
    from excessmtl.lab.training.held_out import diagnose_run, trained

    _, benchmark, _ = trained(run, trust=trust)
    report = diagnose_run(run, benchmark)
    if save:
        from excessmtl.lab.reports.diagnoses import save as keep
        from excessmtl.lab.training.cost_to_others import conflict_of

        keep(report, run, benchmark.validation, conflict_of(run, benchmark))
    _show(report, json, suspects)


@takes_a_run(_CROSSVAL)
def crossval(
    config: RunConfig,
    out: Annotated[Path, typer.Option(help="Folder for the runs of the folds and predictions.npz.")],
    folds: Annotated[int, typer.Option(help="Number of networks, each trained without one fold.")] = 5,
    json: _Json = False,
    suspects: _Suspects = None,
) -> None:
    """Find the bad labels of the training data: each sample is predicted by a network that was not trained on it.

    If stopped, the same command resumes.
    """
    from excessmtl.lab.training.crossval import FILE, cross_validate

    silence_lightning()
    _check_file(suspects)
    _show(cross_validate(config, out, folds), json, suspects)
    if not json:
        console.print(f"written: {out / FILE}", soft_wrap=True)


def _check_file(suspects: Path | None) -> None:
    """Before anything takes its time."""
    if suspects is None:
        return
    if suspects.is_dir():
        raise ValueError(f"--suspects {suspects} is a folder; name a file, such as {suspects / 'suspects.csv'}")
    check_replaceable(suspects)
    if suspects.suffix not in (".csv", ".parquet"):
        raise ValueError(f"--suspects {suspects} must end in .csv or .parquet; name such a file")
    if suspects.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise ValueError(f"--suspects {suspects} needs pyarrow; run pip install pyarrow, or name a .csv file")


def _show(report: "Report", json: bool, suspects: Path | None) -> None:
    """Print a report as a table or as JSON, and write the ranked labels."""
    if suspects is not None:
        write_whole(suspects, _ranked(report, suspects.suffix == ".parquet"))
    if json:
        print(json_format.dumps(report.to_dict()["tasks"], indent=2, allow_nan=False))
        return
    console.print(str(report), soft_wrap=True)
    if suspects is not None:
        console.print(f"written: {suspects}", soft_wrap=True)


def _ranked(report: "Report", parquet: bool) -> bytes:
    """Every label of every task as a table; those of a table by its rows, so that nobody relabels others."""
    import pandas as pd

    from excessmtl.lab.compare.collect import csv_text

    labels = [{"task": task.task, **vars(label)} for task in report.tasks for label in report.suspects(task.task, None)]
    number = "sample" if report.file_rows is None else "row"
    named = ["task", number] if report.ids is None else ["task", number, "id"]
    frame = pd.DataFrame(labels, columns=[*named, "label", "predicted", "margin", "noise_probability"])
    return bytes(frame.to_parquet(index=False)) if parquet else csv_text(frame).encode()
