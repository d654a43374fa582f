"""The runs of a study as tables, one per benchmark: noise by method, mean and spread over the seeds."""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from excessmtl.analysis.scores import (
    Row,
    all_tasks,
    clean_tasks,
    is_higher_better,
    is_mixed,
    mean_score,
    noisy_tasks,
    task_score,
)
from excessmtl.analysis.table import TextTable

Column = tuple[str, Callable[[Row], float | None], float, int]
"""Its head, its value for one run (None: there is none), a factor and how many decimals are shown."""


def score_tables(frame: pd.DataFrame, methods: Sequence[str] | None = None) -> list[TextTable]:
    """Tables of `collect`ed runs. `methods`: labels in the order of the rows; None: as they come.

    Accuracies are in percent. A benchmark whose tasks have metrics of different kinds has a column for each task.
    """
    order = list(methods) if methods is not None else list(dict.fromkeys(frame["label"]))
    return [_table(str(name), group, order) for name, group in frame.groupby("benchmark", sort=True)]


def _table(benchmark: str, frame: pd.DataFrame, order: Sequence[str]) -> TextTable:
    rows: list[dict[str, Any]] = frame.to_dict("records")
    columns = _columns(rows[0])
    groups: dict[tuple[float, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["noise"], row["label"]), []).append(row)
    keys = sorted(groups, key=lambda key: (key[0], order.index(key[1])))
    cells = [
        [f"{noise:g}", label, *(_cell(groups[noise, label], column) for column in columns)] for noise, label in keys
    ]
    return TextTable(_title(benchmark, rows[0]), ["noise", "method", *(column[0] for column in columns)], cells)


def _title(benchmark: str, row: Row) -> str:
    noisy = ", ".join(noisy_tasks(row)[:4]) + (", ..." if len(noisy_tasks(row)) > 4 else "")
    if is_mixed(row):
        what = "test scores"
    else:
        metric = next(iter(row["primary_metric"].values()))
        what = f"{metric} in percent, higher is better" if is_higher_better(row) else f"{metric}, lower is better"
    return f"{benchmark} ({row['source']}): {what}; noise in {noisy or 'no task'}"


def _columns(row: Row) -> list[Column]:
    weight: Column = ("clean weight", _clean_weight, 1, 2)
    if is_mixed(row):
        return [*(_task_column(row, task) for task in all_tasks(row)), weight]
    factor, digits = (100, 1) if is_higher_better(row) else (1, 4)
    groups = {"clean tasks": clean_tasks, "noisy tasks": noisy_tasks, "all tasks": all_tasks}
    return [*((head, _mean_of(tasks), factor, digits) for head, tasks in groups.items()), weight]


def _task_column(row: Row, task: str) -> Column:
    arrow = "↑" if row["higher_is_better"][task] else "↓"
    return (f"{task}: {row['primary_metric'][task]} {arrow}", lambda run: task_score(run, task), 1, 4)


def _mean_of(tasks: Callable[[Row], list[str]]) -> Callable[[Row], float | None]:
    return lambda run: mean_score(run, tasks(run)) if tasks(run) else None


def _clean_weight(run: Row) -> float | None:
    return None if pd.isna(run["clean_weight"]) else float(run["clean_weight"])


def _cell(runs: Sequence[Row], column: Column) -> str:
    _, value, factor, digits = column
    values = [factor * found for found in map(value, runs) if found is not None]
    if not values:
        return ""
    finite = [found for found in values if math.isfinite(found)]
    lost = len(values) - len(finite)
    if not finite:
        return "diverged"
    text = f"{statistics.mean(finite):.{digits}f}"
    text += f" ± {statistics.stdev(finite):.{digits}f}" if len(finite) > 1 else ""
    return f"{text} ({lost} diverged)" if lost else text
