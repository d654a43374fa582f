"""Label noise of a classification task: three readings, weighed by how well each explains the disagreements."""

import math
from dataclasses import replace
from functools import cached_property

import numpy as np

from excessmtl.diagnosis import confidence_curve, confusions, temperature
from excessmtl.diagnosis.inputs import Array, HeldOut
from excessmtl.diagnosis.levels import RATES, Level, level_of, of_copies, weights_of
from excessmtl.diagnosis.skill import LEARNED

_OF_A_CLASS = 60
"""So many samples that are predicted to be of one class have a curve of their own."""
_DRAWS = 4000
_TIED, _COPIED = 0.2, 0.9
"""Where so many samples share one confidence, the surest cannot be told from the rest; where nearly all do, each
prediction is the label of another sample."""


class Fit:
    """The readings of one task.

    All predict in how many samples of a confidence label and prediction differ. They are averaged with the weights of
    Schwarz's criterion. Calibrated probabilities explain hard tasks and symmetric noise; one curve of the confidence
    explains pair flips; a curve for each predicted class explains labels of which only some classes are bad.
    """

    def __init__(self, task: HeldOut) -> None:
        self.task = task
        self.classes = task.predictions.shape[1]
        self.margins = confidence_curve.margins_of(task.predictions)
        self.calibration = temperature.fit(task)

    def level(self) -> Level:
        """The noise rate."""
        task, classes = self.task, self.classes
        predicted = task.predictions.argmax(1)
        differs = predicted != task.targets
        common = np.bincount(predicted, minlength=classes) >= _OF_A_CLASS
        group = np.where(common[predicted], predicted, classes)
        every = [np.flatnonzero(group == number) for number in np.unique(group)]
        bins = [confidence_curve.Bins(self.margins[rows], differs[rows]) for rows in every]

        def explained(share: Array) -> float:
            return sum(
                float(own.likelihood(own.sums(share[rows]) / own.total)) for own, rows in zip(bins, every, strict=True)
            )

        curve, fitted = confidence_curve.fit(confidence_curve.Bins(self.margins, differs), classes)
        best, penalty = self.calibration, math.log(task.samples) / 2
        sure = temperature.calibrated(task, best.sharpness).max(1)
        differing = 1 - best.rate / classes - (1 - best.rate) * sure
        readings = [
            (weights_of(best.likelihood), explained(differing) - temperature.PARAMETERS * penalty),
            (weights_of(curve), explained(fitted) - confidence_curve.PARAMETERS * penalty),
        ]
        if len(every) > 1:
            fits = [confidence_curve.fit(own, classes) for own in bins]
            by_class = np.empty(task.samples)
            for rows, (_, own) in zip(every, fits, strict=True):
                by_class[rows] = own
            sizes = np.array([len(rows) for rows in every]) / task.samples
            weights = _sum([weights_of(own) for own, _ in fits], sizes)
            readings.append((weights, explained(by_class) - confidence_curve.PARAMETERS * len(every) * penalty))
        shares = weights_of(np.array([lead for _, lead in readings]))
        found = level_of(shares @ np.stack([weights for weights, _ in readings]))
        each = [level_of(weights) for weights, _ in readings]
        # The probabilities must see the noise as well, or else both curves, cautiously: they are much alike.
        witness = max(each[0].low, min(own.least for own in each[1:]))
        found = replace(found, least=min(found.least, witness), high=max(found.high, *(own.rate for own in each)))
        return of_copies(found) if self._ties > _COPIED else found

    @property
    def graded(self) -> bool:
        """Whether the predictions say which of them are the surest."""
        return self._ties < _TIED

    @cached_property
    def _ties(self) -> float:
        """The largest share of samples with one and the same confidence."""
        counts = np.unique(np.round(self.margins, 9), return_counts=True)[1]
        return float(counts.max() / self.task.samples)

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


def _sum(weights: list[Array], sizes: Array) -> Array:
    """Over `RATES`: of the mean of independent rates, each with its weights over `RATES` and its size."""
    rng = np.random.default_rng(0)
    drawn = np.stack([rng.choice(RATES, _DRAWS, p=own) for own in weights]).T @ sizes
    counts = np.bincount(np.rint(drawn * (len(RATES) - 1)).astype(np.int64), minlength=len(RATES))
    found: Array = counts / _DRAWS
    return found
