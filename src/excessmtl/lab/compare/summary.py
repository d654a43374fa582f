"""The summary of a setting: every measure by method and noise level, over the seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from excessmtl.lab.compare import table
from excessmtl.lab.compare.comparison import Spread
from excessmtl.lab.compare.measures import Measure, measures_of, scores_of
from excessmtl.lab.compare.settings import Setting
from excessmtl.lab.compare.table import Cell, Table
from excessmtl.lab.runs.config import SINGLE

DIVERGED, NOTHING = "diverged", "–"
_NAMED = 4
"""As many noisy tasks are named in a title."""


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


def summary_table(setting: Setting, order: Sequence[str] | None = None) -> Table:
    """A row per noise level and method. `order`: the labels in the order of the rows; None: the setting's."""
    measures, rows = measures_of(setting), rows_of(setting)
    if order is not None:
        rows = sorted(rows, key=lambda row: (row.noise, _place(row.label, order)))
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
        for row in rows
    ]
    columns = ["method", "noise", *(measure.heading for measure in measures), "seeds"]
    return Table(f"{setting.name or setting.benchmark}: {_described(setting)}", columns, shown)


def _place(label: str, order: Sequence[str]) -> int:
    """Of a label that may have been completed by what tells its runs apart."""
    return next((i for i, name in enumerate(order) if label == name or label.startswith(f"{name} (")), len(order))


def _described(setting: Setting) -> str:
    noisy = ", ".join(setting.noisy_tasks[:_NAMED]) + (", ..." if len(setting.noisy_tasks) > _NAMED else "")
    metric = setting.common_metric
    scores = "test scores" if metric is None else metric.name
    source = "" if setting.source in setting.name else f"{setting.source}; "
    return f"{source}{scores}; noise in {noisy or 'no task'}"


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
