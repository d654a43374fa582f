"""Scores of a network on a split."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from excessmtl.benchmarks.base import Benchmark
from excessmtl.benchmarks.losses import loss_of
from excessmtl.benchmarks.metrics import metrics_of
from excessmtl.training.batches import Batches, Inputs, prepared
from excessmtl.training.run_folder import Row

Predict = Callable[[Inputs], Mapping[str, Tensor]]


@torch.no_grad()
def scores(predict: Predict, benchmark: Benchmark, batches: Batches, limit: int | None = None) -> Row:
    """`task/loss` and `task/metric` for every task and each of its metrics, over the split (or `limit` batches)."""
    meters = {task.name: metrics_of(task).to(batches.device) for task in benchmark.tasks}
    losses = {task.name: loss_of(task.kind) for task in benchmark.tasks}
    totals = {task: torch.zeros((), device=batches.device) for task in meters}
    seen = dict.fromkeys(meters, 0)
    for batch in batches.in_order(limit):
        outputs = predict(prepared(batch, benchmark))
        for task, target in batch.targets.items():
            meters[task].update(outputs[task], target)
            totals[task] += losses[task](outputs[task], target) * len(target)
            seen[task] += len(target)
    row: Row = {}
    for task, meter in meters.items():
        row[f"{task}/loss"] = float(totals[task] / seen[task])
        row |= {f"{task}/{metric}": value for metric, value in meter.compute().items()}
    return row
