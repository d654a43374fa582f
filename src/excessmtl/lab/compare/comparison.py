"""How two methods compare: differences paired by seed, the interval of their mean, and the one verdict on them.

A difference says how much *better* the first of two runs with the same seed is. From three seeds on, and with a
tolerance t, the 90 % t-interval of the mean difference decides:

- *equivalent*: the whole interval lies within [-t, t];
- *better*: the whole interval lies above 0, and the two are not equivalent;
- *worse*: the whole interval lies below 0, and the two are not equivalent;
- *undecided*: anything else. So a wide interval never speaks for a method, nor do fewer than three seeds.
"""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import t as student

Verdict = Literal["better", "worse", "equivalent", "undecided"]
BETTER: Literal["better"] = "better"
WORSE: Literal["worse"] = "worse"
EQUIVALENT: Literal["equivalent"] = "equivalent"
UNDECIDED: Literal["undecided"] = "undecided"
WORST_FIRST: tuple[Verdict, ...] = (WORSE, UNDECIDED, EQUIVALENT, BETTER)
Answer = bool | Literal["undecided"]
CONFIDENCE = 0.9
SEEDS = 3
"""As many a verdict needs: with two, the 90 % interval is nine standard deviations wide."""


@dataclass(frozen=True)
class Spread:
    """Numbers that are finite, usually one per seed, summarised."""

    mean: float
    """NaN where there is no number."""
    deviation: float
    """Of the sample (n - 1); NaN where there are fewer than two numbers."""
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """Leaves out what is not finite."""
        finite = np.array([value for value in values if math.isfinite(value)], float)
        mean = float(finite.mean()) if len(finite) else math.nan
        return cls(mean, float(finite.std(ddof=1)) if len(finite) > 1 else math.nan, len(finite))

    @property
    def interval(self) -> tuple[float, float]:
        """The 90 % t-interval of the mean; NaN where there are fewer than two numbers."""
        if self.count < 2:
            return math.nan, math.nan
        half = float(student.ppf((1 + CONFIDENCE) / 2, self.count - 1)) * self.deviation / math.sqrt(self.count)
        return self.mean - half, self.mean + half

    def text(self, digits: int) -> str:
        """`mean ± deviation`, the latter from two numbers on."""
        spread = f" ± {self.deviation:.{digits}f}" if self.count > 1 else ""
        return f"{self.mean:z.{digits}f}{spread}"


@dataclass(frozen=True)
class Comparison:
    """A mean difference, positive where the first is better, and its interval."""

    mean: float
    lower: float
    """NaN, as is `upper`, with fewer than three seeds."""
    upper: float
    seeds: int
    tolerance: float
    unit: str = ""

    @classmethod
    def of(cls, differences: Iterable[float], tolerance: float, unit: str = "") -> "Comparison":
        """One difference per seed. An infinite one, of a run that has diverged, makes the mean infinite.

        Where runs of both have diverged, in different seeds, there is no mean, and the interval has no ends.
        """
        values = list(differences)
        infinite = {value for value in values if math.isinf(value)}
        spread = Spread.of(values)
        mean, (lower, upper) = spread.mean, spread.interval
        if len(infinite) == 1:
            mean = lower = upper = infinite.pop()
        elif infinite:
            mean, lower, upper = math.nan, -math.inf, math.inf
        if len(values) < SEEDS:
            lower = upper = math.nan
        return cls(mean, lower, upper, len(values), tolerance, unit)

    @property
    def verdict(self) -> Verdict:
        """Of the first method, by the rule at the top of this file."""
        if -self.tolerance <= self.lower and self.upper <= self.tolerance:
            return EQUIVALENT
        if self.lower > 0:
            return BETTER
        return WORSE if self.upper < 0 else UNDECIDED

    @property
    def clear(self) -> Answer:
        """Whether the first is better, with a mean above the tolerance. No: it is worse, or they are equivalent."""
        if self.verdict == BETTER and self.mean > self.tolerance:
            return True
        return False if self.verdict in (EQUIVALENT, WORSE) else UNDECIDED

    @property
    def ahead(self) -> Answer:
        """Whether the first is better, however little. No: it is worse, or they are equivalent."""
        return True if self.lower > 0 else False if self.clear is False else UNDECIDED

    def __str__(self) -> str:
        digits = 1 if self.unit else 2
        text = f"{self.mean:+.{digits}f} {self.unit}".rstrip()
        return f"{text} (90 % interval {self.lower:+.{digits}f} to {self.upper:+.{digits}f})"


def mean_change(mine: Mapping[str, float], other: Mapping[str, float], higher_is_better: Mapping[str, bool]) -> float:
    """The mean over tasks of how much better each score is, in percent of the other's.

    Against single-task networks, with a minus, this is Delta_m. One task that has diverged decides.
    """
    changes = [difference(mine[task], other[task], higher, other[task]) for task, higher in higher_is_better.items()]
    return -math.inf if -math.inf in changes else statistics.fmean(changes)


def difference(mine: float, other: float, higher_is_better: bool, relative_to: float | None = None) -> float:
    """How much better one score is than another, in percent of `relative_to`, or 100 times the scores' own unit.

    A run that has diverged (NaN) is worse without bound; two that have are equally bad.
    """
    if math.isnan(mine) or math.isnan(other):
        return 0.0 if math.isnan(mine) and math.isnan(other) else -math.inf if math.isnan(mine) else math.inf
    gain = mine - other if higher_is_better else other - mine
    if relative_to is None:
        return 100 * gain
    if relative_to == 0:
        return math.copysign(math.inf, gain) if gain else 0.0
    return 100 * gain / abs(relative_to)
