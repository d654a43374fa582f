"""The noise rate from samples that were labelled twice: how often, or how far, the two labels differ.

This needs no network: a hard task and a noisy one are told apart for certain, also where *every* label has an error.
The two labels must be independent: of two raters, or of one who did not remember.
"""

from dataclasses import dataclass

import numpy as np

from excessmtl.diagnosis.inputs import Array, HeldOut
from excessmtl.diagnosis.levels import CAUTION, RATES, Level, level_of, lower_end, upper_end, weights_of

LEAST = 30
"""Fewer pairs of labels say too little."""
_RESAMPLES = 400


@dataclass(frozen=True)
class Pairs:
    """Two labels of the same samples."""

    first: Array
    second: Array
    classes: int
    """0 for numbers."""

    @property
    def samples(self) -> int:
        """How many samples have two labels."""
        return len(self.first)


def pairs_of(task: HeldOut, again: HeldOut) -> Pairs:
    """The samples that have both labels. `again`: the same predictions with the second labels."""
    _, own, other = np.intersect1d(task.rows, again.rows, assume_unique=True, return_indices=True)
    classes = 0 if task.kind == "regression" else task.predictions.shape[1]
    return Pairs(task.targets[own], again.targets[other], classes)


def noise_level(pairs: Pairs) -> Level:
    """The noise rate of a task."""
    return _of_classes(pairs) if pairs.classes else _of_numbers(pairs)


def _of_classes(pairs: Pairs) -> Level:
    """With a share w of wrong labels, two labels agree if both are right, or both are wrong in the same way."""
    differing = int((pairs.first != pairs.second).sum())
    wrong = RATES * (1 - 1 / pairs.classes)
    differ = np.clip(1 - (1 - wrong) ** 2 - wrong**2 / (pairs.classes - 1), 1e-6, 1 - 1e-6)
    weights = weights_of(differing * np.log(differ) + (pairs.samples - differing) * np.log1p(-differ))
    low, high = lower_end(weights, CAUTION), upper_end(weights, CAUTION)
    return level_of(weights, low, high, CAUTION)


def _of_numbers(pairs: Pairs) -> Level:
    """Half the mean square of the difference is the noise's variance; the covariance is that of the clean target."""
    centre = (pairs.first.mean(0) + pairs.second.mean(0)) / 2
    scale = np.maximum(pairs.first.std(0) + pairs.second.std(0), 1e-30)
    first, second = (pairs.first - centre) / scale, (pairs.second - centre) / scale
    noise, signal = ((first - second) ** 2).sum(1) / 2, (first * second).sum(1)
    drawn = np.random.default_rng(0).multinomial(pairs.samples, np.full(pairs.samples, 1 / pairs.samples), _RESAMPLES)
    low, high = np.quantile(_ratio(drawn @ noise, drawn @ signal), (CAUTION, 1 - CAUTION)).tolist()
    return Level(float(_ratio(noise.sum(), signal.sum())), low, high, low, high, high)


def _ratio(noise: Array, signal: Array) -> Array:
    """From 0 to 1: a target without any variance of its own has only noise."""
    share: Array = np.minimum(noise / np.maximum(signal, 1e-30), 1.0)
    return share
