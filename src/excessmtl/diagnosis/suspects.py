"""Which labels are most likely to be wrong."""

from dataclasses import dataclass

import numpy as np

from excessmtl.diagnosis.classes import Readings
from excessmtl.diagnosis.inputs import HeldOut
from excessmtl.diagnosis.residuals import bad_probability, distances


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
    """All labels, the most suspicious first. `rate`: the noise rate of a regression task."""
    if task.samples < 2:
        return []
    return _numbers(task, rate) if task.kind == "regression" else _classes(task)


def _classes(task: HeldOut) -> list[Suspect]:
    readings = Readings(task)
    predicted, labels = task.predictions.argmax(1), task.targets.astype(np.int64)
    rows, bad = np.arange(task.samples), readings.bad
    margins = task.predictions[rows, predicted] - task.predictions[rows, labels]
    # Where no noise was found all probabilities are zero; the labels are still more or less likely.
    order = np.lexsort((-margins, readings.own, -bad))
    return [
        Suspect(int(task.rows[i]), int(labels[i]), int(predicted[i]), float(margins[i]), float(bad[i])) for i in order
    ]


def _numbers(task: HeldOut, rate: float) -> list[Suspect]:
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
