"""Label noise of a classification task: two readings, weighed by how well each explains the disagreements."""

import math

import numpy as np

from excessmtl.diagnosis import confidence_curve, temperature
from excessmtl.diagnosis.inputs import Array, HeldOut
from excessmtl.diagnosis.levels import Level, level_of, weights_of


class Readings:
    """Both readings of a task.

    Both predict in how many samples of a confidence label and prediction differ. They are averaged with Akaike's
    weights of these predictions: where calibrated probabilities explain the disagreements (hard tasks, symmetric
    noise), they count; where they do not (pair flips), the curve does.
    """

    def __init__(self, task: HeldOut) -> None:
        self.task, self.classes = task, task.predictions.shape[1]
        self.bins = confidence_curve.Bins(task)
        self.curve = confidence_curve.fit(self.bins, self.classes)
        self.fitted = temperature.fit(task)
        self.probabilities = temperature.calibrated(task, self.fitted.sharpness)
        rate = self.fitted.rate
        differs = 1 - rate / self.classes - (1 - rate) * self.probabilities.max(1)
        explained = self.bins.likelihood(self.bins.sums(differs) / self.bins.total)
        lead = float(self.curve.likelihood.max() - explained) - confidence_curve.PARAMETERS + temperature.PARAMETERS
        self.share = 1 / (1 + math.exp(min(max(lead, -50.0), 50.0)))
        """Weight of the calibrated probabilities."""

    @property
    def level(self) -> Level:
        """The noise rate."""
        likely = weights_of(self.fitted.likelihood)
        return level_of(self.share * likely + (1 - self.share) * weights_of(self.curve.likelihood))

    @property
    def own(self) -> Array:
        """[n] the calibrated probability of each label."""
        found: Array = self.probabilities[np.arange(self.task.samples), self.task.targets.astype(np.int64)]
        return found

    @property
    def bad(self) -> Array:
        """[n] the probability that a label is bad."""
        random = self.fitted.rate / self.classes
        likely = random / np.maximum(random + (1 - self.fitted.rate) * self.own, 1e-12)
        differs = self.task.predictions.argmax(1) != self.task.targets
        wrong = self.curve.rate * (1 - 1 / self.classes)
        error = self.curve.error(self.bins, self.classes)
        by_confidence = differs * wrong / np.maximum(wrong + (1 - self.curve.rate) * error, 1e-12)
        found: Array = self.share * likely + (1 - self.share) * by_confidence
        return found


def noise_level(task: HeldOut) -> Level:
    """The noise rate of a task."""
    return Readings(task).level


def floor(task: HeldOut, rate: float) -> float:
    """The cross-entropy, in nats, of a network that knows every true class and this rate of bad labels."""
    classes = task.predictions.shape[1]
    wrong: float = rate * (1 - 1 / classes)
    if wrong <= 0:
        return 0.0
    either = -wrong * math.log(wrong) - (1 - wrong) * math.log1p(-wrong)
    return either + wrong * _spread(task)


def _spread(task: HeldOut) -> float:
    """The entropy of a wrong label given the prediction: 0 if it is always the same class, log(K - 1) if any.

    From the disagreements of the more confident half, where few predictions are wrong.
    """
    classes = task.predictions.shape[1]
    if classes == 2:
        return 0.0
    ordered = np.sort(task.predictions, axis=1)
    margin = ordered[:, -1] - ordered[:, -2]
    predicted, labels = task.predictions.argmax(1), task.targets.astype(np.int64)
    chosen = (margin >= np.median(margin)) & (predicted != labels)
    counts = np.zeros((classes, classes))
    np.add.at(counts, (predicted[chosen], labels[chosen]), 1)
    totals = counts.sum(1)
    if totals.sum() < 2 * classes:  # too few to tell
        return math.log(classes - 1)
    shares = counts / np.maximum(totals, 1)[:, None]
    entropy = -(shares * np.log(np.maximum(shares, 1e-12))).sum(1)
    # Miller and Madow's correction: few counts look more alike than they are.
    entropy = entropy + (np.count_nonzero(counts, axis=1) - 1).clip(0) / (2 * np.maximum(totals, 1))
    return min(float((entropy * totals).sum() / totals.sum()), math.log(classes - 1))
