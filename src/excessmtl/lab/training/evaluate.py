"""Scores of a network on a split, and the validation error of an epoch in one number."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from excessmtl.lab.data.base import Benchmark
from excessmtl.lab.data.metrics import Meters
from excessmtl.lab.data.tasks import SHARE, Task, labelled
from excessmtl.lab.runs.summary import Row
from excessmtl.lab.training.batches import Batches, Inputs, prepared

Predict = Callable[[Inputs], Mapping[str, Tensor]]


@torch.no_grad()
def scores(predict: Predict, benchmark: Benchmark, batches: Batches, limit: int | None = None) -> Row:
    """`task/loss` and `task/metric` for every task and each of its metrics, over the split (or `limit` batches)."""
    train = benchmark.train.targets
    meters = {task.name: Meters(task, train[task.name], batches.device) for task in benchmark.tasks}
    losses = {task.name: task.kind.loss for task in benchmark.tasks}
    totals = {task: torch.zeros((), device=batches.device) for task in meters}
    seen = dict.fromkeys(meters, 0)
    for batch in batches.in_order(limit):
        outputs = predict(prepared(batch, benchmark))
        for task, target in batch.targets.items():
            output, present = outputs[task], labelled(target) if task in batches.incomplete else None
            if present is not None:
                output, target = output[present], target[present]
            if len(target):
                meters[task].update(output, target)
                totals[task] += losses[task](output, target) * len(target)
                seen[task] += len(target)
    row: Row = {}
    for task, meter in meters.items():
        if not seen[task]:  # no label within the limit
            row |= dict.fromkeys((f"{task}/loss", *(f"{task}/{metric.name}" for metric in meter.metrics)), math.nan)
            continue
        row[f"{task}/loss"] = float(totals[task] / seen[task])
        row |= {f"{task}/{metric}": value for metric, value in meter.compute().items()}
    return row


def validation_error(row: Row, tasks: Sequence[Task]) -> float:
    """The mean over the tasks of what is wrong on validation data; NaN where a task has none.

    For a metric that is a share: one minus it, or it, by its direction. For a ratio that is better low (NMSE): it. Else
    the plain loss. Scores and not losses, as a robust loss makes a network that disagrees with wrong labels on purpose:
    its predictions are right and yet its plain loss on noisy labels is high.
    """
    return float(np.mean([_error(row, task) for task in tasks]))


def _error(row: Row, task: Task) -> float:
    metric = task.kind.primary
    score = row.get(f"validation/{task.name}/{metric.name}", math.nan)
    if metric.unit == SHARE:
        return 1 - score if metric.higher_is_better else score
    if metric.unit == "ratio" and not metric.higher_is_better:
        return score
    return row.get(f"validation/{task.name}/loss", math.nan)
