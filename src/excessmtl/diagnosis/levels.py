"""A noise rate and its interval, from a likelihood on a grid of rates."""

import math
from dataclasses import astuple, dataclass

import numpy as np

from excessmtl.diagnosis.inputs import Array

RATES = np.linspace(0, 1, 51)
HALF = 0.5
"""Of what good labels tell, predictions must know so much; else a hard task looks like a noisy one."""
COUNTS = 0.5
"""As so much of a sample each one counts in an interval: no model is exact, and intervals would be too narrow."""
TAIL = 0.05
"""Of the weight on either side of an interval."""
_WIDE = 0.7
_CAUTION = 0.02
"""What is taken off the lower end before a task is called noisy."""


@dataclass(frozen=True)
class Level:
    """A noise rate and its interval."""

    rate: float
    low: float
    high: float
    least: float
    """A cautious lower end, which verdicts go by: a false alarm is worse than a wide interval."""

    @property
    def is_wide(self) -> bool:
        """Whether the interval says nothing."""
        return self.high - self.low >= _WIDE


def weights_of(likelihood: Array) -> Array:
    """Over `RATES`, from logarithms of a profile likelihood (the best over all that is not known besides)."""
    weights = np.exp(likelihood - likelihood.max())
    shares: Array = weights / weights.sum()
    return shares


def level_of(weights: Array) -> Level:
    """The mean and the quantiles."""
    below = weights.cumsum()
    low = float(np.interp(TAIL, below, RATES))
    high = 1 - np.interp(TAIL, weights[::-1].cumsum(), RATES)  # the same from above; RATES is symmetric
    return Level(float(weights @ RATES), low, float(high), max(low - _CAUTION, 0.0))


def of_copies(level: Level) -> Level:
    """Where each prediction is a copy of another sample's label, as noisy as this one: the rate of one of the two."""
    rate, low, high, least = (1 - math.sqrt(1 - min(end, 1.0)) for end in astuple(level))
    return Level(rate, low, high, least)
