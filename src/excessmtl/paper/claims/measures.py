"""What claims compare: a number per run, differences of it paired by seed, and when a difference counts as one."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import t as student

from excessmtl.paper.subjects import Subject

POINTS, PERCENT, WEIGHT = 1.0, 10.0, 0.05
"""A share (accuracy) is better or worse from one point on, about the spread between seeds of small test sets; an error,
whose size depends on the data, from ten percent on. Less than 0.05 of the weight is no preference."""
_CONFIDENCE = 0.90
_SEEDS_FOR_INTERVAL = 3
"""With two seeds the 90 % interval is nine standard deviations wide and would settle nothing."""


class Lacking(Exception):
    """The runs a rule needs are not there; the message says which."""


@dataclass(frozen=True)
class Measure:
    """A number that every run of a subject has."""

    name: str
    read: Callable[[pd.Series], float | None]
    higher_is_better: Callable[[pd.Series], bool]


def _column(column: str, name: str) -> Measure:
    return Measure(name, lambda run: run[column], lambda run: all(run.higher_is_better.values()))


CLEAN = _column("clean_score", "clean tasks")
NOISY = _column("noisy_score", "noisy tasks")
OVERALL = _column("overall_score", "all tasks")


def task_score(task: str) -> Measure:
    """The primary metric of one task."""
    return Measure(task, lambda run: run.scores[task], lambda run: run.higher_is_better[task])


def task_loss(task: str) -> Measure:
    """The loss of one task on the (clean) test set."""
    return Measure(f"loss of {task}", lambda run: run.metrics[f"{task}/loss"], lambda run: False)


@dataclass(frozen=True)
class Difference:
    """Seed by seed: points of a share, percent of an error, or plain units."""

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
        count = len(self.by_seed)
        if count < _SEEDS_FOR_INTERVAL:
            return None
        half = float(student.ppf((1 + _CONFIDENCE) / 2, count - 1) * np.std(self.by_seed, ddof=1) / np.sqrt(count))
        return self.mean - half, self.mean + half

    @property
    def is_clear(self) -> bool:
        """Above the margin, and not by luck where there are seeds enough to tell."""
        return self.mean > self.margin and (self.interval is None or self.interval[0] > 0)

    def __str__(self) -> str:
        text = f"{self.mean:+.2f}{self.unit}" if not self.unit else f"{self.mean:+.1f} {self.unit}"
        if self.interval is None:
            return f"{text} ({_seeds(len(self.by_seed))})"
        digits = 1 if self.unit else 2
        low, high = (f"{bound:+.{digits}f}" for bound in self.interval)
        return f"{text} (90 % interval {low} to {high})"


def values(subject: Subject, shown: str, noise: float, measure: Measure) -> pd.Series:
    """The measure by seed; runs that diverged have none."""
    runs = subject.of(shown, noise)
    found = {int(run.seed): measure.read(run) for _, run in runs.iterrows()}
    numbers = pd.Series({seed: value for seed, value in found.items() if value is not None}, dtype=float).dropna()
    if numbers.empty:
        reason = "no run" if runs.empty else "only diverged runs"
        raise Lacking(f"{reason} of {shown} at noise {noise:g}")
    return numbers


def mean(subject: Subject, shown: str, noise: float, measure: Measure) -> float:
    """Over the seeds."""
    return float(values(subject, shown, noise, measure).mean())


def spread(subject: Subject, shown: str, noise: float, measure: Measure) -> str:
    """Mean and standard deviation as text."""
    numbers = values(subject, shown, noise, measure)
    share = _direction(subject, measure)
    scale, digits = (100, 1) if share else (1, 3)
    text = f"{scale * numbers.mean():.{digits}f}"
    return text if len(numbers) < 2 else f"{text} ± {scale * numbers.std():.{digits}f}"


def harm(subject: Subject, shown: str, noise: float, measure: Measure = CLEAN) -> Difference:
    """How much worse a method is at a noise level than without noise: positive is worse."""
    return _worse(values(subject, shown, noise, measure), values(subject, shown, 0.0, measure), subject, measure)


def advantage(subject: Subject, better: str, worse: str, noise: float, measure: Measure = CLEAN) -> Difference:
    """How much better one method is than another at the same noise level: positive is better."""
    return _worse(values(subject, worse, noise, measure), values(subject, better, noise, measure), subject, measure)


def clean_weight(subject: Subject, shown: str, noise: float) -> pd.Series:
    """The share of the clean tasks in the weights of the last epoch, by seed."""
    return values(subject, shown, noise, _column("clean_weight", "clean weight"))


def weight_shift(subject: Subject, shown: str, noise: float) -> Difference:
    """How much weight noise moves from the clean tasks to the noisy ones."""
    before, after = clean_weight(subject, shown, 0.0), clean_weight(subject, shown, noise)
    return Difference(_paired(before, after), "", WEIGHT)


def clean_share_of_tasks(subject: Subject) -> float:
    """The clean weight of uniform weighting."""
    run = subject.runs.iloc[0]
    return 1 - len(run.noisy_tasks) / len(run.scores)


def levels(subject: Subject, shown: str) -> list[float]:
    """The noise levels a method was run at, ascending."""
    return sorted(subject.of(shown).noise.unique().tolist())


def high_noise(subject: Subject, shown: str, least: float = 0.6) -> float:
    """The highest noise level a method was run at, which must be high, beside one without noise."""
    found = levels(subject, shown)
    if not found or found[0] > 0 or found[-1] < least:
        raise Lacking(f"runs of {shown} without noise and with at least {least:g}")
    return found[-1]


def _direction(subject: Subject, measure: Measure) -> bool:
    return measure.higher_is_better(subject.runs.iloc[0])


def _paired(first: pd.Series, second: pd.Series) -> tuple[float, ...]:
    """first - second, seed by seed."""
    difference = (first - second).dropna()
    if difference.empty:
        raise Lacking("runs with the same seeds")
    return tuple(difference.tolist())


def _worse(second: pd.Series, first: pd.Series, subject: Subject, measure: Measure) -> Difference:
    if _direction(subject, measure):
        return Difference(_paired(100 * first, 100 * second), "points", POINTS)
    return Difference(_paired(100 * second / first, 100 * first / first), "%", PERCENT)


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"
