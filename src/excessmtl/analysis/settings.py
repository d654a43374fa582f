"""Which runs of a table may be compared: those on the same tasks of the same data."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from excessmtl.training.config import SINGLE


@dataclass(frozen=True)
class Metric:
    """How a task is scored."""

    name: str
    higher_is_better: bool

    @property
    def percent(self) -> bool:
        """Every metric where more is better is a share (accuracy, pixels within a threshold); errors are not."""
        return self.higher_is_better


@dataclass(frozen=True)
class Setting:
    """One benchmark on one data set with the same noisy tasks, and its runs."""

    benchmark: str
    source: str
    noisy_tasks: tuple[str, ...]
    metrics: dict[str, Metric]
    """By task, in task order."""
    runs: pd.DataFrame

    @property
    def tasks(self) -> list[str]:
        """Task names in order."""
        return list(self.metrics)

    @property
    def common_metric(self) -> Metric | None:
        """The metric of all tasks, or None where they are scored in different units."""
        kinds = set(self.metrics.values())
        return kinds.pop() if len(kinds) == 1 else None

    @property
    def noise_levels(self) -> list[float]:
        """The noise levels of the runs, ascending."""
        return sorted(self.runs["noise"].unique().tolist())

    @property
    def labels(self) -> list[str]:
        """The methods of the runs."""
        return method_order(self.runs)

    @property
    def epochs(self) -> str:
        """How long the runs are, as text."""
        shortest, longest = int(self.runs["epochs"].min()), int(self.runs["epochs"].max())
        return f"{longest} epochs" if shortest == longest else f"{shortest} to {longest} epochs"


def settings(frame: pd.DataFrame) -> list[Setting]:
    """The settings of `collect`ed runs, in the order of the benchmarks' names."""
    groups = frame.groupby(pd.Series([_key(row) for row in frame.to_dict("records")], index=frame.index), sort=True)
    return [_setting(group) for _, group in groups]


def method_order(runs: pd.DataFrame) -> list[str]:
    """Labels as every part of the page lists them: ExcessMTL first, the single-task baseline last."""
    methods = dict(zip(runs["label"], runs["method"], strict=True))
    return sorted(methods, key=lambda label: (methods[label] == SINGLE, methods[label] != "excess", label))


def _key(run: dict[Hashable, Any]) -> tuple[Any, ...]:
    return str(run["benchmark"]), str(run["source"]), tuple(run["noisy_tasks"]), tuple(_metrics(run))


def _metrics(run: Any) -> Sequence[tuple[str, str, bool]]:
    return [(task, name, run["higher_is_better"][task]) for task, name in run["primary_metric"].items()]


def _setting(group: pd.DataFrame) -> Setting:
    first = group.iloc[0]
    return Setting(
        benchmark=str(first["benchmark"]),
        source=str(first["source"]),
        noisy_tasks=tuple(first["noisy_tasks"]),
        metrics={task: Metric(name, higher) for task, name, higher in _metrics(first)},
        runs=group.reset_index(drop=True),
    )
