"""First reading of a classification task: how often labels disagree with predictions, by confidence.

Two things make a held-out prediction and its label differ. A *hard* sample is predicted wrongly; the more confident the
prediction, the rarer that is. A *bad label* differs however confident the prediction is. So sort the samples by
confidence: the share of disagreements that decays toward the most confident ones is hardness, and the level that it
settles at is noise. With q the share of samples that are more confident, K classes and noise rate e,

    P(disagree | q)  =  e (K - 1) / K  +  (1 - e) h(q),        h(q) = (K - 1) / K / (1 + (q0 / q)^slope)

where h, the error of the same predictions against clean labels, goes from chance to zero as a power of q. Only ranks of
confidence enter: an over-confident (memorising) network and a calibrated one give the same answer. The noise may be of
any kind, as long as most labels are right: symmetric, pair flips, dependent on the input.

Where the disagreement still falls among the most confident samples, the level cannot be seen, and many rates fit.
"""

import numpy as np
from numpy.typing import NDArray

from excessmtl.diagnosis.inputs import Array
from excessmtl.diagnosis.levels import RATES

PARAMETERS = 3
_SLOPES = np.array([0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 6.0])
_MIDDLES = np.linspace(-4.5, 4.0, 29)
"""log(q0): above 0 for easy tasks, where even the least confident predictions are mostly right."""
_BINS = 25


class Bins:
    """Samples of equal confidence: how many there are, and in how many label and prediction differ."""

    def __init__(self, margins: Array, differs: NDArray[np.bool_]) -> None:
        samples = len(margins)
        self.order = np.argsort(margins, kind="stable")
        self.number = np.arange(samples) * min(_BINS, samples) // samples
        self.total = np.bincount(self.number).astype(np.float64)
        self.differing = self.sums(differs.astype(np.float64))
        more_confident = np.log((samples - np.arange(samples) - 0.5) / samples)
        self.place = np.bincount(self.number, weights=more_confident) / self.total

    def sums(self, values: Array) -> Array:
        """Of a value per sample."""
        return np.asarray(np.bincount(self.number, weights=values[self.order]), np.float64)

    def likelihood(self, share: Array) -> Array:
        """The logarithm, where label and prediction differ in these shares [..., bins]."""
        share = np.clip(share, 1e-4, 1 - 1e-4)
        likelihood: Array = (self.differing * np.log(share) + (self.total - self.differing) * np.log1p(-share)).sum(-1)
        return likelihood


def margins_of(predictions: Array) -> Array:
    """[n] the confidence of each prediction: how far its class leads the next one."""
    two = np.partition(predictions, -2, axis=1)[:, -2:]
    lead: Array = two[:, 1] - two[:, 0]
    return lead


def fit(bins: Bins, classes: int) -> tuple[Array, Array]:
    """The likelihood of every rate, over `RATES`, with the curve that fits best (logarithms); the best curve [n]."""
    chance = 1 - 1 / classes
    steep = _SLOPES[:, None, None] * (_MIDDLES[:, None] - bins.place)
    error = (chance / (1 + np.exp(np.clip(steep, -50, 50)))).reshape(-1, len(bins.total))
    rates = RATES[:, None, None]
    table = bins.likelihood(rates * chance + (1 - rates) * error)
    rate, curve = np.unravel_index(int(table.argmax()), table.shape)
    share = RATES[rate] * chance + (1 - RATES[rate]) * error[curve]
    fitted = np.empty(len(bins.order))
    fitted[bins.order] = share[bins.number]
    return table.max(1), fitted
