"""The validation loss of a run in one number, and the epoch that it chooses."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from excessmtl.benchmarks.base import Split
from excessmtl.benchmarks.tasks import Task, labelled
from excessmtl.training.run_folder import Row

_ENTRIES = 2**20
"""At most so many numbers of a target are looked at: the unit of a loss need not be exact."""
_SMALLEST = 1e-8


def constant_losses(tasks: Sequence[Task], train: Split) -> dict[str, float]:
    """Task -> the loss of the best constant prediction on these training labels.

    It makes losses of different kinds comparable: a network that has learned nothing has a relative loss of about 1.
    It is 1 where that loss is 0, and for kinds whose loss does not take outputs of shape [n, outputs] (maps: [n,
    outputs, h, w]).
    """
    return {task.name: _constant_loss(task, train.targets[task.name]) for task in tasks}


def validation_loss(row: Row, units: Mapping[str, float]) -> float:
    """The mean over the tasks of the plain validation loss over its unit; NaN where a task has none."""
    losses = [row.get(f"validation/{task}/loss", math.nan) / unit for task, unit in units.items()]
    return float(np.mean(losses))


def chosen_epoch(rows: Sequence[Row], units: Mapping[str, float]) -> int | None:
    """The first epoch of the lowest validation loss; None where no epoch has one."""
    losses = [validation_loss(row, units) for row in rows]
    finite = [epoch for epoch, loss in enumerate(losses) if math.isfinite(loss)]
    return min(finite, key=lambda epoch: losses[epoch]) if finite else None


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
        found = float(loss().detach())
    except (RuntimeError, ValueError):  # a loss of one's own may want outputs of another shape
        return 1.0
    return found if math.isfinite(found) and found > _SMALLEST else 1.0
