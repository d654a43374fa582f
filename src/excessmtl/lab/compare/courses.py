"""The course of training as a run folder keeps it: steps.npz and metrics.csv, read with care.

Folders of runs are passed around; a damaged or made-up file is one sentence, and nothing outside the folder is read.
"""

from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pandas as pd

from excessmtl.lab.runs.summary import QUANTITIES as QUANTITIES
from excessmtl.lab.schema import explained

_LARGEST = 2**31
"""Bytes of one array; a run of a million steps with 500 tasks has as many."""
_ADVICE = "delete the run or make it again"


@dataclass(frozen=True)
class Steps:
    """Step by step: one row per step, one column per task."""

    weights: pd.DataFrame
    losses: pd.DataFrame
    excess_risks: pd.DataFrame


def read_steps(path: Path) -> Steps:
    """steps.npz."""
    with path.open("rb") as file, explained(f"{path} is not the steps.npz of a run", _ADVICE, Exception):
        with ZipFile(file) as archive:  # a few bytes may claim to be gigabytes
            if any(entry.file_size > _LARGEST for entry in archive.infolist()):
                raise ValueError(f"an array has more than {_LARGEST:,} bytes")
        file.seek(0)
        with np.load(file) as arrays:  # refuses pickled objects
            tasks = [str(task) for task in arrays["tasks"]]
            tables = {name: arrays[name] for name in QUANTITIES}
        expected = (len(tables["losses"]), len(tasks))
        if any(table.shape != expected or table.dtype.kind != "f" for table in tables.values()):
            raise ValueError(f"its arrays must be numbers of shape [steps, {len(tasks)} tasks]")
        return Steps(**{name: pd.DataFrame(table, columns=tasks) for name, table in tables.items()})


def read_epochs(path: Path) -> pd.DataFrame:
    """metrics.csv: one row per epoch, all numbers."""
    with path.open("rb") as file, explained(f"{path} is not the metrics.csv of a run", _ADVICE, Exception):
        return pd.read_csv(file).apply(pd.to_numeric)


def thinned(course: pd.DataFrame, rows: int) -> pd.DataFrame:
    """At most `rows` rows, each the mean over its stretch of the course; stretches have nearly the same length."""
    return course.groupby(np.arange(len(course)) * min(rows, len(course)) // len(course)).mean()
