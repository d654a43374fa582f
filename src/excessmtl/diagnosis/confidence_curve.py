"""First reading of a classification task: how often labels disagree with predictions, by confidence.

Two things make a held-out prediction and its label differ. A *hard* sample is predicted wrongly; the more confident the
prediction, the rarer that is. A *bad label* differs however confident the prediction is. So sort the samples by
confidence: the share of disagreements that decays toward the most confident ones is hardness, and the level that it
settles at is noise. With q the share of samples that are more confident, K classes and noise rate e,

    P(disagree | q)  =  e (K - 1) / K  +  (1 - e) h(q),        h(q) = (K - 1) / K / (1 + (q0 / q)^slope)

where h, the error of the same predictions against clean labels, goes from chance to zero as a power of q. Only ranks of
confidence enter: an over-confident (memorising) network and a calibrated one give the same answer. The noise may be of
any kind, as long as most labels are right: symmetric, pair flips, dependent on the input.

Where the disagreement still falls among the most confident samples, the level cannot be seen, and many rates fit. So it
is where many samples have one and the same confidence, as those of a single tree: of these only the mean is known.
"""

import numpy as np
from numpy.typing import NDArray

from excessmtl.diagnosis.inputs import Array
from excessmtl.diagnosis.levels import RATES

PARAMETERS = 3
_SLOPES = np.array([0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 6.0])
_MIDDLES = np.linspace(-4.5, 4.0, 29)
"""log(q0): above 0 for easy tasks, where even the least confident predictions are mostly right."""
_BINS, _POINTS = 25, 200
"""Of confidence at most; and places at which the curve is computed, several in a bin."""


def margins_of(predictions: Array) -> Array:
    """[n] the confidence of each prediction: how far its class leads the next one."""
    two = np.partition(predictions, -2, axis=1)[:, -2:]
    lead: Array = np.round(two[:, 1] - two[:, 0], 9)
    return lead


class Curve:
    """The curves of some samples."""

    def __init__(self, margins: Array, differs: NDArray[np.bool_], classes: int) -> None:
        samples, self.order = len(margins), np.argsort(-margins, kind="stable")
        ordered = margins[self.order]
        # The first of those of equal confidence decides on the bin of all.
        bins = np.searchsorted(-ordered, -ordered) * min(_BINS, samples) // samples
        self.starts = np.flatnonzero(np.diff(bins, prepend=-1))
        self.total = np.diff(self.starts, append=samples).astype(np.float64)
        self.differing = self._sums(differs.astype(np.float64))

        points = np.union1d(self.starts, np.linspace(0, samples, _POINTS, endpoint=False).astype(np.int64))
        lengths = np.diff(points, append=samples)
        place = np.log((points + lengths / 2) / samples)
        chance = 1 - 1 / classes
        steep = _SLOPES[:, None, None] * (_MIDDLES[:, None] - place)
        error = (chance / (1 + np.exp(np.clip(steep, -50, 50)))).reshape(-1, len(points))
        error = np.add.reduceat(error * lengths, np.searchsorted(points, self.starts), axis=1) / self.total
        rates = RATES[:, None, None]
        self.likelihood: Array = self._likelihood(rates * chance + (1 - rates) * error).max(1)
        """Of every rate, over `RATES`, with the curve that fits best; logarithms."""

    def explained(self, share: Array) -> float:
        """The likelihood, a logarithm, where label and prediction differ with these probabilities [n]."""
        return float(self._likelihood(self._sums(share) / self.total))

    def _sums(self, values: Array) -> Array:
        found: Array = np.add.reduceat(values[self.order], self.starts)
        return found

    def _likelihood(self, share: Array) -> Array:
        share = np.clip(share, 1e-4, 1 - 1e-4)
        found: Array = np.log(share) @ self.differing + np.log1p(-share) @ (self.total - self.differing)
        return found
