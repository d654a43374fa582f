"""Scores of collected runs: over which tasks they are means, and what a run that diverged has."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
"""A row of `collect`'s table."""


def all_tasks(row: Row) -> list[str]:
    """Every task of the run."""
    return list(row["scores"])


def clean_tasks(row: Row) -> list[str]:
    """The tasks whose labels no level of noise touches."""
    return [task for task in row["scores"] if task not in row["noisy_tasks"]]


def noisy_tasks(row: Row) -> list[str]:
    """The tasks whose labels noise disturbs."""
    return list(row["noisy_tasks"])


def is_mixed(row: Row) -> bool:
    """Whether tasks have metrics of different kinds, so that a mean of their scores means nothing."""
    return len(set(row["primary_metric"].values())) > 1


def is_higher_better(row: Row) -> bool:
    """Of the metric that all tasks share."""
    return bool(next(iter(row["higher_is_better"].values())))


def task_score(row: Row, task: str) -> float:
    """NaN where the run has diverged."""
    score = row["scores"][task]
    return math.nan if score is None else float(score)


def mean_score(row: Row, tasks: Sequence[str]) -> float:
    """Mean over at least one task; NaN where one of them has diverged."""
    return sum(task_score(row, task) for task in tasks) / len(tasks)
