"""Label noise of a classification task: two readings, weighed by how well each explains the disagreements."""

import math
from collections.abc import Sequence

from excessmtl.diagnosis import confidence_curve, confusions, temperature
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
    curve = confidence_curve.fit(bins, classes)
    fitted = temperature.fit(task)
    differs = 1 - fitted.rate / classes - (1 - fitted.rate) * temperature.calibrated(task, fitted.sharpness).max(1)
    explained = bins.likelihood(bins.sums(differs) / bins.total)
    lead = float(curve.max() - explained) - confidence_curve.PARAMETERS + temperature.PARAMETERS
    share = 1 / (1 + math.exp(min(max(lead, -50.0), 50.0)))  # of the calibrated probabilities
    return level_of(share * weights_of(fitted.likelihood) + (1 - share) * weights_of(curve))


def floors(task: HeldOut, rates: Sequence[float]) -> list[float]:
    """The cross-entropy, in nats, of a network that knows every true class and the rate of bad labels, for each."""
    classes, spread = task.predictions.shape[1], confusions.spread(task)
    return [_floor(rate * (1 - 1 / classes), spread) for rate in rates]


def _floor(wrong: float, spread: float) -> float:
    if wrong <= 0:
        return 0.0
    return wrong * (spread - math.log(wrong)) - (1 - wrong) * math.log1p(-wrong)
