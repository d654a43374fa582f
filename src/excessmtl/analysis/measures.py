"""What is said about every run: scores, weights, speed, and how it compares with runs at the same noise and seed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from excessmtl.analysis.settings import Metric, Setting
from excessmtl.benchmarks.comparison import delta_m, mean_rank
from excessmtl.training.config import SINGLE

Scores = dict[str, float]
_OF_THE_RUN = ("clean_score", "noisy_score", "overall_score", "clean_weight", "seconds_per_step")


@dataclass(frozen=True)
class Measure:
    """One number per run, and how it is shown."""

    key: str
    short: str
    """In the heading of a column."""
    title: str
    """Over a figure."""
    better: Literal["higher", "lower", ""]
    factor: float = 1.0
    """From the number of the run to the number shown."""
    digits: int = 3
    unit: str = ""

    @property
    def heading(self) -> str:
        """For a column."""
        return f"{self.short}{self._suffix}"

    @property
    def caption(self) -> str:
        """For a figure."""
        return f"{self.title}{self._suffix}"

    @property
    def _suffix(self) -> str:
        arrow = {"higher": " ↑", "lower": " ↓", "": ""}[self.better]
        return f"{f', {self.unit}' if self.unit else ''}{arrow}"


def measures_of(setting: Setting) -> list[Measure]:
    """The columns of the table of a setting; scores are averaged only where all tasks have the same metric."""
    return [*score_measures(setting), *comparison_measures(setting), CLEAN_WEIGHT, SECONDS]


def score_measures(setting: Setting) -> list[Measure]:
    """Means over clean, noisy and all tasks, or each task on its own where units differ."""
    metric = setting.common_metric
    if metric is None:
        return [
            _score(task_key(task), f"{task}\n{own.name}", f"{task}: {own.name}", own)
            for task, own in setting.metrics.items()
        ]
    return [
        _score("clean_score", "clean", f"clean tasks: {metric.name}", metric),
        _score("noisy_score", "noisy", f"noisy tasks: {metric.name}", metric),
        _score("overall_score", "overall", f"all tasks: {metric.name}", metric),
    ]


def comparison_measures(setting: Setting) -> list[Measure]:
    """Delta_m where there are single-task runs, and the mean rank where there are rivals."""
    rivals = setting.runs["label"][setting.runs["method"] != SINGLE].nunique()
    return [
        *([DELTA_M] if (setting.runs["method"] == SINGLE).any() else []),
        *([MEAN_RANK] if rivals > 1 else []),
    ]


def task_key(task: str) -> str:
    """The key of the score of one task; a task may be called like a column of the table."""
    return f"score/{task}"


DELTA_M = Measure("delta_m", "Δm", "Δm against single-task networks", "lower", digits=1, unit="%")
MEAN_RANK = Measure("mean_rank", "rank", "mean rank", "lower", digits=2)
CLEAN_WEIGHT = Measure("clean_weight", "clean\nweight", "share of the weight on clean tasks", "", digits=2)
SECONDS = Measure("seconds_per_step", "ms/step", "milliseconds per step", "lower", factor=1000, digits=1)


def measured(setting: Setting) -> pd.DataFrame:
    """One row per run: `label, method, noise, seed, diverged` and a column per measure, NaN where it has no value."""
    runs = setting.runs
    scores = [_numbers(run) for run in runs["scores"]]
    columns = {name: runs[name] for name in ("label", "method", "noise", "seed")}
    columns["diverged"] = [any(np.isnan(value) for value in own.values()) for own in scores]
    columns |= {task_key(task): [own[task] for own in scores] for task in setting.tasks}
    columns |= {name: pd.to_numeric(runs[name]) for name in _OF_THE_RUN}
    columns["delta_m"] = _changes(setting, scores)
    columns["mean_rank"] = _ranks(setting, scores)
    return pd.DataFrame(columns)


def _score(key: str, short: str, title: str, metric: Metric) -> Measure:
    better: Literal["higher", "lower"] = "higher" if metric.higher_is_better else "lower"
    if metric.percent:
        return Measure(key, short, title, better, factor=100, digits=1, unit="%")
    return Measure(key, short, title, better, digits=4)


def _numbers(scores: dict[str, float | None]) -> Scores:
    return {task: np.nan if value is None else float(value) for task, value in scores.items()}


def _directions(setting: Setting) -> dict[str, bool]:
    return {task: metric.higher_is_better for task, metric in setting.metrics.items()}


def _changes(setting: Setting, scores: list[Scores]) -> list[float]:
    """Delta_m of every run against the single-task run at the same noise and seed; none for that run itself."""
    identity = setting.runs[["method", "noise", "seed"]].itertuples(index=False)
    pairs = list(zip(identity, scores, strict=True))
    alone = {(noise, seed): own for (method, noise, seed), own in pairs if method == SINGLE}
    changes = []
    for (method, noise, seed), own in pairs:
        baseline = alone.get((noise, seed))
        # A baseline of 0 in a metric leaves no relative change.
        defined = method != SINGLE and baseline is not None and all(baseline.values())
        changes.append(delta_m(own, baseline, _directions(setting)) if baseline and defined else np.nan)
    return changes


def _ranks(setting: Setting, scores: list[Scores]) -> pd.Series:
    """Mean rank over the tasks among the methods that share the noise and the seed; the baseline takes no part.

    Seeds that some method of this noise level has not run are left out: a rank among fewer is a better one for free.
    """
    ranks = pd.Series(np.nan, index=setting.runs.index)
    rivals = setting.runs[setting.runs["method"] != SINGLE]
    for _, level in rivals.groupby("noise"):
        for same_seed in _complete(level):
            by_label = {str(label): scores[row] for row, label in same_seed["label"].items()}
            found = mean_rank(by_label, _directions(setting))
            ranks[same_seed.index] = [found[label] for label in same_seed["label"]]
    return ranks


def _complete(level: pd.DataFrame) -> Iterator[pd.DataFrame]:
    labels = level["label"].nunique()
    return (group for _, group in level.groupby("seed") if group["label"].nunique() == labels)
