"""What stands between the weights that a rule decides and the multipliers applied: `scale`, and floors of `protect`.

Nothing here knows a rule or its state, and nothing reads a device value.
"""

from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from excessmtl.methods.base import constant
from excessmtl.tensors import index_of

Scale = Literal["sum", "mean"] | float
Floors = tuple[float, ...]
"""In task order: the least share of the total weight; 0 for a task without a floor."""


def factor(scale: Scale, total: float | None, tasks: int) -> float:
    """What `scale` multiplies the weights by.

    `total`: what the weights sum to as published; None where that is part of what the method decides, and is kept.
    """
    if scale not in ("sum", "mean"):
        return float(scale)
    if total is None:
        return 1.0
    return (tasks if scale == "sum" else 1) / total


@lru_cache(maxsize=256)
def inverts(factor: float) -> bool:
    """Whether 1 / factor, rounded to fp32, times the factor is exactly 1."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return bool(np.float32(1 / factor) * np.float32(factor) == 1)


def with_floors(weights: Tensor, floors: Floors) -> Tensor:
    """The weights with their total kept and no protected share below its floor; all others shrink by one factor.

    With p the shares and f the floors: max(f_i, c p_i) for protected tasks, c p_i for the others, and the one c <= 1
    for which they sum to 1. A negative weight without a floor shrinks with the others. Where no share is below its
    floor, or the total is not positive so that there are no shares, the weights are returned as they are.
    """
    places = tuple(task for task, floor in enumerate(floors) if floor > 0)
    protected, wanted = index_of(places, weights.device), constant([floors[task] for task in places], weights)
    total = weights.sum()
    shares = weights / torch.where(total > 0, total, 1)
    mine = shares[protected]
    # If the k tasks that are most in need are raised, what is left to the others gives c_k. Raising one more lowers it
    # as long as that one is below its floor, and never again after that: the smallest c_k is the one.
    order = (mine / wanted).argsort()
    left, others = 1 - wanted[order].cumsum(0), 1 - mine[order].cumsum(0)
    shrink = torch.where(others > 0, left / torch.where(others > 0, others, 1), 1).min().clamp(max=1)
    raised = (shares * shrink).index_copy(0, protected, torch.maximum(wanted, mine * shrink))
    return torch.where((total > 0) & (mine < wanted).any(), raised * total, weights)
