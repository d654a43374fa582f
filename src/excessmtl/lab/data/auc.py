"""The area under the ROC curve: how often a positive example is ranked above a negative one."""

from typing import Self

import torch
from torch import Tensor

from excessmtl.lab.data.tasks import Accumulator, Task


class _AreaUnderCurve:
    """Of one logit per example and a target of 0 or 1; NaN where all targets are the same."""

    def __init__(self) -> None:
        self.outputs: list[Tensor] = []
        self.targets: list[Tensor] = []

    def to(self, device: torch.device) -> Self:
        self.outputs, self.targets = ([one.to(device) for one in kept] for kept in (self.outputs, self.targets))
        return self

    def update(self, output: Tensor, target: Tensor) -> None:
        self.outputs.append(output.flatten().float())
        self.targets.append(target.flatten() > 0.5)

    def compute(self) -> Tensor:
        outputs, positive = torch.cat(self.outputs), torch.cat(self.targets)
        values, place = torch.unique(outputs, return_inverse=True)
        # Equal outputs share the mean of their ranks.
        counts = torch.bincount(place, minlength=len(values)).double()
        ranks = (counts.cumsum(0) - (counts - 1) / 2)[place]
        positives = positive.sum().double()
        pairs = positives * (len(outputs) - positives)
        return ((ranks[positive].sum() - positives * (positives + 1) / 2) / pairs).float()


def roc_auc(task: Task, train: Tensor) -> Accumulator:
    """The area under the ROC curve over a whole split."""
    return _AreaUnderCurve()
