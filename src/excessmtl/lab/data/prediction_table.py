"""Labels and predictions of anybody's model in one table, for `excessmtl diagnose --predictions FILE`.

The column `churn` holds the labels of the task `churn`, and `churn_predicted` what a model predicted for the same rows
without having been trained on them: a logit or a probability of two classes, or a number. For more classes there is a
column of scores per class, `churn_predicted_CLASS`. Empty cells are missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excessmtl.diagnosis import Report, diagnose
from excessmtl.lab.data.table import class_name, names_in, read_table

_ENDING = "_predicted"


def diagnose_table(path: Path, kinds: Mapping[str, str] | None = None, id: str | None = None) -> Report:
    """The diagnosis of every task in the table; suspicious labels are named by their row and, with `id`, their name."""
    frame = read_table(path, id)
    if id is not None and id not in frame:
        raise ValueError(f"{path} has no column {id!r} for --id; it has {list(frame.columns)}")
    tasks = [name.removesuffix(_ENDING) for name in frame.columns if name.endswith(_ENDING)]
    tasks += [name[: name.index(_ENDING + "_")] for name in frame.columns if _ENDING + "_" in name]
    tasks = list(dict.fromkeys(tasks))
    if not tasks:
        raise ValueError(
            f"{path} has no column of predictions, such as churn_predicted beside the labels churn; it has "
            f"{list(frame.columns)[:20]}"
        )
    unknown = [task for task in kinds or {} if task not in tasks]
    if unknown:
        raise ValueError(f"--kind names {unknown[0]!r}, which {path} has no predictions of; its tasks are {tasks}")
    columns = {task: _of_task(path, frame, task) for task in tasks}
    report = diagnose(
        {task: predictions for task, (predictions, _) in columns.items()},
        {task: labels for task, (_, labels) in columns.items()},
        dict(kinds or {}),
    )
    names = None if id is None else names_in(frame[id])
    classes = {task: _classes(frame, task) for task in tasks}
    for task in [task for task in tasks if not classes[task] and report.held_out[task].kind == "binary"]:
        values = sorted(frame[task].dropna().unique())
        classes[task] = values if set(values) in ({0, 1}, {-1, 1}) else []
    originals = {task: partial(class_name, own) for task, own in classes.items() if own}
    return replace(report, file_rows=list(range(len(frame))), ids=names, originals=originals)


def _classes(frame: pd.DataFrame, task: str) -> list[str]:
    """The classes of a task that has a column of scores for each."""
    start = f"{task}{_ENDING}_"
    return [name.removeprefix(start) for name in frame.columns if name.startswith(start)]


def _of_task(path: Path, frame: pd.DataFrame, task: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Predictions and labels; classes are numbered in the order of their columns."""
    if task not in frame:
        raise ValueError(f"{path} has predictions of {task!r} and no column {task!r} of labels; add it")
    start, classes = f"{task}{_ENDING}_", _classes(frame, task)
    if not classes:
        return _numbers(path, frame[f"{task}{_ENDING}"]), _numbers(path, frame[task])
    if len(classes) == 1:
        raise ValueError(
            f"{path} has scores of one class of {task!r}, {start}{classes[0]}; add a column for every other class, or, "
            f"of two classes 0 and 1, call it {task}{_ENDING}"
        )
    places = {name: place for place, name in enumerate(classes)}
    texts = frame[task].map(partial(_as_text, classes), na_action="ignore")
    strange = texts.dropna()[~texts.dropna().isin(places)]
    if len(strange):
        raise ValueError(f"{path} has the label {strange.iloc[0]!r} of {task!r} and no column {start}{strange.iloc[0]}")
    labels = texts.map(places).to_numpy(np.float64)
    return np.stack([_numbers(path, frame[start + name]) for name in classes], axis=1), labels


def _as_text(classes: Sequence[str], value: object) -> str:
    """A class as it stands in the name of its column, 3 or 03 for what pandas reads as 3.0."""
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    return text if text in classes else next((own for own in classes if own.lstrip("0") == text.lstrip("0")), text)


def _numbers(path: Path, column: pd.Series) -> NDArray[np.float64]:
    numbers = pd.to_numeric(column, errors="coerce")
    wrong = column[numbers.isna() & column.notna()]
    if len(wrong):
        raise ValueError(
            f"{path} has {wrong.iloc[0]!r} in the column {column.name!r}, where numbers are needed; for classes with "
            f"names, give a column of scores per class, {str(column.name).removesuffix(_ENDING)}{_ENDING}_CLASS"
        )
    values: NDArray[np.float64] = numbers.to_numpy(np.float64)
    return values
