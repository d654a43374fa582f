"""Evaluation metrics of each kind of task, accumulated over a whole split on any device.

Nothing here reads from the device before `compute`: masks become weights of zero and every count has a fixed
number of cells, where boolean indexing or `bincount` would make the host wait at every batch.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torchmetrics import Metric

from excessmtl.benchmarks.losses import IGNORED
from excessmtl.benchmarks.tasks import Measure, Task, labelled

__all__ = [
    "accuracy",
    "angle",
    "average",
    "binary_accuracy",
    "confusion",
    "depth_error",
    "error_over",
    "nmse",
]

_BINS_PER_DEGREE = 100


class _Average(Metric):
    """The mean over all examples of what `values` gives for each."""

    full_state_update = False
    total: Tensor
    examples: Tensor

    def __init__(self, values: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.values = values
        self.add_state("total", torch.zeros((), dtype=torch.float32), dist_reduce_fx="sum")
        self.add_state("examples", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        self.total += self.values(preds, target).float().sum()
        self.examples += len(target)

    def compute(self) -> Tensor:
        return self.total / self.examples


class _NormalisedError(Metric):
    """Squared error of each output over its variance, then the mean over the outputs."""

    full_state_update = False
    total: Tensor
    examples: Tensor
    variance: Tensor

    def __init__(self, variance: Tensor) -> None:
        super().__init__()
        self.register_buffer("variance", variance)
        self.add_state("total", torch.zeros_like(variance), dist_reduce_fx="sum")
        self.add_state("examples", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        self.total += (preds.float() - target.reshape_as(preds)).square().flatten(1).sum(0)
        self.examples += len(target)

    def compute(self) -> Tensor:
        return (self.total / self.examples / self.variance).mean()


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


def average(values: Callable[[Tensor, Tensor], Tensor]) -> Measure:
    """The mean over all examples of `values(output, target)`, which gives one number for each."""
    return lambda task, train: _Average(values)


def accuracy(task: Task, train: Tensor) -> Metric:
    """Share of examples whose class has the highest score."""
    return _Average(_is_hit)


def binary_accuracy(task: Task, train: Tensor) -> Metric:
    """Share of examples whose logit has the right sign."""
    return _Average(_has_right_sign)


def nmse(task: Task, train: Tensor) -> Metric:
    """Squared error over the variance of the clean training target; a constant target is not normalised."""
    present = labelled(train)
    known = train if present is None else train[present]
    variance = known.double().reshape(len(known), -1).var(0, correction=0)
    return _NormalisedError(variance.where(variance > 0, 1).float())


def error_over(variance: float) -> Measure:
    """Squared error over a variance that several tasks share."""
    return lambda task, train: _NormalisedError(torch.full((task.outputs,), variance))


def confusion(task: Task, train: Tensor) -> Metric:
    """Mean intersection over union, and the share of labelled pixels whose class is right."""
    return _Confusion(task.outputs)


def depth_error(task: Task, train: Tensor) -> Metric:
    """Absolute and relative error over the pixels whose depth is known."""
    return _DepthError()


def angle(task: Task, train: Tensor) -> Metric:
    """Mean and median angle in degrees, and the shares within 11.25, 22.5 and 30 degrees."""
    return _Angle()


def _is_hit(output: Tensor, target: Tensor) -> Tensor:
    return output.argmax(1) == target.long()


def _has_right_sign(output: Tensor, target: Tensor) -> Tensor:
    return (output > 0) == (target.reshape_as(output) > 0.5)
