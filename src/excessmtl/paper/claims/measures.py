"""What claims compare: a number per run, differences of it paired by seed, and when a difference counts as one."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from excessmtl.analysis import measures
from excessmtl.analysis.measures import Measure
from excessmtl.analysis.settings import Setting
from excessmtl.analysis.statistics import Spread
from excessmtl.paper.subjects import Subject

POINTS, PERCENT, WEIGHT = 1.0, 10.0, 0.05
"""A share (accuracy) is better or worse from one point on, about the spread between seeds of small test sets; an error,
whose size depends on the data, from ten percent on. Less than 0.05 of the weight is no preference."""
_SEEDS_FOR_INTERVAL = 3
"""With two seeds the 90 % interval is nine standard deviations wide and would settle nothing."""
_HIGH = 0.6
"""Noise that deserves the name."""

Pick = Callable[[Setting], Measure]
"""Which measure of a setting is meant."""


class Lacking(Exception):
    """The runs a rule needs are not there; the message says which."""


def _of_groups(key: str) -> Pick:
    def pick(setting: Setting) -> Measure:
        found = [measure for measure in measures.score_measures(setting) if measure.key == key]
        if not found:
            raise Lacking("a metric that all tasks share")
        return found[0]

    return pick


CLEAN, NOISY, OVERALL = _of_groups("clean_score"), _of_groups("noisy_score"), _of_groups("overall_score")


@dataclass(frozen=True)
class Difference:
    """Seed by seed: points of a share, percent of another score, or plain units."""

    by_seed: tuple[float, ...]
    unit: str
    margin: float

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return float(np.mean(self.by_seed))

    @property
    def interval(self) -> tuple[float, float] | None:
        """90 % of Student's t, from three seeds on."""
        spread = Spread.of(self.by_seed)
        return None if spread.count < _SEEDS_FOR_INTERVAL else spread.interval

    @property
    def is_clear(self) -> bool:
        """Above the margin, and not by luck where there are seeds enough to tell."""
        return self.mean > self.margin and (self.interval is None or self.interval[0] > 0)

    def __str__(self) -> str:
        digits, seeds = 1 if self.unit else 2, len(self.by_seed)
        text = f"{self.mean:+.{digits}f} {self.unit}".rstrip()
        if self.interval is None:
            return f"{text} ({seeds} seed{'' if seeds == 1 else 's'})"
        low, high = (f"{bound:+.{digits}f}" for bound in self.interval)
        return f"{text} (90 % interval {low} to {high})"


def values(subject: Subject, shown: str, noise: float, pick: Pick) -> pd.Series:
    """The measure by seed; runs that diverged have none."""
    runs = subject.of(shown, noise)
    column = pd.Series(list(pick(subject.setting).values(subject.setting)), subject.runs.index, float)
    numbers = pd.Series(column[runs.index].to_numpy(), runs.seed.to_numpy(), float).dropna()
    if numbers.empty:
        reason = "no run" if runs.empty else "only diverged runs"
        raise Lacking(f"{reason} of {shown} at noise {noise:g}")
    return numbers


def mean(subject: Subject, shown: str, noise: float, pick: Pick) -> float:
    """Over the seeds."""
    return float(values(subject, shown, noise, pick).mean())


def spread(subject: Subject, shown: str, noise: float, pick: Pick) -> str:
    """Mean and standard deviation as text."""
    measure = pick(subject.setting)
    return Spread.of(measure.factor * values(subject, shown, noise, pick)).text(1 if measure.unit == "%" else 3)


def harm(subject: Subject, shown: str, noise: float, pick: Pick = CLEAN) -> Difference:
    """How much worse a method is at a noise level than without noise: positive is worse."""
    return _worse(values(subject, shown, noise, pick), values(subject, shown, 0.0, pick), pick(subject.setting))


def advantage(subject: Subject, better: str, worse: str, noise: float, pick: Pick = CLEAN) -> Difference:
    """How much better one method is than another at the same noise level: positive is better."""
    return _worse(values(subject, worse, noise, pick), values(subject, better, noise, pick), pick(subject.setting))


def clean_weight(subject: Subject, shown: str, noise: float) -> pd.Series:
    """The share of the clean tasks in the weights of the last epoch, by seed."""
    return values(subject, shown, noise, lambda setting: measures.CLEAN_WEIGHT)


def weight_shift(subject: Subject, shown: str, noise: float) -> Difference:
    """How much weight noise moves from the clean tasks to the noisy ones."""
    before, after = clean_weight(subject, shown, 0.0), clean_weight(subject, shown, noise)
    return Difference(_paired(before, after), "", WEIGHT)


def levels(subject: Subject, shown: str) -> list[float]:
    """The noise levels a method was run at, ascending: none, and up to a high one."""
    found = sorted(subject.of(shown).noise.unique().tolist())
    if not found or found[0] > 0 or found[-1] < _HIGH:
        raise Lacking(f"runs of {shown} without noise and with at least {_HIGH:g}")
    return found


def high_noise(subject: Subject, shown: str) -> float:
    """The highest noise level a method was run at."""
    return levels(subject, shown)[-1]


def _paired(first: pd.Series, second: pd.Series) -> tuple[float, ...]:
    """first - second, seed by seed."""
    difference = (first - second).dropna()
    if difference.empty:
        raise Lacking("runs with the same seeds")
    return tuple(difference.tolist())


def _worse(second: pd.Series, first: pd.Series, measure: Measure) -> Difference:
    sign = 1 if measure.better == "higher" else -1
    if measure.unit == "%":
        return Difference(_paired(sign * 100 * first, sign * 100 * second), "points", POINTS)
    return Difference(_paired(-sign * 100 * second / first, -sign * 100 * first / first), "%", PERCENT)
