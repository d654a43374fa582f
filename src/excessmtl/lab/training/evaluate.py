"""Scores of a network on a split."""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from excessmtl.lab.data.base import Benchmark
from excessmtl.lab.data.metrics import Meters
from excessmtl.lab.data.tasks import labelled
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
