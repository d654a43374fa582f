"""The summary table of a setting: every measure by method and noise level, over the seeds."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from excessmtl.analysis.measures import Measure, measured, measures_of
from excessmtl.analysis.settings import Setting
from excessmtl.training.config import SINGLE

DIVERGED, NOTHING = "diverged", "–"


@dataclass(frozen=True)
class Cell:
    """A measure over the seeds of one method at one noise level, as it is shown."""

    mean: float
    deviation: float
    runs: int
    """How many runs have a value."""
    diverged: int
    """How many runs have none because they diverged."""
    measure: Measure
    best: bool = False

    @property
    def text(self) -> str:
        """Mean ± standard deviation; the latter from two runs on."""
        if not self.runs:
            return DIVERGED if self.diverged else NOTHING
        digits = self.measure.digits
        spread = f" ± {self.deviation:.{digits}f}" if self.runs > 1 else ""
        return f"{self.mean:z.{digits}f}{spread}".replace("-", "−")

    @property
    def note(self) -> str:
        """What the mean leaves out."""
        return f"{self.diverged} of {self.runs + self.diverged} diverged" if self.runs and self.diverged else ""

    @property
    def order(self) -> str:
        """What a click on the heading sorts by; empty sorts last."""
        return f"{self.mean:.8g}" if self.runs else ""


@dataclass(frozen=True)
class Row:
    """One method at one noise level."""

    label: str
    noise: float
    seeds: int
    cells: dict[str, Cell]


def rows_of(setting: Setting) -> list[Row]:
    """The rows of the table, by noise and then in the order of the methods."""
    table, measures = measured(setting), measures_of(setting)
    rows = []
    for noise in setting.noise_levels:
        level = table[table["noise"] == noise]
        present = [label for label in setting.labels if (level["label"] == label).any()]
        groups = {label: level[level["label"] == label] for label in present}
        cells = {label: {measure.key: _cell(group, measure) for measure in measures} for label, group in groups.items()}
        rivals = [label for label, group in groups.items() if group["method"].iloc[0] != SINGLE]
        for measure in measures:
            _mark_best({label: cells[label] for label in rivals}, measure)
        rows += [Row(label, noise, len(group), cells[label]) for label, group in groups.items()]
    return rows


def _cell(group: pd.DataFrame, measure: Measure) -> Cell:
    values = group[measure.key].to_numpy(float) * measure.factor
    finite = values[np.isfinite(values)]
    return Cell(
        mean=float(finite.mean()) if len(finite) else math.nan,
        deviation=float(finite.std(ddof=1)) if len(finite) > 1 else math.nan,
        runs=len(finite),
        diverged=int((group["diverged"] & ~np.isfinite(values)).sum()),
        measure=measure,
    )


def _mark_best(cells: dict[str, dict[str, Cell]], measure: Measure) -> None:
    """Bold: the best mean among methods none of whose runs diverged, where it tells one method from another."""
    sound = {label: own[measure.key] for label, own in cells.items() if own[measure.key].runs}
    sound = {label: cell for label, cell in sound.items() if not cell.diverged}
    shown = {label: round(cell.mean, measure.digits) for label, cell in sound.items()}
    if not measure.better or len(set(shown.values())) < 2:
        return
    best = max(shown.values()) if measure.better == "higher" else min(shown.values())
    for label, mean in shown.items():
        if mean == best:
            cells[label][measure.key] = replace(sound[label], best=True)
