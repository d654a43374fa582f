"""What is measured of every run (scores, weights, speed, how it compares with others), and the table of it.

To add a measure, write a function from a setting to one number per run and list it in `OTHERS`: it then has a column in
the tables of reports and in the `scores.md` of sweeps.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from excessmtl.lab.compare import table
from excessmtl.lab.compare.comparison import Spread, mean_change
from excessmtl.lab.compare.settings import Setting
from excessmtl.lab.compare.table import Cell, Table
from excessmtl.lab.runs.config import SINGLE
from excessmtl.lab.runs.summary import Scored

DIVERGED, NOTHING = "diverged", "–"
_NAMED = 4
"""As many noisy tasks are named in a title."""
Direction = Literal["higher", "lower", ""]
Values = Callable[[Setting], Sequence[float]]
"""One number per run of the setting, NaN where a run has none."""


@dataclass(frozen=True)
class Measure:
    """One number per run, and how it is shown."""

    key: str
    short: str
    """In the heading of a column."""
    title: str
    """Over a figure."""
    values: Values
    better: Direction
    factor: float = 1.0
    """From the number of the run to the number shown."""
    digits: int = 3
    unit: str = ""
    needs_scores: bool = True
    """Whether a run that has diverged has no such number."""
    note: str = ""
    """A sentence below the tables of reports."""

    @property
    def heading(self) -> str:
        """For a column."""
        return f"{self.short}{self.suffix}"

    @property
    def suffix(self) -> str:
        """Unit and direction, behind a name."""
        arrow = {"higher": " ↑", "lower": " ↓", "": ""}[self.better]
        return f"{f', {self.unit}' if self.unit else ''}{arrow}"

    def column(self, setting: Setting) -> pd.Series:
        """The numbers of the setting's runs as they are shown."""
        return self.factor * pd.Series(list(self.values(setting)), index=setting.runs.index, dtype=float)


def measures_of(setting: Setting) -> list[Measure]:
    """The columns of the table of a setting: the scores, and what some run has a number for."""
    return [*score_measures(setting), *(measure for measure in OTHERS if measure.column(setting).notna().any())]


def score_measures(setting: Setting) -> list[Measure]:
    """Means over clean, noisy and all tasks, or each task on its own where metrics differ.

    Clean: no noise was added. Where none was added to any task there is no such group: nobody knows the labels.
    """
    metric = setting.common_metric
    if metric is None:
        return [task_score(setting, task) for task in setting.tasks]
    groups = {
        "clean": ("clean tasks", setting.clean_tasks if setting.noisy_tasks else []),
        "noisy": ("noisy tasks", setting.noisy_tasks),
        "overall": ("all tasks", setting.tasks),
    }
    return [
        _score(f"{short}_score", short, f"{named}: {metric.name}", metric, _column(f"{short}_score"))
        for short, (named, tasks) in groups.items()
        if tasks
    ]


def task_score(setting: Setting, task: str) -> Measure:
    """The score of one task."""
    metric = setting.metrics[task]
    # A task may be called like a column of the table.
    return _score(f"score/{task}", f"{task}\n{metric.name}", f"{task}: {metric.name}", metric, _by_task("scores", task))


def task_loss(task: str) -> Measure:
    """The loss of one task on the test split."""
    title = f"loss of {task}"
    return Measure(f"loss/{task}", title, title, _by_task("metrics", f"{task}/loss"), "lower")


def number(value: Any) -> float:
    """NaN where there is none."""
    return math.nan if value is None else float(value)


def scores_of(setting: Setting) -> list[dict[str, float]]:
    """Task -> score for every run, NaN where it has diverged."""
    return [{task: number(value) for task, value in own.items()} for own in setting.runs["scores"]]


def _score(key: str, short: str, title: str, metric: Scored, values: Values) -> Measure:
    better: Direction = "higher" if metric.higher_is_better else "lower"
    factor, digits = (100.0, 1) if metric.is_share else (1.0, 2 if metric.shown_unit else 4)
    return Measure(key, short, title, values, better, factor, digits, metric.shown_unit)


def _column(name: str) -> Values:
    return lambda setting: [number(value) for value in setting.runs[name]]


def _by_task(column: str, key: str) -> Values:
    return lambda setting: [number(own.get(key)) for own in setting.runs[column]]


def _directions(setting: Setting) -> dict[str, bool]:
    return {task: metric.higher_is_better for task, metric in setting.metrics.items()}


def _changes(setting: Setting) -> list[float]:
    """Delta_m of every run against the single-task run at the same noise and seed; none for that run itself."""
    identity = setting.runs[["method", "noise", "seed"]].itertuples(index=False)
    pairs = list(zip(identity, scores_of(setting), strict=True))
    alone = {(noise, seed): own for (method, noise, seed), own in pairs if method == SINGLE}
    changes = []
    for (method, noise, seed), own in pairs:
        baseline = alone.get((noise, seed))
        # A baseline of 0 in a metric leaves no relative change.
        defined = method != SINGLE and baseline is not None and all(baseline.values())
        changes.append(-mean_change(own, baseline, _directions(setting)) if baseline and defined else math.nan)
    return changes


def _ranks(setting: Setting) -> list[float]:
    """Mean rank over the tasks among the methods that share the noise and the seed; the baseline takes no part.

    Seeds that some method of this noise level has not run are left out: a rank among fewer is a better one for free.
    """
    signs = {task: 1 if higher else -1 for task, higher in _directions(setting).items()}
    rivals = setting.runs[setting.runs["method"] != SINGLE]
    scores = pd.DataFrame(scores_of(setting), setting.runs.index).loc[rivals.index, list(signs)] * pd.Series(signs)
    ranks = scores.groupby([rivals["noise"], rivals["seed"]]).rank(ascending=False, na_option="bottom").mean(axis=1)
    methods = rivals.groupby("noise")["label"].transform("nunique")
    present = rivals.groupby(["noise", "seed"])["label"].transform("nunique")
    return list(ranks.where((present == methods) & (methods > 1)).reindex(setting.runs.index))


def _clean_weights(setting: Setting) -> list[float]:
    """None where no task got noise: nobody knows which are clean."""
    return [number(value) if setting.noisy_tasks else math.nan for value in setting.runs["clean_weight"]]


DELTA_M = Measure(
    "delta_m",
    "Δm",
    "Δm against single-task networks",
    _changes,
    "lower",
    digits=1,
    unit="%",
    note="Δm: mean relative loss of the tasks against single-task networks at the same noise and seed; below 0 is "
    "better than they are.",
)
MEAN_RANK = Measure(
    "mean_rank",
    "rank",
    "mean rank",
    _ranks,
    "lower",
    digits=2,
    note="Rank: mean over tasks and seeds among the methods, without the single-task networks.",
)
CLEAN_WEIGHT = Measure(
    "clean_weight",
    "clean\nweight",
    "share of the weight on clean tasks",
    _clean_weights,
    "",
    digits=2,
    needs_scores=False,
    note="Clean weight: the share that tasks without added noise have of the weight in the last epoch.",
)
_TIMES = _column("seconds_per_step")
SECONDS = Measure(
    "seconds_per_step", "ms/step", "milliseconds per step", _TIMES, "lower", factor=1000, digits=1, needs_scores=False
)
OTHERS: tuple[Measure, ...] = (DELTA_M, MEAN_RANK, CLEAN_WEIGHT, SECONDS)
"""Besides the scores, in the order of the columns."""


@dataclass(frozen=True)
class Row:
    """One method at one noise level."""

    label: str
    noise: float
    seeds: int
    cells: dict[str, Cell]
    """By the key of the measure."""


def rows_of(setting: Setting) -> list[Row]:
    """By noise and then in the order of the methods."""
    measures, runs = measures_of(setting), setting.runs
    columns = {measure.key: measure.column(setting) for measure in measures}
    diverged = pd.Series([any(map(math.isnan, own.values())) for own in scores_of(setting)], runs.index)
    rows = []
    for noise in setting.noise_levels:
        level, rivals = runs[runs["noise"] == noise], []
        for label in setting.labels:
            own = level[level["label"] == label]
            if len(own):
                cells = {m.key: _cell(columns[m.key][own.index], diverged[own.index], m) for m in measures}
                rows.append(Row(label, noise, len(own), cells))
                rivals += [rows[-1]] if own["method"].iloc[0] != SINGLE else []
        for measure in measures:
            _mark_best(rivals, measure)
    return rows


def summary_table(setting: Setting) -> Table:
    """A row per noise level and method."""
    measures = measures_of(setting)
    shown = [
        table.Row(
            [
                Cell(row.label, method=row.label),
                Cell(f"{row.noise:g}", str(row.noise)),
                *(row.cells[measure.key] for measure in measures),
                Cell(str(row.seeds)),
            ],
            group=str(row.noise),
        )
        for row in rows_of(setting)
    ]
    columns = ["method", "noise", *(measure.heading for measure in measures), "seeds"]
    noisy = ", ".join(setting.noisy_tasks[:_NAMED]) + (", ..." if len(setting.noisy_tasks) > _NAMED else "")
    metric = setting.common_metric
    scores = "test scores" if metric is None else metric.name
    source = "" if setting.source in setting.name else f"{setting.source}; "
    title = f"{setting.name or setting.benchmark}: {source}{scores}; noise in {noisy or 'no task'}"
    return Table(title, columns, shown)


def _cell(values: pd.Series, diverged: pd.Series, measure: Measure) -> Cell:
    """Mean ± standard deviation over the runs; a note says how many diverged and are left out."""
    spread = Spread.of(values)
    lost = int((diverged & ~np.isfinite(values)).sum()) if measure.needs_scores else 0
    if not spread.count:
        return Cell(DIVERGED if lost else NOTHING, "", spread=spread)
    note = f"{lost} of {spread.count + lost} diverged" if lost else ""
    return Cell(spread.text(measure.digits).replace("-", "−"), f"{spread.mean:.8g}", note, spread=spread)


def _mark_best(rows: Sequence[Row], measure: Measure) -> None:
    """The best mean among methods none of whose runs diverged, where it tells one method from another."""
    means = {}
    for row in rows:
        cell = row.cells[measure.key]
        if cell.spread is not None and cell.spread.count and not cell.note:
            means[row.label] = round(cell.spread.mean, measure.digits)
    if not measure.better or len(set(means.values())) < 2:
        return
    best = max(means.values()) if measure.better == "higher" else min(means.values())
    for row in rows:
        if means.get(row.label) == best:
            row.cells[measure.key] = replace(row.cells[measure.key], best=True)
