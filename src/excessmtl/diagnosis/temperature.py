"""Calibrated probabilities of the true class, whatever the noise.

    P(label)  =  e / K  +  (1 - e) softmax(sharpness * logits)[label]

The sharpness, an inverse temperature, is fitted to the held-out labels along with the noise rate e: an over-confident
network is cooled down, and one that has learned the noise along with the labels is sharpened. The suspects and the
rates by class are ranked and divided by these probabilities. The noise rate itself is not taken from them: flips to one
class, which the network learns as a second likely class, do not show here.
"""

import numpy as np

from excessmtl.diagnosis.inputs import Array, HeldOut
from excessmtl.diagnosis.levels import RATES

_SHARPNESS = np.geomspace(0.08, 12, 28)
_EXACT, _BINS = 20_000, 8_192
"""Up to so many samples every probability counts by itself; of more, bins of equal width in its logarithm do."""


def calibrated(task: HeldOut) -> Array:
    """[n, classes] probabilities."""
    scaled = _sharpness(task) * task.predictions
    shares = np.exp(scaled - scaled.max(1, keepdims=True))
    probabilities: Array = shares / shares.sum(1, keepdims=True)
    return probabilities


def _binned(values: Array) -> tuple[Array, Array]:
    """Values from 0 to 1 and how many there are of each; of many samples, the means of narrow bins."""
    if len(values) <= _EXACT:
        return values, np.ones(len(values))
    bins = np.minimum((-np.log(np.maximum(values, 1e-12)) * (_BINS / 27.7)).astype(np.int64), _BINS - 1)
    counts = np.bincount(bins, minlength=_BINS)
    used = counts > 0
    return np.bincount(bins, weights=values, minlength=_BINS)[used] / counts[used], counts[used].astype(np.float64)


def _sharpness(task: HeldOut) -> float:
    """The best one of a grid, with the rate that goes with it."""
    labels, classes = task.targets.astype(np.int64), task.predictions.shape[1]
    behind = task.predictions - task.predictions[np.arange(task.samples), labels][:, None]
    rate, table = RATES[:, None], np.empty((len(_SHARPNESS), len(RATES)))
    for number, sharpness in enumerate(_SHARPNESS):
        own, counts = _binned(1 / np.exp(np.minimum(sharpness * behind, 700)).sum(1))
        table[number] = np.log(rate / classes + (1 - rate) * own + 1e-12) @ counts
    return float(_SHARPNESS[table.max(1).argmax()])
