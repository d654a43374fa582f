"""The runs of one method at one noise level, and how they compare with others on the same data, paired by seed.

A share (accuracy) is better or worse from one point on, about the spread between seeds of small test sets; an error,
whose size depends on the data, from ten percent on. Less than 0.05 of the weight is no preference.
"""

import math
from dataclasses import dataclass, replace

import pandas as pd

from excessmtl.lab.compare.comparison import SEEDS, Comparison, Spread, difference
from excessmtl.lab.compare.measures import CLEAN_WEIGHT, SECONDS, Measure, score_measures, task_loss, task_score
from excessmtl.lab.paper.claims.findings import Lacking
from excessmtl.lab.paper.subjects import Subject

POINTS, PERCENT, WEIGHT = 1.0, 10.0, 0.05
_HIGH = 0.6
"""Noise that deserves the name."""


def levels(subject: Subject, shown: str) -> list[float]:
    """The noise levels a method was run at, ascending: none, and up to a high one."""
    noise = sorted(subject.of(shown).noise.unique().tolist())
    if not noise or noise[0] > 0 or noise[-1] < _HIGH:
        raise Lacking(f"runs of {shown} without noise and with at least {_HIGH:g}")
    return noise


@dataclass(frozen=True)
class MethodRuns:
    """A method on the data of a subject at one noise level; measures go by their names in claims.yaml."""

    subject: Subject
    shown: str
    noise: float

    def at(self, noise: float) -> "MethodRuns":
        """The same method at another level."""
        return replace(self, noise=noise)

    def of(self, shown: str) -> "MethodRuns":
        """Another method at the same level."""
        return replace(self, shown=shown)

    def measure(self, name: str) -> Measure:
        """By a key, by a task, or `clean_loss` and `noisy_loss`, where there is one such task."""
        setting = self.subject.setting
        if name in ("clean_loss", "noisy_loss"):
            return task_loss((setting.clean_tasks if name == "clean_loss" else setting.noisy_tasks)[0])
        if name in setting.tasks:
            return task_score(setting, name)
        known = {measure.key: measure for measure in (CLEAN_WEIGHT, SECONDS, *score_measures(setting))}
        if name not in known:
            raise Lacking("a metric that all tasks share")
        return known[name]

    def values(self, name: str) -> pd.Series:
        """The measure by seed, NaN where a run has diverged."""
        runs, measure = self.subject.of(self.shown, self.noise), self.measure(name)
        setting = replace(self.subject.setting, runs=runs)
        numbers = pd.Series(list(measure.values(setting)), runs.seed.to_numpy(), float)
        if not measure.needs_scores:
            numbers = numbers.dropna()
        if numbers.isna().all():
            reason = "no run" if numbers.empty else "only diverged runs"
            raise Lacking(f"{reason} of {self.shown} at noise {self.noise:g}")
        self.check_seeds(len(numbers))
        return numbers

    def check_seeds(self, count: int) -> None:
        """Refuses to judge by fewer runs than a verdict needs."""
        if count < SEEDS:
            raise Lacking(f"only {count} of {SEEDS} seeds of {self.shown} at noise {self.noise:g}")

    def mean(self, name: str) -> float:
        """Over the seeds; infinitely bad where a run has diverged."""
        numbers = self.values(name)
        worst = -math.inf if self.measure(name).better == "higher" else math.inf
        return worst if numbers.isna().any() else float(numbers.mean())

    def text(self, name: str) -> str:
        """Mean and standard deviation."""
        measure = self.measure(name)
        return Spread.of(measure.factor * self.values(name)).text(1 if measure.unit == "%" else 3)

    def better_than(self, other: "MethodRuns", name: str) -> Comparison:
        """In points of a share, as a share of the weight, or in percent of these runs' own error."""
        measure, mine, others = self.measure(name), self.values(name), other.values(name)
        seeds = sorted(set(mine.index) & set(others.index))
        if len(seeds) < SEEDS:
            raise Lacking(f"runs with the same seeds, at least {SEEDS}")
        if measure is CLEAN_WEIGHT:
            return Comparison.of((mine - others)[seeds], WEIGHT)
        is_share, higher = measure.unit == "%", measure.better == "higher"
        by_seed = [difference(mine[seed], others[seed], higher, None if is_share else mine[seed]) for seed in seeds]
        return Comparison.of(by_seed, *((POINTS, "points") if is_share else (PERCENT, "%")))
