"""Which labels are most likely to be wrong."""

from dataclasses import dataclass

import numpy as np

from excessmtl.diagnosis.inputs import HeldOut
from excessmtl.diagnosis.residuals import bad_probability, distances
from excessmtl.diagnosis.temperature import calibrated, fit


@dataclass(frozen=True)
class Suspect:
    """One label."""

    sample: int
    """Its number among the samples that were passed in."""
    label: float
    predicted: float
    margin: float
    """Classes: by how much the label's log-probability is below that of the predicted class. Numbers: the residual
    over the standard deviation of the labels."""
    noise_probability: float
    """That the label is bad, given the task's noise rate."""


def suspects(task: HeldOut, rate: float) -> list[Suspect]:
    """All labels that differ from the prediction, the most suspicious first."""
    return _numbers(task, rate) if task.kind == "regression" else _classes(task, rate)


def _classes(task: HeldOut, rate: float) -> list[Suspect]:
    if not task.samples:
        return []
    predicted, labels = task.predictions.argmax(1), task.targets.astype(np.int64)
    rows = np.arange(task.samples)
    own = calibrated(task, fit(task, np.array([rate])).sharpness)[rows, labels]
    margins = task.predictions[rows, predicted] - task.predictions[rows, labels]
    random = rate / task.predictions.shape[1]
    bad = random / np.maximum(random + (1 - rate) * own, 1e-12)
    # Equal probabilities, which a saturated softmax has many of, are ordered by the margin.
    order = np.lexsort((-margins, own))
    return [
        Suspect(int(task.rows[i]), int(labels[i]), int(predicted[i]), float(margins[i]), float(bad[i]))
        for i in order
        if predicted[i] != labels[i]
    ]


def _numbers(task: HeldOut, rate: float) -> list[Suspect]:
    if task.samples < 2:
        return []
    squares, outputs = distances(task)
    if not outputs:
        return []
    bad = bad_probability(squares, outputs, rate)
    residual = (task.targets - task.predictions) / np.maximum(task.targets.std(0), 1e-30)
    worst = np.abs(residual).argmax(1)
    return [
        Suspect(
            int(task.rows[i]),
            float(task.targets[i, worst[i]]),
            float(task.predictions[i, worst[i]]),
            float(residual[i, worst[i]]),
            float(bad[i]),
        )
        for i in np.argsort(-squares, kind="stable")
    ]
