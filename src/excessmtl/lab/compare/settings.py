"""Which runs of a table may be compared, and which are one row: those that differ in nothing but their seed.

Runs of one setting have the same tasks, data, kind of noise, optimiser and number of epochs.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from excessmtl.lab.data.noise import UNIFORM
from excessmtl.lab.runs.config import SINGLE
from excessmtl.lab.runs.record import NOT_RECORDED, differing, kind_of, refuse_equal_seeds
from excessmtl.lab.runs.summary import Scored

_DATA = ("data_checksum", "benchmark_options", "limit_batches")
"""What decides about the samples, besides the source that a benchmark names."""
_DEFAULTS = {"estimator": "robust", "normalize": "none", "warmup_steps": 0}


@dataclass(frozen=True)
class Setting:
    """One benchmark on one data set with the same noise, optimiser and number of epochs, and its runs."""

    benchmark: str
    source: str
    epochs: int
    noisy_tasks: tuple[str, ...]
    metrics: dict[str, Scored]
    """By task, in task order."""
    runs: pd.DataFrame
    noise_kind: str = UNIFORM
    optimiser: str = ""
    name: str = ""
    """The benchmark, and what tells it from other settings of the same benchmark."""

    @property
    def tasks(self) -> list[str]:
        """Task names in order."""
        return list(self.metrics)

    @property
    def clean_tasks(self) -> list[str]:
        """The tasks whose labels no level of noise touches."""
        return [task for task in self.metrics if task not in self.noisy_tasks]

    @property
    def common_metric(self) -> Scored | None:
        """The metric of all tasks, or None where they are scored in different units: a mean has no meaning there."""
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


def settings(frame: pd.DataFrame) -> list[Setting]:
    """The settings of collected runs, in the order of the benchmarks' names.

    In each, runs of one label (and one name of the paper, `shown`, where there is that column) at one noise level
    differ in their seed alone: the labels of others are completed, and the same run twice is refused.
    """
    frame, groups = frame.assign(source=_sources(frame)), dict[tuple[Any, ...], list[int]]()
    for place, run in enumerate(frame.to_dict("records")):
        names = str(run["benchmark"]), str(run["source"]), int(run["epochs"]), tuple(run["noisy_tasks"])
        how = str(run["noise_kind"]), str(run["optimiser"])
        metrics = tuple(
            (task, Scored(metric, bool(run["higher_is_better"][task]), run["units"][task]))
            for task, metric in run["primary_metric"].items()
        )
        groups.setdefault((*names, metrics, *how), []).append(place)
    return _named(
        [
            Setting(benchmark, source, epochs, noisy, dict(metrics), _rows(frame.iloc[places]), *how)
            for (benchmark, source, epochs, noisy, metrics, *how), places in sorted(groups.items())
        ]
    )


def _sources(runs: pd.DataFrame) -> pd.Series:
    """The source of each run, completed where runs of one source were made with other samples."""
    named = runs["source"].astype(str)
    for (_, source, _), own in runs.groupby(["benchmark", named, "epochs"], sort=False):
        recorded = [
            {name: json.dumps(how[name], sort_keys=True, default=str).strip('"') for name in _DATA if name in how}
            for how in (settings if isinstance(settings, Mapping) else {} for settings in own["settings"])
        ]
        known = {name: {how[name] for how in recorded if name in how} for name in _DATA}
        differ = [name for name in _DATA if len(known[name]) > 1]
        for place, how in zip(own.index, recorded, strict=True) if differ else ():
            named[place] = "; ".join([source, *(f"{name}={how.get(name, NOT_RECORDED)}" for name in differ)])
    return named


def _rows(runs: pd.DataFrame) -> pd.DataFrame:
    columns = ["shown"] if "shown" in runs else []  # before the labels, which it does not follow
    for column in (*columns, "label"):
        runs = _told_apart(runs, column)
    return runs.reset_index(drop=True)


def _told_apart(runs: pd.DataFrame, column: str) -> pd.DataFrame:
    """The runs of one setting, each label completed by what differs between runs of that label at one noise level.

    Between noise levels anything may differ, as where a learning rate was chosen for each. Two runs with the same seed
    that differ in nothing are refused.
    """
    named = runs[column].copy()
    for label, own in runs.groupby(column, sort=False):
        how = {place: kind_of(run) for place, run in zip(own.index, own.to_dict("records"), strict=True)}
        keys = {key for _, level in own.groupby("noise") for key in differing(how[place] for place in level.index)}
        for place in own.index if keys else ():
            words = ", ".join(f"{key}={how[place].get(key, NOT_RECORDED)}" for key in sorted(keys))
            named[place] = f"{label} ({words})"
    named_apart = runs.assign(**{column: named})
    refuse_equal_seeds(named_apart.to_dict("records"), column)
    return named_apart


def chosen_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a run without those that only name the default of `excess`."""
    return {name: value for name, value in options.items() if name not in _DEFAULTS or value != _DEFAULTS[name]}


def method_order(runs: pd.DataFrame) -> list[str]:
    """Labels in the order of all tables: ExcessMTL first, the single-task baseline last."""
    methods = dict(zip(runs["label"], runs["method"], strict=True))
    return sorted(methods, key=lambda label: (methods[label] == SINGLE, methods[label] != "excess", label))


def _named(found: list[Setting]) -> list[Setting]:
    """Every setting with the shortest name that no other has."""
    names = [_names(setting) for setting in found]
    counts = Counter(name for own in names for name in own)
    return [
        replace(setting, name=next((name for name in own if counts[name] == 1), own[-1]))
        for setting, own in zip(found, names, strict=True)
    ]


def _names(setting: Setting) -> list[str]:
    """From the shortest to the longest."""
    noisy = f"noise in {', '.join(setting.noisy_tasks) or 'no task'}"
    kind, optimiser = f"{setting.noise_kind} noise", setting.optimiser
    parts = [setting.source, f"{setting.epochs} epochs", noisy, kind, optimiser]
    short = [[setting.source], [kind], [noisy], [optimiser], [kind, noisy], [kind, noisy, optimiser]]
    longer = [parts[:count] for count in range(2, len(parts) + 1)]
    return [setting.benchmark, *(f"{setting.benchmark} ({'; '.join(own)})" for own in [*short, *longer])]
