"""Label noise of a classification task: two readings, weighed by how well each explains the disagreements."""

import math

import numpy as np

from excessmtl.diagnosis import confidence_curve, temperature
from excessmtl.diagnosis.inputs import HeldOut
from excessmtl.diagnosis.levels import Level, level_of, weights_of


def noise_level(task: HeldOut) -> Level:
    """The noise rate of a task.

    Both readings predict in how many samples of a confidence label and prediction differ. They are averaged with
    Akaike's weights of these predictions: where calibrated probabilities explain the disagreements (hard tasks,
    symmetric noise), they count; where they do not (pair flips), the curve does.
    """
    classes = task.predictions.shape[1]
    bins = confidence_curve.Bins(task)
    curve = confidence_curve.likelihood(bins, classes)
    fitted = temperature.fit(task)
    sure = temperature.calibrated(task, fitted.sharpness).max(1)
    differs = bins.sums(1 - fitted.rate / classes - (1 - fitted.rate) * sure) / bins.total
    lead = (float(curve.max()) - confidence_curve.PARAMETERS) - (
        float(bins.likelihood(differs)) - temperature.PARAMETERS
    )
    share = 1 / (1 + math.exp(min(max(lead, -50.0), 50.0)))
    return level_of(share * weights_of(fitted.likelihood) + (1 - share) * weights_of(curve))


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
