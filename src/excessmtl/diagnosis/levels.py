"""A noise rate and its interval, from a likelihood on a grid of rates."""

from dataclasses import dataclass

import numpy as np

from excessmtl.diagnosis.inputs import Array

RATES = np.linspace(0, 1, 51)
_TAIL = 0.05
"""Of the weight on either side of an interval."""
_SYSTEMATIC = 0.02
"""Added to either side: the models are not exact, however many samples there are."""


@dataclass(frozen=True)
class Level:
    """A noise rate and its interval."""

    rate: float
    low: float
    high: float


def weights_of(likelihood: Array) -> Array:
    """Over `RATES`, from logarithms of a profile likelihood (the best over all that is not known besides)."""
    weights = np.exp(likelihood - likelihood.max())
    found: Array = weights / weights.sum()
    return found


def level_of(weights: Array) -> Level:
    """The mean, and the quantiles widened by the systematic part."""
    below = weights.cumsum()
    low, high = (np.interp(share, below, RATES) for share in (_TAIL, 1 - _TAIL))
    return Level(float(weights @ RATES), max(float(low) - _SYSTEMATIC, 0.0), min(float(high) + _SYSTEMATIC, 1.0))
