"""Which labels are most likely to be wrong."""

from dataclasses import dataclass

import numpy as np

from excessmtl.diagnosis import temperature
from excessmtl.diagnosis.confusions import wrong_probability
from excessmtl.diagnosis.inputs import HeldOut
from excessmtl.diagnosis.residuals import Fit


@dataclass(frozen=True)
class Suspect:
    """One label."""

    sample: int
    """Its number among the samples that were passed in."""
    label: float | str
    """A class by its number, or as the table has it where the samples are rows of one."""
    predicted: float | str
    margin: float
    """Classes: by how much the label's log-probability is below that of the predicted class. Numbers: the residual
    over the standard deviation of the labels."""
    noise_probability: float
    """That the label is bad, given the task's noise rate."""
    row: int | None = None
    """Where the samples are rows of a table: which one, `pandas.read_csv(file).iloc[row]`."""
    id: str | None = None
    """Where the rows of the table have names: that of this one."""


def suspects(task: HeldOut, rate: float) -> list[Suspect]:
    """All labels, the most suspicious first. `rate`: the noise rate of the task."""
    if task.samples < 2:
        return []
    return _numbers(task, rate) if task.kind == "regression" else _classes(task, rate)


def _classes(task: HeldOut, rate: float) -> list[Suspect]:
    probabilities = temperature.calibrated(task)
    classes = task.predictions.shape[1]
    predicted, labels = task.predictions.argmax(1), task.targets.astype(np.int64)
    rows = np.arange(task.samples)
    bad = wrong_probability(task, probabilities, rate * (1 - 1 / classes))
    margins = task.predictions[rows, predicted] - task.predictions[rows, labels]
    order = np.lexsort((-margins, -bad))
    return [
        Suspect(int(task.rows[i]), int(labels[i]), int(predicted[i]), float(margins[i]), float(bad[i])) for i in order
    ]


def _numbers(task: HeldOut, rate: float) -> list[Suspect]:
    bad = Fit(task).bad_probability(rate) if rate else np.zeros(task.samples)
    width = task.targets.std(0)
    residual = (task.targets - task.predictions) / np.where(width > 0, width, np.inf)
    worst = np.abs(residual).argmax(1)
    return [
        Suspect(
            int(task.rows[i]),
            float(task.targets[i, worst[i]]),
            float(task.predictions[i, worst[i]]),
            float(residual[i, worst[i]]),
            float(bad[i]),
        )
        for i in np.lexsort((-np.square(residual).sum(1), -np.round(bad, 3)))
    ]
