"""Scores of a network on a split, and the validation error of an epoch in one number."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from excessmtl.lab.data.base import Benchmark, Split
from excessmtl.lab.data.metrics import Meters
from excessmtl.lab.data.tasks import SHARE, Task, labelled
from excessmtl.lab.runs.summary import Row
from excessmtl.lab.training.batches import Batches, Inputs, prepared

Predict = Callable[[Inputs], Mapping[str, Tensor]]
_ENTRIES = 2**20
"""At most so many numbers of a target are looked at: the unit of a loss need not be exact."""
_SMALLEST = 1e-8


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


def constant_losses(tasks: Sequence[Task], train: Split) -> dict[str, float]:
    """Task -> the loss of the best constant prediction on these training labels.

    It makes losses of different kinds comparable: a network that has learned nothing has a relative loss of about 1.
    It is 1 where that loss is 0, and for kinds whose loss does not take outputs of shape [n, outputs] (maps: [n,
    outputs, h, w]).
    """
    return {task.name: _constant_loss(task, train.targets[task.name]) for task in tasks}


def validation_error(row: Row, tasks: Sequence[Task], units: Mapping[str, float]) -> float:
    """The mean over the tasks of what is wrong on validation data; NaN where a task has none.

    For a metric that is a share: one minus it, or it, by its direction. For a ratio that is better low (NMSE): it. Else
    the plain loss over its unit. Scores and not losses, as a robust loss makes a network that disagrees with wrong
    labels on purpose: its predictions are right and yet its plain loss on noisy labels is high.
    """
    return float(np.mean([_error(row, task, units[task.name]) for task in tasks]))


def _error(row: Row, task: Task, unit: float) -> float:
    metric = task.kind.primary
    score = row.get(f"validation/{task.name}/{metric.name}", math.nan)
    if metric.unit == SHARE:
        return 1 - score if metric.higher_is_better else score
    if metric.unit == "ratio" and not metric.higher_is_better:
        return score
    return row.get(f"validation/{task.name}/loss", math.nan) / unit


@torch.enable_grad()
def _constant_loss(task: Task, target: Tensor) -> float:
    present = labelled(target)
    known = (target if present is None else target[present]).cpu()
    rows = max(1, _ENTRIES // max(1, known[0].numel()))
    known = known[:: -(-len(known) // rows)]
    # A map has a constant for each channel.
    pixels = known.shape[-2:] if known.ndim > 2 else ()
    constant = torch.zeros((1, task.outputs, *(1 for _ in pixels)), requires_grad=True)
    optimiser = torch.optim.LBFGS([constant], max_iter=50, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        return task.kind.loss(constant.expand(len(known), task.outputs, *pixels), known)

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    try:
        optimiser.step(closure)  # type: ignore[no-untyped-call]
        lowest = float(loss().detach())
    except (RuntimeError, ValueError):  # a loss of one's own may want outputs of another shape
        return 1.0
    return lowest if math.isfinite(lowest) and lowest > _SMALLEST else 1.0
