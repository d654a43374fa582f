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

from excessmtl.lab.compare.statistics import Spread

Verdict = Literal["better", "worse", "equivalent", "undecided"]
BETTER, WORSE, EQUIVALENT, UNDECIDED = VERDICTS = ("better", "worse", "equivalent", "undecided")
SEEDS = 3
"""As many a verdict needs: with two, the 90 % interval is nine standard deviations wide."""


@dataclass(frozen=True)
class Comparison:
    """A mean difference, positive where the first is better, and its interval."""

    mean: float
    lower: float
    """NaN, as is `upper`, with fewer than three seeds."""
    upper: float
    seeds: int
    tolerance: float

    @classmethod
    def of(cls, differences: Iterable[float], tolerance: float) -> "Comparison":
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
        return cls(mean, lower, upper, len(values), tolerance)

    @property
    def verdict(self) -> Verdict:
        """Of the first method, by the rule at the top of this file."""
        if -self.tolerance <= self.lower and self.upper <= self.tolerance:
            return "equivalent"
        if self.lower > 0:
            return "better"
        return "worse" if self.upper < 0 else "undecided"


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
