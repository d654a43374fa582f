"""Label noise of a classification task: two readings, weighed by how well each explains the disagreements."""

import math
from functools import cached_property

import numpy as np

from excessmtl.diagnosis import confidence_curve, confusions, temperature
from excessmtl.diagnosis.inputs import Array, HeldOut
from excessmtl.diagnosis.levels import COUNTS, RATES, Level, level_of, weights_of
from excessmtl.diagnosis.skill import LEARNED

_OF_A_CLASS = 60
"""So many samples that are predicted to be of one class have a curve of their own; the other classes share one."""
_TIED = 0.2
"""Where so many samples share one confidence, the surest cannot be told from the rest."""


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

        best = temperature.fit(self.task)
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
        return level_of(weights_of(COUNTS * leads) @ readings)

    @property
    def graded(self) -> bool:
        """Whether the predictions say which of them are the surest."""
        counts = np.unique(self.margins, return_counts=True)[1]
        return bool(counts.max() < _TIED * self.task.samples)

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
