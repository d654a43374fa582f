"""How often samples have the label of one class, by how sure the predictions are of that class.

Sort the samples by the predicted probability of a class. From the least to the most likely ones, the share of labels of
this class climbs from one level to another:

    P(label is this class | r)  =  i  +  (1 - i - o) / (1 + exp(-slope (logit(r) - middle)))

with r the place in the order, from 0 to 1. The levels are noise, since even the surest predictions are off by as much:
o is the share of the class's own samples that have lost their label, i the share of all other samples that have got it.
The climb between them is hardness. A curve that is still climbing at its ends has low slope, and fits many levels.

Only the order of the samples enters: an over-confident (memorising) network and a calibrated one give the same answer.
Samples of equal probability, as a single tree gives, are kept together: of these only the mean is known.
"""

import numpy as np
from numpy.typing import NDArray

from excessmtl.diagnosis.inputs import Array

_SLOPES = np.geomspace(0.3, 30, 11)
_MIDDLES = np.linspace(-1, 1, 161)
_BINS, _POINTS = 32, 128
"""Of the place in the order at most, even in its logit; and places at which a curve is computed, several in a bin."""


def _logistic(x: Array) -> Array:
    found: Array = 1 / (1 + np.exp(-np.clip(x, -50, 50)))
    return found


class Curve:
    """The curves of one class."""

    def __init__(self, probability: Array, own: NDArray[np.bool_]) -> None:
        """`probability` [n]: of the class; `own` [n]: whether the label is this class."""
        samples, order = len(own), np.argsort(probability, kind="stable")
        self.share = float(own.mean())
        ordered = probability[order]
        # The first of those of equal probability decides on the bin of all.
        first = np.searchsorted(ordered, ordered)
        span = np.log(2 * samples)
        place = np.log((first + 0.5) / (samples - first - 0.5)) / span
        starts = np.flatnonzero(np.diff(((place + 1) * _BINS / 2).astype(np.int64), prepend=-1))
        self.total = np.diff(starts, append=samples).astype(np.float64)
        self.own = np.add.reduceat(own[order].astype(np.float64), starts)

        between = (samples * _logistic(np.linspace(-span, span, _POINTS))).astype(np.int64)
        points = np.union1d(starts, np.minimum(between, samples - 1))
        lengths = np.diff(points, append=samples)
        middle = (points + lengths / 2) / samples
        logit = np.log(middle / (1 - middle))
        # Low slopes need middles far outside of the order, where the class is very rare.
        middles = (span + 7 / _SLOPES)[:, None] * _MIDDLES
        climbed = _logistic(_SLOPES[:, None, None] * (logit - middles[..., None]))
        self._climbed = np.add.reduceat(climbed * lengths, np.searchsorted(points, starts), axis=-1) / self.total
        """[slopes, middles, bins], from 0 to 1."""

    def likelihood(self, got: Array, lost: Array) -> Array:
        """Of each pair of levels [m], with the slope that fits best; logarithms.

        The middle is the one at which as many labels are of the class as there are.
        """
        left = 1 - got - lost
        true_share = np.clip((self.share - got) / np.maximum(left, 1e-9), 0, 1)
        found = np.full(len(got), -np.inf)
        for climbed in self._climbed:
            mean = climbed @ self.total / self.total.sum()
            place = np.interp(-true_share, -mean, np.arange(len(mean)))
            before = np.minimum(place.astype(np.int64), len(mean) - 2)
            after = (place - before)[:, None]
            curve = (1 - after) * climbed[before] + after * climbed[before + 1]
            share = np.clip(got[:, None] + left[:, None] * curve, 1e-4, 1 - 1e-4)
            own = np.log(share) @ self.own + np.log1p(-share) @ (self.total - self.own)
            found = np.maximum(found, own)
        return found
