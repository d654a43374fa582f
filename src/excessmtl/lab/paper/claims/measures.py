"""What claims compare: a number per run, differences of it paired by seed, and when a difference counts as one."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from excessmtl.lab.compare import comparison, measures
from excessmtl.lab.compare.comparison import Comparison
from excessmtl.lab.compare.measures import Measure
from excessmtl.lab.compare.settings import Setting
from excessmtl.lab.compare.statistics import Spread
from excessmtl.lab.paper.claims.judging import UNDECIDED, Answer, Lacking
from excessmtl.lab.paper.subjects import Subject

POINTS, PERCENT, WEIGHT = 1.0, 10.0, 0.05
"""A share (accuracy) is better or worse from one point on, about the spread between seeds of small test sets; an error,
whose size depends on the data, from ten percent on. Less than 0.05 of the weight is no preference."""
_HIGH = 0.6
"""Noise that deserves the name."""

Pick = Callable[[Setting], Measure]
"""Which measure of a setting is meant."""


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
    """Paired by seed: points of a share, percent of another score, or plain units; the tolerance is a clear margin."""

    compared: Comparison
    unit: str

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return self.compared.mean

    @property
    def margin(self) -> float:
        """From where on a difference is a clear one."""
        return self.compared.tolerance

    @property
    def clear(self) -> Answer:
        """Whether it is above 0 and the mean above the margin. No: it is proved to be below 0, or within the margin."""
        verdict = self.compared.verdict
        if verdict == comparison.BETTER and self.mean > self.margin:
            return True
        return False if verdict in (comparison.EQUIVALENT, comparison.WORSE) else UNDECIDED

    @property
    def ahead(self) -> Answer:
        """Whether it is above 0, however little. No: it is proved to be below 0, or within the margin."""
        return True if self.compared.lower > 0 else False if self.clear is False else UNDECIDED

    def __str__(self) -> str:
        digits, found = 1 if self.unit else 2, self.compared
        text = f"{found.mean:+.{digits}f} {self.unit}".rstrip()
        return f"{text} (90 % interval {found.lower:+.{digits}f} to {found.upper:+.{digits}f})"


def values(subject: Subject, shown: str, noise: float, pick: Pick) -> pd.Series:
    """The measure by seed, NaN where a run has diverged."""
    runs, measure = subject.of(shown, noise), pick(subject.setting)
    column = pd.Series(list(measure.values(subject.setting)), subject.runs.index, float)
    numbers = pd.Series(column[runs.index].to_numpy(), runs.seed.to_numpy(), float)
    if not measure.needs_scores:
        numbers = numbers.dropna()
    if numbers.isna().all():
        reason = "no run" if numbers.empty else "only diverged runs"
        raise Lacking(f"{reason} of {shown} at noise {noise:g}")
    check_seeds(len(numbers), shown, noise)
    return numbers


def check_seeds(count: int, shown: str, noise: float) -> None:
    """Refuses to judge by fewer runs than a verdict needs."""
    if count < comparison.SEEDS:
        raise Lacking(f"only {count} of {comparison.SEEDS} seeds of {shown} at noise {noise:g}")


def mean(subject: Subject, shown: str, noise: float, pick: Pick) -> float:
    """Over the seeds; infinitely bad where a run has diverged."""
    numbers = values(subject, shown, noise, pick)
    worst = -math.inf if pick(subject.setting).better == "higher" else math.inf
    return worst if numbers.isna().any() else float(numbers.mean())


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
    shifts = (before[seed] - after[seed] for seed in _seeds(before, after))
    return Difference(Comparison.of(shifts, WEIGHT), "")


def levels(subject: Subject, shown: str) -> list[float]:
    """The noise levels a method was run at, ascending: none, and up to a high one."""
    found = sorted(subject.of(shown).noise.unique().tolist())
    if not found or found[0] > 0 or found[-1] < _HIGH:
        raise Lacking(f"runs of {shown} without noise and with at least {_HIGH:g}")
    return found


def high_noise(subject: Subject, shown: str) -> float:
    """The highest noise level a method was run at."""
    return levels(subject, shown)[-1]


def _seeds(first: pd.Series, second: pd.Series) -> list[int]:
    """Those that both have."""
    found = sorted(set(first.index) & set(second.index))
    if len(found) < comparison.SEEDS:
        raise Lacking(f"runs with the same seeds, at least {comparison.SEEDS}")
    return found


def _worse(second: pd.Series, first: pd.Series, measure: Measure) -> Difference:
    """How much better the first is, in points of a share, or in percent of the first."""
    is_share = measure.unit == "%"
    better = measure.better == "higher"
    by_seed = [
        comparison.difference(first[seed], second[seed], better, None if is_share else first[seed])
        for seed in _seeds(first, second)
    ]
    unit, margin = ("points", POINTS) if is_share else ("%", PERCENT)
    return Difference(Comparison.of(by_seed, margin), unit)
