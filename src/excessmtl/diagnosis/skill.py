"""How much a network has learned of a task, whatever the noise."""

import math
from dataclasses import dataclass

import numpy as np

from excessmtl.diagnosis.inputs import HeldOut

LEARNED = 0.2
"""The least skill of a task that has been learned."""
_NOTHING = 0.1
"""Predictions with less information than this say nothing."""


@dataclass(frozen=True)
class Skill:
    """What the predictions say about the labels."""

    share: float
    """Of the errors, or of the variance, of the best constant prediction that is gone. Two classes: 2 AUROC - 1, since
    no prediction of a rare class may exceed one half."""
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
    if task.kind == "regression":
        return _of_numbers(task)
    return _of_two_classes(task) if task.predictions.shape[1] == 2 else _of_classes(task)


def _of_two_classes(task: HeldOut) -> Skill | None:
    """From the area under the ROC curve: how often a positive label has the higher score; ties count as one half."""
    positives = int(task.targets.sum())
    negatives = task.samples - positives
    if not positives or not negatives:
        return None
    _, place, counts = np.unique(
        task.predictions[:, 1] - task.predictions[:, 0], return_inverse=True, return_counts=True
    )
    ranks = counts.cumsum() - (counts - 1) / 2
    area = (ranks[place] @ task.targets - positives * (positives + 1) / 2) / (positives * negatives)
    error = 2 * math.sqrt((task.samples + 1) / (12 * positives * negatives))
    return Skill(2 * float(area) - 1, 2 * float(area) - 1, error)


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
