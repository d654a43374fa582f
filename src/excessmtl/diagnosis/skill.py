"""How much a network has learned of a task, whatever the noise."""

import math
from dataclasses import dataclass

import numpy as np

from excessmtl.diagnosis.inputs import HeldOut

_NOTHING = 0.1
"""Predictions with less information than this say nothing."""


@dataclass(frozen=True)
class Skill:
    """What the predictions say about the labels."""

    share: float
    """Of the errors, or of the variance, of the best constant prediction that is gone."""
    information: float
    """How well the predictions order the labels: 0 not at all, 1 without a mistake."""
    error: float
    """Standard error of the information."""

    @property
    def is_nothing(self) -> bool:
        """Whether the predictions are known to say next to nothing about the labels."""
        return self.information + 2 * self.error < _NOTHING


def skill_of(task: HeldOut) -> Skill | None:
    """None where the labels are all alike, or there are none."""
    if task.samples < 2:
        return None
    return _of_numbers(task) if task.kind == "regression" else _of_classes(task)


def _of_classes(task: HeldOut) -> Skill | None:
    """The information is Somers' d: the label's place in the prediction against that of labels from other samples."""
    labels = task.targets.astype(np.int64)
    samples, classes = task.predictions.shape
    shares = np.bincount(labels, minlength=classes) / samples
    if shares.max() == 1:
        return None
    errors = float((task.predictions.argmax(1) != labels).mean())
    order = task.predictions.argsort(axis=1).argsort(axis=1) / (classes - 1)  # 1: the predicted class
    own = order[np.arange(samples), labels]
    others = order @ shares
    gain = own - others
    # Labels of other samples are often the same class: of a perfect prediction the gain is 1 - the mean of the others.
    best = max(float((1 - others).mean()), 1e-9)
    return Skill(
        1 - errors / (1 - float(shares.max())),
        float(gain.mean()) / best,
        float(gain.std()) / best / math.sqrt(samples),
    )


def _of_numbers(task: HeldOut) -> Skill | None:
    """The information is the correlation, averaged over the outputs."""
    spread = task.targets.std(0)
    if not (spread > 0).any():
        return None
    targets, predictions = task.targets[:, spread > 0], task.predictions[:, spread > 0]
    share = 1 - float((np.square(targets - predictions).mean(0) / targets.var(0)).mean())
    width = np.maximum(predictions.std(0), 1e-30)
    products = (targets - targets.mean(0)) / targets.std(0) * (predictions - predictions.mean(0)) / width
    return Skill(share, float(products.mean()), 1 / math.sqrt(task.samples))
