"""What claims compare: a number per run, and differences of it paired by seed.

A share (accuracy) is better or worse from one point on, about the spread between seeds of small test sets; an error,
whose size depends on the data, from ten percent on. Less than 0.05 of the weight is no preference.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from excessmtl.lab.compare import measures
from excessmtl.lab.compare.comparison import SEEDS, Comparison, Spread, difference
from excessmtl.lab.compare.measures import Measure
from excessmtl.lab.compare.settings import Setting
from excessmtl.lab.paper.claims.judging import Lacking
from excessmtl.lab.paper.subjects import Subject

POINTS, PERCENT, WEIGHT = 1.0, 10.0, 0.05
_HIGH = 0.6
"""Noise that deserves the name."""

Pick = Callable[[Setting], Measure]
"""Which measure of a setting is meant."""


def _of_groups(key: str) -> Pick:
    def pick(setting: Setting) -> Measure:
        for measure in measures.score_measures(setting):
            if measure.key == key:
                return measure
        raise Lacking("a metric that all tasks share")

    return pick


CLEAN, NOISY, OVERALL = _of_groups("clean_score"), _of_groups("noisy_score"), _of_groups("overall_score")


def clean_loss(setting: Setting) -> Measure:
    """The loss of the clean task where there is one."""
    return measures.task_loss(setting.clean_tasks[0])


def noisy_loss(setting: Setting) -> Measure:
    """The loss of the noisy task where there is one."""
    return measures.task_loss(setting.noisy_tasks[0])


def values(subject: Subject, shown: str, noise: float, pick: Pick) -> pd.Series:
    """The measure by seed, NaN where a run has diverged."""
    runs, measure = subject.of(shown, noise), pick(subject.setting)
    numbers = pd.Series(list(measure.values(replace(subject.setting, runs=runs))), runs.seed.to_numpy(), float)
    if not measure.needs_scores:
        numbers = numbers.dropna()
    if numbers.isna().all():
        reason = "no run" if numbers.empty else "only diverged runs"
        raise Lacking(f"{reason} of {shown} at noise {noise:g}")
    check_seeds(len(numbers), shown, noise)
    return numbers


def check_seeds(count: int, shown: str, noise: float) -> None:
    """Refuses to judge by fewer runs than a verdict needs."""
    if count < SEEDS:
        raise Lacking(f"only {count} of {SEEDS} seeds of {shown} at noise {noise:g}")


def mean(subject: Subject, shown: str, noise: float, pick: Pick) -> float:
    """Over the seeds; infinitely bad where a run has diverged."""
    numbers = values(subject, shown, noise, pick)
    worst = -math.inf if pick(subject.setting).better == "higher" else math.inf
    return worst if numbers.isna().any() else float(numbers.mean())


def spread(subject: Subject, shown: str, noise: float, pick: Pick) -> str:
    """Mean and standard deviation as text."""
    measure = pick(subject.setting)
    return Spread.of(measure.factor * values(subject, shown, noise, pick)).text(1 if measure.unit == "%" else 3)


def harm(subject: Subject, shown: str, noise: float, pick: Pick = CLEAN) -> Comparison:
    """How much worse a method is at a noise level than without noise: positive is worse."""
    without = values(subject, shown, 0.0, pick)
    return _better(without, values(subject, shown, noise, pick), pick(subject.setting))


def advantage(subject: Subject, better: str, worse: str, noise: float, pick: Pick = CLEAN) -> Comparison:
    """How much better one method is than another at the same noise level: positive is better."""
    second = values(subject, worse, noise, pick)
    return _better(values(subject, better, noise, pick), second, pick(subject.setting))


def clean_weight(subject: Subject, shown: str, noise: float) -> pd.Series:
    """The share of the clean tasks in the weights of the last epoch, by seed."""
    return values(subject, shown, noise, lambda setting: measures.CLEAN_WEIGHT)


def weight_shift(subject: Subject, shown: str, noise: float) -> Comparison:
    """How much weight noise moves from the clean tasks to the noisy ones."""
    before, after = clean_weight(subject, shown, 0.0), clean_weight(subject, shown, noise)
    return Comparison.of((before[seed] - after[seed] for seed in _seeds(before, after)), WEIGHT)


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
    if len(found) < SEEDS:
        raise Lacking(f"runs with the same seeds, at least {SEEDS}")
    return found


def _better(first: pd.Series, second: pd.Series, measure: Measure) -> Comparison:
    """How much better the first is, in points of a share, or in percent of the first."""
    is_share, higher = measure.unit == "%", measure.better == "higher"
    by_seed = [
        difference(first[seed], second[seed], higher, None if is_share else first[seed])
        for seed in _seeds(first, second)
    ]
    return Comparison.of(by_seed, *((POINTS, "points") if is_share else (PERCENT, "%")))
