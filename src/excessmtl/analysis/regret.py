"""Regret: how much worse a method is than each rival, benchmark by benchmark and noise level by noise level.

Differences are paired by seed, and a method is judged by the lower end of the 90 % t-interval of their mean: what the
seeds prove, not what luck (or having many rivals, of which one is bound to look best) suggests.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from scipy import stats

from excessmtl.analysis.scores import (
    Row,
    all_tasks,
    clean_tasks,
    is_higher_better,
    is_mixed,
    mean_score,
    task_score,
)
from excessmtl.training.config import SINGLE

ITSELF = "itself at noise 0"
CONFIDENCE = 0.9
COLUMNS = (
    "benchmark",
    "noise",
    "rival",
    "measure",
    "unit",
    "regret",
    "lower",
    "upper",
    "seeds",
    "tolerance",
    "within",
)


@dataclass(frozen=True)
class Measure:
    """Over which tasks scores are compared, and how much regret is tolerated."""

    name: str
    tasks: Callable[[Row], list[str]]
    points: float
    percent: float


MEASURES = (Measure("clean", clean_tasks, 0.3, 3.0), Measure("overall", all_tasks, 1.0, 5.0))
Runs = dict[int, dict[str, Any]]
"""Seed -> the run."""


def regret_table(frame: pd.DataFrame, method: str = "excess", rivals: Sequence[str] | None = None) -> pd.DataFrame:
    """One row per benchmark, noise level, rival and measure (clean tasks, all tasks); positive: `method` is worse.

    Args:
        frame: runs as `collect` gives them.
        method: its label.
        rivals: their labels; None: every other method, without the networks trained on each task alone.

    Accuracies (higher is better, from 0 to 1) are compared in points, errors in percent of the rival's, and where tasks
    have metrics of different kinds the regret is the mean of the tasks' relative changes in percent. A run that has
    diverged is infinitely bad. With a single seed both ends of the interval are the difference itself. The rival
    "itself at noise 0" is the method's own clean score on labels without noise.
    """
    labels = list(dict.fromkeys(frame["label"]))
    others = _rivals(frame, method) if rivals is None else list(rivals)
    for label in (method, *others):
        if label not in labels:
            raise ValueError(f"there is no run of {label!r}; the methods of these runs are {', '.join(labels)}")
    runs = _by_seed(frame)
    rows = []
    for (benchmark, label, noise), ours in runs.items():
        if label != method:
            continue
        for rival in others:
            rows += _rows(ours, runs.get((benchmark, rival, noise), {}), benchmark, noise, rival, MEASURES)
        if noise > 0:
            rows += _rows(ours, runs.get((benchmark, method, 0.0), {}), benchmark, noise, ITSELF, MEASURES[:1])
    return pd.DataFrame(rows, columns=list(COLUMNS))


def can_compare(frame: pd.DataFrame, method: str = "excess") -> bool:
    """Whether there is a regret to speak of."""
    return method in set(frame["label"]) and bool(_rivals(frame, method))


def interval(differences: Sequence[float]) -> tuple[float, float, float]:
    """Mean of paired differences and the ends of its t-interval; one difference has an interval of no width.

    An infinite difference makes all three infinite; a loss without bound outweighs any gain.
    """
    for extreme in (math.inf, -math.inf):
        if extreme in differences:
            return extreme, extreme, extreme
    mean = statistics.fmean(differences)
    if len(differences) == 1:
        return mean, mean, mean
    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(differences) - 1))
    half = quantile * statistics.stdev(differences) / math.sqrt(len(differences))
    return mean, mean - half, mean + half


def difference(ours: Row, theirs: Row, tasks: Sequence[str]) -> float:
    """How much worse `ours` is on these tasks, in points or percent (see `unit`)."""
    if is_mixed(ours):
        changes = [_relative(ours, theirs, task) for task in tasks]
        return math.inf if math.inf in changes else statistics.fmean(changes)
    mine, other = mean_score(ours, tasks), mean_score(theirs, tasks)
    if is_higher_better(ours):
        return _worse_by(mine, other, lambda: 100 * (other - mine))
    return _worse_by(mine, other, lambda: _percent(mine - other, other))


def unit(row: Row) -> str:
    """What regrets on this benchmark are measured in."""
    return "points" if not is_mixed(row) and is_higher_better(row) else "percent"


def _relative(ours: Row, theirs: Row, task: str) -> float:
    mine, other = task_score(ours, task), task_score(theirs, task)
    sign = -1 if ours["higher_is_better"][task] else 1
    return _worse_by(mine, other, lambda: _percent(sign * (mine - other), other))


def _worse_by(mine: float, other: float, finite: Callable[[], float]) -> float:
    """The finite difference, unless one has diverged (NaN): that one is worse without bound; two are equally bad."""
    if math.isnan(mine):
        return 0.0 if math.isnan(other) else math.inf
    return -math.inf if math.isnan(other) else finite()


def _percent(worse_by: float, base: float) -> float:
    if base == 0:
        return math.copysign(math.inf, worse_by) if worse_by else 0.0
    return 100 * worse_by / base


def _rivals(frame: pd.DataFrame, method: str) -> list[str]:
    weighting = frame[frame["method"] != SINGLE]
    return [label for label in dict.fromkeys(weighting["label"]) if label != method]


def _by_seed(frame: pd.DataFrame) -> dict[tuple[str, str, float], Runs]:
    runs: dict[tuple[str, str, float], Runs] = {}
    rows: list[dict[str, Any]] = frame.to_dict("records")
    for row in rows:
        group = runs.setdefault((row["benchmark"], row["label"], float(row["noise"])), {})
        if row["seed"] in group:
            which = f"{row['benchmark']}, {row['label']}, noise {row['noise']:g}, seed {row['seed']}"
            raise ValueError(f"there are two runs of {which}; compare runs of one study at a time")
        group[row["seed"]] = row
    return runs


def _rows(
    ours: Runs, theirs: Runs, benchmark: str, noise: float, rival: str, measures: Sequence[Measure]
) -> list[Mapping[str, Any]]:
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return []
    one = ours[seeds[0]]
    rows: list[Mapping[str, Any]] = []
    for measure in measures:
        tasks = measure.tasks(one)
        if not tasks:
            continue
        tolerance = measure.points if unit(one) == "points" else measure.percent
        mean, lower, upper = interval([difference(ours[seed], theirs[seed], tasks) for seed in seeds])
        values = (benchmark, noise, rival, measure.name, unit(one), mean, lower, upper, len(seeds), tolerance)
        rows.append(dict(zip(COLUMNS, (*values, lower <= tolerance), strict=True)))
    return rows
