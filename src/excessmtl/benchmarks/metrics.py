"""Evaluation metrics of each kind of task, accumulated over a whole split on any device.

Nothing here reads from the device before `compute`: masks become weights of zero and every count has a fixed
number of cells, where boolean indexing or `bincount` would make the host wait at every batch.
"""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor
from torchmetrics import MeanSquaredError, Metric
from torchmetrics.classification import MulticlassAccuracy

from excessmtl.benchmarks.base import Kind, Task
from excessmtl.benchmarks.losses import IGNORED

_BINS_PER_DEGREE = 100


class _Accuracy(MulticlassAccuracy):
    def __init__(self, classes: int) -> None:
        super().__init__(num_classes=classes, average="micro", validate_args=False)

    def update(self, preds: Tensor, target: Tensor) -> None:
        super().update(preds, target.long())


class _SquaredError(MeanSquaredError):
    def update(self, preds: Tensor, target: Tensor) -> None:
        super().update(preds.float(), target.reshape_as(preds))


class _Confusion(Metric):
    """(mIoU, pixel accuracy) from one confusion matrix; a class neither true nor predicted is skipped."""

    full_state_update = False
    counts: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes
        # The last cell collects the ignored pixels.
        self.add_state("counts", torch.zeros(classes**2 + 1, dtype=torch.long), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        cell = target.long() * self.classes + preds.argmax(dim=1)
        cell = cell.where(target != IGNORED, self.classes**2).flatten()
        self.counts.scatter_add_(0, cell, torch.ones_like(cell))

    def compute(self) -> Tensor:
        matrix = self.counts[:-1].view(self.classes, self.classes).float()
        hit = matrix.diagonal()
        union = matrix.sum(0) + matrix.sum(1) - hit
        return torch.stack([(hit / union).nanmean(), hit.sum() / matrix.sum()])


class _DepthError(Metric):
    """(absolute, relative) error, each pixel of the split counting once."""

    full_state_update = False
    sums: Tensor
    pixels: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("sums", torch.zeros(2), dist_reduce_fx="sum")
        self.add_state("pixels", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        target = target.reshape_as(preds)
        valid = target != 0
        error = (preds.float() - target).abs().where(valid, 0)
        relative = error / target.abs().where(valid, 1)
        self.sums += torch.stack([error.sum(), relative.sum()])
        self.pixels += valid.sum()

    def compute(self) -> Tensor:
        return self.sums / self.pixels


class _Angle(Metric):
    """Mean and median angle in degrees, and the shares of pixels within 11.25, 22.5 and 30 degrees.

    The median is over all pixels of the split, read off a histogram with bins of 0.01 degree: exact to half
    a bin, where keeping every angle would take 290 MB for the test split of NYUv2.
    """

    full_state_update = False
    histogram: Tensor
    total: Tensor
    within: Tensor

    def __init__(self) -> None:
        super().__init__()
        bins = 180 * _BINS_PER_DEGREE + 1
        self.add_state("histogram", torch.zeros(bins, dtype=torch.long), dist_reduce_fx="sum")
        self.add_state("total", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("within", torch.zeros(3, dtype=torch.long), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        preds = preds.float()
        valid = (target != 0).any(dim=1)
        # The same angle as acos of the cosine, without its loss of half the digits near zero; and no
        # normalisation is needed.
        crossed = torch.linalg.vector_norm(torch.linalg.cross(preds, target, dim=1), dim=1)
        degrees = torch.rad2deg(torch.atan2(crossed, (preds * target).sum(dim=1)))
        self.total += degrees.where(valid, 0).sum()
        self.within += torch.stack([(valid & (degrees < bound)).sum() for bound in (11.25, 22.5, 30)])
        bins = (degrees * _BINS_PER_DEGREE).long().clamp(0, len(self.histogram) - 1)
        self.histogram.scatter_add_(0, bins.flatten(), valid.long().flatten())

    def compute(self) -> Tensor:
        pixels = self.histogram.sum()
        upto = self.histogram.cumsum(0)
        median = (torch.searchsorted(upto, (pixels + 1) // 2) + 0.5) / _BINS_PER_DEGREE
        return torch.cat([torch.stack([self.total / pixels, median]), self.within / pixels])


_METRICS: dict[Kind, tuple[Callable[[Task], Metric], tuple[str, ...]]] = {
    "classification": (lambda task: _Accuracy(task.outputs), ("accuracy",)),
    "regression": (lambda task: _SquaredError(), ("nmse",)),
    "segmentation": (lambda task: _Confusion(task.outputs), ("miou", "pixel_accuracy")),
    "depth": (lambda task: _DepthError(), ("abs_error", "rel_error")),
    "normals": (
        lambda task: _Angle(),
        ("angle_mean", "angle_median", "within_11.25", "within_22.5", "within_30"),
    ),
}
_PRIMARY: dict[Kind, tuple[str, bool]] = {
    "classification": ("accuracy", True),
    "regression": ("nmse", False),
    "segmentation": ("pixel_accuracy", True),
    "depth": ("rel_error", False),
    "normals": ("within_11.25", True),
}
_LOWER_IS_BETTER = {"nmse", "abs_error", "rel_error", "angle_mean", "angle_median"}


class MetricSet:
    """All metrics of one task: `update` with every batch of a split, then `compute`."""

    def __init__(self, metric: Metric, names: tuple[str, ...]) -> None:
        self.metric = metric
        self.names = names

    def to(self, device: torch.device | str) -> Self:
        """Accumulate on `device`, where the outputs and targets are."""
        self.metric = self.metric.to(device)
        return self

    def update(self, output: Tensor, target: Tensor) -> None:
        """Add one batch."""
        self.metric.update(output.detach(), target)

    def compute(self) -> dict[str, float]:
        """The metrics over all batches since the start or the last `reset`."""
        if not self.metric.update_called:
            raise ValueError(f"no batch was seen, so there is no {self.names[0]}: call update first")
        return dict(zip(self.names, self.metric.compute().reshape(-1).tolist(), strict=True))

    def reset(self) -> None:
        """Forget all batches."""
        self.metric.reset()


def metrics_of(task: Task) -> MetricSet:
    """An empty accumulator of everything that is reported for a task of this kind."""
    make, names = _METRICS[task.kind]
    return MetricSet(make(task), names)


def primary_of(kind: Kind) -> tuple[str, bool]:
    """The metric that stands for a task of this kind in tables, and whether higher is better."""
    return _PRIMARY[kind]


def higher_is_better(metric: str) -> bool:
    """Whether a larger value of the metric of this name is the better one."""
    return metric not in _LOWER_IS_BETTER
