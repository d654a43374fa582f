"""Label noise of a classification task: two readings, weighed by how well each explains the disagreements."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from excessmtl.diagnosis import confidence_curve, confusions, temperature
from excessmtl.diagnosis.inputs import Array, HeldOut
from excessmtl.diagnosis.levels import (
    CAUTION,
    COPIED,
    COUNTS,
    RATES,
    Level,
    level_of,
    lower_end,
    of_copies,
    upper_end,
    weights_of,
)
from excessmtl.diagnosis.skill import LEARNED

_OF_A_CLASS = 60
"""So many samples that are predicted to be of one class have a curve of their own; the other classes share one."""
_AT_MOST = 0.75
"""The weight of the probabilities: those of a model that knows how noisy its labels are explain every noise."""
_TAKEN_OFF = 0.02
"""From the cautious lower end: the readings are of the same samples, and no second witness."""
_TIED = 0.2
"""Where so many samples share one confidence, the surest cannot be told from the rest."""


@dataclass(frozen=True)
class ClassRate:
    """The labels of one class."""

    label: float | str
    """The class by its number, or as the table has it."""
    labels: int
    """How many samples have this label."""
    wrong: float
    """The share of them that is wrong."""


class Fit:
    """The readings of one task.

    Both say in how many samples of a confidence label and prediction differ, and are averaged with the weights of
    Akaike's criterion. Calibrated probabilities explain hard tasks and symmetric noise. A curve of the confidence for
    each predicted class, with a rate of its own, explains flips to one class, and noise in some classes only.
    """

    def __init__(self, task: HeldOut) -> None:
        self.task = task
        self.classes = task.predictions.shape[1]
        self.margins = confidence_curve.margins_of(task.predictions)

    def level(self) -> Level:
        """The noise rate."""
        predicted = self.task.predictions.argmax(1)
        differs = predicted != self.task.targets
        common = np.bincount(predicted, minlength=self.classes) >= _OF_A_CLASS
        group = np.where(common[predicted], predicted, self.classes)
        every = [np.flatnonzero(group == number) for number in np.unique(group)]
        curves = [confidence_curve.Curve(self.margins[rows], differs[rows], self.classes) for rows in every]
        by_class, size = curves[0].likelihood, len(every[0])
        for curve, rows in zip(curves[1:], every[1:], strict=True):
            by_class = _of_the_mean(by_class, size, curve.likelihood, len(rows))
            size += len(rows)

        best = self._calibration
        sure = temperature.calibrated(self.task, best.sharpness).max(1)
        differing = 1 - best.rate / self.classes - (1 - best.rate) * sure
        explained = sum(curve.explained(differing[rows]) for curve, rows in zip(curves, every, strict=True))
        leads = np.array(
            [
                explained - temperature.PARAMETERS,
                sum(curve.likelihood.max() - confidence_curve.PARAMETERS for curve in curves),
            ]
        )
        readings = np.stack([weights_of(COUNTS * best.likelihood), weights_of(COUNTS * by_class)])
        explains = min(weights_of(COUNTS * leads)[0], _AT_MOST)
        weights = explains * readings[0] + (1 - explains) * readings[1]
        least = max(lower_end(weights, CAUTION) - _TAKEN_OFF, 0.0)
        level = level_of(weights, least, upper_end(weights, CAUTION))
        return of_copies(level) if self.copied else level

    @cached_property
    def _calibration(self) -> temperature.Fit:
        return temperature.fit(self.task)

    def class_rates(self, rate: float) -> tuple[ClassRate, ...]:
        """How many labels of each class are wrong; together as many as the noise rate says."""
        wrong = rate * (1 - 1 / self.classes)
        probabilities = temperature.calibrated(self.task, self._calibration.sharpness)
        bad = confusions.wrong_probability(self.task, probabilities, wrong)
        labels = self.task.targets.astype(np.int64)
        counts, sums = np.bincount(labels), np.bincount(labels, weights=bad)
        shares = np.minimum(sums / np.maximum(counts, 1) * (wrong * len(labels) / max(sums.sum(), 1e-12)), 1.0)
        return tuple(ClassRate(int(own), int(counts[own]), float(shares[own])) for own in np.flatnonzero(counts))

    @property
    def copied(self) -> bool:
        """Whether each prediction is the label of another sample, as noisy as this one: a full tree, one neighbour."""
        return self._tied > COPIED

    @property
    def graded(self) -> bool:
        """Whether the predictions say which of them are the surest."""
        return self._tied < _TIED

    @cached_property
    def _tied(self) -> float:
        """The largest share of the samples that have one and the same confidence."""
        return float(np.unique(self.margins, return_counts=True)[1].max() / self.task.samples)

    def learned(self, rate: float) -> float:
        """The share of what good labels tell that the predictions know, counted in errors."""
        rarest = 1 - np.bincount(self.task.targets.astype(np.int64)).max() / self.task.samples
        errors = float((self.task.predictions.argmax(1) != self.task.targets).mean())
        skill = 1 - errors / max(rarest, 1e-9)
        return float(skill / max(1 - rate, 1e-9)) if skill >= LEARNED else 0.0

    @cached_property
    def _spread(self) -> float:
        return confusions.spread(self.task)

    def floor(self, rate: float) -> float:
        """The cross-entropy, in nats, of a network that knows every true class and the rate of bad labels."""
        wrong = rate * (1 - 1 / self.classes)
        if wrong <= 0:
            return 0.0
        return float(wrong * (self._spread - math.log(wrong)) - (1 - wrong) * math.log1p(-wrong))


def _of_the_mean(first: Array, first_size: int, second: Array, second_size: int) -> Array:
    """The likelihood of the mean rate of two groups of samples, over `RATES`: that of the likeliest two rates."""
    left = (RATES[:, None] * (first_size + second_size) - RATES * second_size) / first_size
    possible = (left > -1e-9) & (left < 1 + 1e-9)
    likelihood: Array = np.where(possible, np.interp(left, RATES, first) + second, -np.inf).max(1)
    return likelihood
