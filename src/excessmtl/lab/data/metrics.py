"""Evaluation metrics of each kind of task, and all metrics of a task, accumulated over a whole split on any device.

Nothing here reads from the device before `compute`: masks become weights of zero and every count has a fixed
number of cells, where boolean indexing or `bincount` would make the host wait at every batch.
"""

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from excessmtl.lab.data.tasks import IGNORED, Accumulator, Measure, Task, known

_BINS_PER_DEGREE = 100


class _Sums:
    """What `count` gives for each batch, added up over a split; `finish` turns the sums into the metric."""

    def __init__(self, count: Callable[[Tensor, Tensor], Sequence[Any]], finish: Callable[..., Tensor]) -> None:
        self.count, self.finish = count, finish
        self.sums: Sequence[Any] = ()

    def to(self, device: torch.device) -> Self:
        return self  # the sums are where the batches are

    def update(self, output: Tensor, target: Tensor) -> None:
        parts = self.count(output, target)
        self.sums = [total + part for total, part in zip(self.sums, parts, strict=True)] if self.sums else parts

    def compute(self) -> Tensor:
        return self.finish(*self.sums)


def average(values: Callable[[Tensor, Tensor], Tensor]) -> Measure:
    """The mean over all examples of `values(output, target)`, which gives one number for each."""

    def count(output: Tensor, target: Tensor) -> tuple[Tensor, int]:
        return values(output, target).float().sum(), len(target)

    return lambda task, train: _Sums(count, torch.div)


accuracy = average(lambda output, target: output.argmax(1) == target.long())
"""Share of examples whose class has the highest score."""
binary_accuracy = average(lambda output, target: (output > 0) == (target.reshape_as(output) > 0.5))
"""Share of examples whose logit has the right sign."""


def roc_auc(task: Task, train: Tensor) -> Accumulator:
    """How often a positive example is ranked above a negative one: the area under the ROC curve of a logit.

    NaN where all targets are the same, or where a logit is not a number.
    """

    def count(output: Tensor, target: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        return [output.flatten().float()], [(target.flatten() > 0.5).long()]

    def finish(outputs: list[Tensor], targets: list[Tensor]) -> Tensor:
        # Imported where it is used: it takes a second.
        from torchmetrics.functional.classification import binary_auroc

        logits, labels = torch.cat(outputs), torch.cat(targets)
        if logits.isnan().any() or labels.min() == labels.max():
            return logits.new_tensor(torch.nan)
        # Ranks, because torchmetrics would take the sigmoid of logits, which is 1 for all large ones.
        _, ranks = torch.unique(logits, return_inverse=True)
        return binary_auroc(ranks / len(ranks), labels, validate_args=False)

    return _Sums(count, finish)


def _normalised_error(variance: Tensor) -> Accumulator:
    """Squared error of each output over its variance, then the mean over the outputs."""

    def count(output: Tensor, target: Tensor) -> tuple[Tensor, int]:
        return (output.float() - target.reshape_as(output)).square().flatten(1).sum(0), len(target)

    def finish(total: Tensor, examples: int) -> Tensor:
        return (total / examples / variance.to(total.device)).mean()

    return _Sums(count, finish)


def nmse(task: Task, train: Tensor) -> Accumulator:
    """Squared error over the variance of the clean training target; a constant target is not normalised."""
    present = known(train).double()
    variance = present.reshape(len(present), -1).var(0, correction=0)
    return _normalised_error(variance.where(variance > 0, 1).float())


def error_over(variance: float) -> Measure:
    """Squared error over a variance that several tasks share."""
    return lambda task, train: _normalised_error(torch.full((task.outputs,), variance))


def confusion(task: Task, train: Tensor) -> Accumulator:
    """(mIoU, share of labelled pixels whose class is right); a class neither true nor predicted is skipped."""
    classes = task.outputs

    def count(output: Tensor, target: Tensor) -> tuple[Tensor]:
        cell = target.long() * classes + output.argmax(dim=1)
        # The last cell collects the ignored pixels.
        cell = cell.where(target != IGNORED, classes**2)
        return (_histogram(cell, torch.ones_like(cell), classes**2 + 1),)

    def finish(counts: Tensor) -> Tensor:
        matrix = counts[:-1].view(classes, classes).float()
        hit = matrix.diagonal()
        union = matrix.sum(0) + matrix.sum(1) - hit
        return torch.stack([(hit / union).nanmean(), hit.sum() / matrix.sum()])

    return _Sums(count, finish)


def depth_error(task: Task, train: Tensor) -> Accumulator:
    """(absolute, relative) error over the pixels whose depth is known, each pixel of the split counting once."""

    def count(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        target = target.reshape_as(output)
        valid = target != 0
        error = (output.float() - target).abs().where(valid, 0)
        relative = error / target.abs().where(valid, 1)
        return torch.stack([error.sum(), relative.sum()]), valid.sum()

    return _Sums(count, torch.div)


def angle(task: Task, train: Tensor) -> Accumulator:
    """Mean and median angle in degrees, and the shares of pixels within 11.25, 22.5 and 30 degrees.

    The median is over all pixels of the split, read off a histogram with bins of 0.01 degree: exact to half
    a bin, where keeping every angle would take 290 MB for the test split of NYUv2.
    """
    bins = 180 * _BINS_PER_DEGREE + 1

    def count(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        output = output.float()
        valid = (target != 0).any(dim=1)
        # The same angle as acos of the cosine, without its loss of half the digits near zero; and no
        # normalisation is needed.
        crossed = torch.linalg.vector_norm(torch.linalg.cross(output, target, dim=1), dim=1)
        degrees = torch.rad2deg(torch.atan2(crossed, (output * target).sum(dim=1)))
        within = torch.stack([(valid & (degrees < bound)).sum() for bound in (11.25, 22.5, 30)])
        cell = (degrees * _BINS_PER_DEGREE).long().clamp(0, bins - 1)
        return _histogram(cell, valid.long(), bins), degrees.where(valid, 0).sum(), within

    def finish(histogram: Tensor, total: Tensor, within: Tensor) -> Tensor:
        pixels = histogram.sum()
        median = (torch.searchsorted(histogram.cumsum(0), (pixels + 1) // 2) + 0.5) / _BINS_PER_DEGREE
        return torch.cat([torch.stack([total / pixels, median]), within / pixels])

    return _Sums(count, finish)


def _histogram(cell: Tensor, weight: Tensor, cells: int) -> Tensor:
    return weight.new_zeros(cells).scatter_add_(0, cell.flatten(), weight.flatten())


class Meters:
    """All metrics of one task: `update` with every batch of a split, then `compute`.

    `train`: its clean training target, by which errors are normalised.
    """

    def __init__(self, task: Task, train: Tensor, device: torch.device) -> None:
        self.metrics = task.kind.metrics
        self.accumulators = {make: make(task, train).to(device) for make in {own.measure for own in self.metrics}}

    def update(self, output: Tensor, target: Tensor) -> None:
        """Add the labelled examples of one batch."""
        for accumulator in self.accumulators.values():
            accumulator.update(output.detach(), target)

    def compute(self) -> dict[str, float]:
        """Metric -> its value over all batches so far, of which there must be one."""
        values = {make: made.compute().reshape(-1).tolist() for make, made in self.accumulators.items()}
        return {metric.name: values[metric.measure][metric.part] for metric in self.metrics}
