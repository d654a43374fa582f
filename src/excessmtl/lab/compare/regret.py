"""Regret: how much worse a method is than each rival, setting by setting and noise level by noise level.

Differences are paired by seed; `excessmtl.lab.compare.comparison` says when the method is better, worse, equivalent, or
when the seeds leave it undecided.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from excessmtl.lab.compare import comparison
from excessmtl.lab.compare.comparison import Comparison
from excessmtl.lab.compare.measures import number
from excessmtl.lab.compare.settings import Metric, Run, Setting, metrics_of, settings
from excessmtl.lab.runs.config import SINGLE

ITSELF = "itself at noise 0"
_SETTING = ("benchmark", "source", "epochs", "setting", "noise")
_COMPARISON = ("rival", "measure", "unit", "regret", "lower", "upper", "seeds", "tolerance", "verdict")
COLUMNS = (*_SETTING, *_COMPARISON)
_DEFAULT: Sequence[Mapping[str, Any]] = ({}, {"estimator": "robust"})
"""Options of `excess` that are its default."""


@dataclass(frozen=True)
class Group:
    """Over which tasks scores are compared, and how much regret is tolerated."""

    name: str
    tasks: Callable[[Run], list[str]]
    points: float
    percent: float


def clean_tasks(run: Run) -> list[str]:
    """The tasks of a run whose labels no noise touches."""
    return [task for task in run["scores"] if task not in run["noisy_tasks"]]


GROUPS = (Group("clean", clean_tasks, 0.3, 3.0), Group("overall", lambda run: list(run["scores"]), 1.0, 5.0))
_BySeed = dict[int, Run]


@dataclass(frozen=True)
class Regrets:
    """The regrets of one method, and a sentence for every setting that could not be compared."""

    method: str
    table: pd.DataFrame
    left_out: tuple[str, ...] = ()


def default_method(runs: pd.DataFrame) -> str | None:
    """The label of `excess` with its default options, or None where these runs have none."""
    rows = runs[["label", "method", "options"]].itertuples(index=False)
    found = list(dict.fromkeys(row[0] for row in rows if row[1] == "excess" and row[2] in _DEFAULT))
    if len(found) > 1:
        raise ValueError(f"excess with its default options has several rows, {', '.join(found)}; name one of them")
    return found[0] if found else None


def regrets_of(frame: pd.DataFrame, method: str | None = None, groups: Sequence[Group] = GROUPS) -> Regrets | None:
    """The regrets of a method (None: the default of `excess`) in every setting; None where nothing can be compared.

    `groups`: over which tasks, and what is tolerated; the first has the comparison with itself at noise 0.

    A setting in which it cannot be told which runs are the default is left out, with a sentence.
    """
    found = settings(frame)
    if method is not None:
        _check_labels(found, [method])
    rows, left_out, labels = [], [], []
    for setting in found:
        try:
            label = default_method(setting.runs) if method is None else method
        except ValueError as error:
            left_out.append(f"{setting.name}: {error}")
            continue
        if label is not None and (rivals := _rivals(setting.runs, label)):
            labels.append(label)
            rows += _regrets(setting, label, rivals, groups)
    names = set(labels)
    name = names.pop() if len(names) == 1 else "excess" if method is None else method
    return Regrets(name, _frame(rows), tuple(left_out)) if rows or left_out else None


def regret_table(frame: pd.DataFrame, method: str = "excess", rivals: Sequence[str] | None = None) -> pd.DataFrame:
    """One row per setting, noise level, rival and group of tasks (clean, all); positive: `method` is worse.

    Args:
        frame: runs as `collect` gives them.
        method: its label.
        rivals: their labels; None: every other method, without the networks trained on each task alone.

    Shares such as accuracies are compared in points, other scores in percent of the rival's, and where tasks have
    metrics of different kinds the regret is the mean of the tasks' relative changes in percent. A run that has diverged
    is infinitely bad. With fewer than three seeds the interval has no ends and the verdict is "undecided". The rival
    "itself at noise 0" is the method's own clean score on labels without noise.
    """
    found = settings(frame)
    _check_labels(found, [method, *(rivals or ())])
    chosen = [(own, _rivals(own.runs, method) if rivals is None else rivals) for own in found]
    return _frame([row for own, others in chosen for row in _regrets(own, method, others)])


def difference(ours: Run, theirs: Run, tasks: Sequence[str]) -> float:
    """How much worse `ours` is on these tasks, in points or percent (see `unit`)."""
    metrics = metrics_of(ours)
    if len(set(metrics.values())) > 1:
        changes = [_worse(metrics[task], _mean(ours, [task]), _mean(theirs, [task]), relative=True) for task in tasks]
        return math.inf if math.inf in changes else statistics.fmean(changes)
    metric = next(iter(metrics.values()))
    return _worse(metric, _mean(ours, tasks), _mean(theirs, tasks), relative=not metric.is_share)


def unit(run: Run) -> str:
    """What regrets on this benchmark are measured in."""
    metrics = set(metrics_of(run).values())
    return "points" if len(metrics) == 1 and metrics.pop().is_share else "percent"


def _mean(run: Run, tasks: Sequence[str]) -> float:
    return sum(number(run["scores"][task]) for task in tasks) / len(tasks)


def _worse(metric: Metric, mine: float, other: float, relative: bool) -> float:
    return -comparison.difference(mine, other, metric.higher_is_better, other if relative else None)


def _check_labels(found: Sequence[Setting], labels: Sequence[str]) -> None:
    known = list(dict.fromkeys(label for setting in found for label in setting.runs["label"]))
    for label in labels:
        if label not in known:
            raise ValueError(f"there is no run of {label!r}; the methods of these runs are {', '.join(known)}")


def _rivals(runs: pd.DataFrame, method: str) -> list[str]:
    weighting = runs[runs["method"] != SINGLE]
    return [label for label in dict.fromkeys(weighting["label"]) if label != method]


def _regrets(
    setting: Setting, method: str, rivals: Sequence[str], groups: Sequence[Group] = GROUPS
) -> list[dict[str, Any]]:
    runs = _by_seed(setting)
    rows: list[dict[str, Any]] = []
    for (label, noise), ours in runs.items():
        if label != method:
            continue
        found = [row for rival in rivals for row in _rows(ours, runs.get((rival, noise), {}), rival, groups)]
        if noise > 0:
            found += _rows(ours, runs.get((method, 0.0), {}), ITSELF, groups[:1])
        head = dict(
            zip(_SETTING, (setting.benchmark, setting.source, setting.epochs, setting.name, noise), strict=True)
        )
        rows += [{**head, **row} for row in found]
    return rows


def _by_seed(setting: Setting) -> dict[tuple[str, float], _BySeed]:
    runs: dict[tuple[str, float], _BySeed] = {}
    rows: list[dict[str, Any]] = setting.runs.to_dict("records")
    for row in rows:
        runs.setdefault((row["label"], float(row["noise"])), {})[row["seed"]] = row
    return runs


def _rows(ours: _BySeed, theirs: _BySeed, rival: str, groups: Sequence[Group]) -> list[dict[str, Any]]:
    seeds = sorted(ours.keys() & theirs.keys())
    rows: list[dict[str, Any]] = []
    for group in groups if seeds else ():
        one = ours[seeds[0]]
        tasks = group.tasks(one)
        if not tasks:
            continue
        tolerance = group.points if unit(one) == "points" else group.percent
        # A regret is a difference with the other sign, so the ends change places.
        found = Comparison.of((-difference(ours[seed], theirs[seed], tasks) for seed in seeds), tolerance)
        ends = (0.0 - found.mean, 0.0 - found.upper, 0.0 - found.lower)  # not -0.0
        values = (rival, group.name, unit(one), *ends, found.seeds, tolerance, found.verdict)
        rows.append(dict(zip(_COMPARISON, values, strict=True)))
    return rows


def _frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(COLUMNS))
