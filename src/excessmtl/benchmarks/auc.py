"""The area under the ROC curve: how often a positive example is ranked above a negative one."""

import torch
from torch import Tensor
from torchmetrics import Metric

from excessmtl.benchmarks.tasks import Task


class _AreaUnderCurve(Metric):
    """Of one logit per example and a target of 0 or 1; NaN where all targets are the same."""

    full_state_update = False
    outputs: list[Tensor]
    targets: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("outputs", [], dist_reduce_fx="cat")
        self.add_state("targets", [], dist_reduce_fx="cat")

    def update(self, preds: Tensor, target: Tensor) -> None:
        self.outputs.append(preds.flatten().float())
        self.targets.append(target.flatten() > 0.5)

    def compute(self) -> Tensor:
        outputs, positive = (
            torch.cat(list(one)) if isinstance(one, list) else one for one in (self.outputs, self.targets)
        )
        values, place = torch.unique(outputs, return_inverse=True)
        # Equal outputs share the mean of their ranks.
        counts = torch.bincount(place, minlength=len(values)).double()
        ranks = (counts.cumsum(0) - (counts - 1) / 2)[place]
        positives = positive.sum().double()
        pairs = positives * (len(outputs) - positives)
        return ((ranks[positive].sum() - positives * (positives + 1) / 2) / pairs).float()


def roc_auc(task: Task, train: Tensor) -> Metric:
    """The area under the ROC curve over a whole split."""
    return _AreaUnderCurve()
