"""A noise rate and its interval, from a likelihood on a grid of rates."""

import math
from dataclasses import astuple, dataclass

import numpy as np

from excessmtl.diagnosis.inputs import Array

RATES = np.linspace(0, 1, 51)
HALF = 0.5
"""Of what good labels tell, predictions must know so much; else a hard task looks like a noisy one."""
TAIL = 0.1
"""Of the weight on either side of an interval."""
CAUTION = 0.05
"""The weight beyond a cautious end."""
COPIED = 0.9
"""Where more of the predictions look like single labels of other samples, they are taken for copies of these."""
_WIDE = 0.7


@dataclass(frozen=True)
class Level:
    """A noise rate and its interval."""

    rate: float
    low: float
    high: float
    least: float
    """A cautious lower end, which verdicts go by: a false alarm is worse than a wide interval."""
    most: float
    """A cautious upper end: noise that is overlooked is as bad."""
    high_from_0: float
    """The upper end where the interval begins at 0."""

    @property
    def is_wide(self) -> bool:
        """Whether the interval says nothing."""
        return self.high - self.low >= _WIDE


def weights_of(likelihood: Array) -> Array:
    """Over `RATES`, from logarithms of a profile likelihood (the best over all that is not known besides)."""
    weights = np.exp(likelihood - likelihood.max())
    shares: Array = weights / weights.sum()
    return shares


def lower_end(weights: Array, tail: float) -> float:
    """The rate below which there is so much of the weight."""
    return float(np.interp(tail, weights.cumsum(), RATES))


def upper_end(weights: Array, tail: float) -> float:
    """The rate above which there is so much of the weight."""
    return 1 - lower_end(weights[::-1], tail)  # RATES is symmetric


def level_of(weights: Array, least: float, most: float, tail: float = TAIL) -> Level:
    """The mean and the quantiles; `least`, `most`: the cautious ends."""
    rate, high = float(weights @ RATES), upper_end(weights, tail)
    return Level(rate, lower_end(weights, tail), high, least, most, max(high, rate))


def of_copies(level: Level) -> Level:
    """Where each prediction is a copy of another sample's label, as noisy as this one: the rate of one of the two."""
    return Level(*(1 - math.sqrt(1 - min(end, 1.0)) for end in astuple(level)))
