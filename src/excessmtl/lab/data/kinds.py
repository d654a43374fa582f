"""The kinds of task that come with the package: a loss, metrics with unit and direction, and label noise each.

All losses are means over the mini-batch, so that they do not grow with its size. `--loss` names the robust ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import Tensor, nn
from torch.nn import functional as F

from excessmtl import losses
from excessmtl.lab.data import metrics, noise
from excessmtl.lab.data.tasks import IGNORED, SHARE, Kind, Metric

Variants = Mapping[str, Callable[[], nn.Module]]


def masked_mean(values: Tensor, valid: Tensor) -> Tensor:
    """Mean of `values` where `valid`; zero, with zero gradient, where nothing is."""
    return values.where(valid, 0).sum() / valid.sum().clamp(min=1)


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Of class scores and class numbers."""
    return F.cross_entropy(output, target.long())


def binary_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Of one logit per example and a target of 0 or 1."""
    return F.binary_cross_entropy_with_logits(output, target.reshape_as(output).float())


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    """Averaged over the examples and the outputs of the task."""
    # One number per example may come as (n,) or (n, 1); their difference would broadcast to (n, n).
    return F.mse_loss(output, target.reshape_as(output))


def pixel_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Over the labelled pixels, whose label is not -1."""
    # Not cross_entropy's own mean: it is 0/0 where a batch has no labelled pixel.
    losses = F.cross_entropy(output, target.long(), ignore_index=IGNORED, reduction="none")
    return masked_mean(losses, target != IGNORED)


def depth_error(output: Tensor, target: Tensor) -> Tensor:
    """Absolute error over the pixels whose depth is known (not zero)."""
    target = target.reshape_as(output)
    return masked_mean((output - target).abs(), target != 0)


def cosine_distance(output: Tensor, target: Tensor) -> Tensor:
    """One minus the mean cosine over the pixels whose normal is known (not zero)."""
    return 1 - masked_mean(F.cosine_similarity(output, target, dim=1), (target != 0).any(dim=1))


class OfClasses(nn.Module):
    """A loss of class scores and class numbers, which may be stored in any type. Zero where nothing is labelled."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss
        """Of each label."""

    def target(self, output: Tensor, target: Tensor) -> Tensor:
        """The target as the loss takes it."""
        return target.long()

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean over the batch."""
        return masked_mean(self.loss(output, target.long()), target != IGNORED)


class OfNumbers(nn.Module):
    """A loss of numbers that may come as (n,) or (n, 1)."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss
        """Of each number."""

    def target(self, output: Tensor, target: Tensor) -> Tensor:
        """The target as the loss takes it."""
        return target.reshape_as(output).float()

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean over the batch."""
        values: Tensor = self.loss(output, self.target(output, target))
        return values.sum() / values.numel()


CLASSES: Variants = {
    "robust": lambda: OfClasses(losses.RobustCrossEntropy(ignore_index=IGNORED, reduction="none")),
    "gce": lambda: OfClasses(losses.GeneralizedCrossEntropy(ignore_index=IGNORED, reduction="none")),
    "symmetric": lambda: OfClasses(losses.SymmetricCrossEntropy(ignore_index=IGNORED, reduction="none")),
    "bootstrapped": lambda: OfClasses(losses.BootstrappedCrossEntropy(ignore_index=IGNORED, reduction="none")),
}
BITS: Variants = {"robust": lambda: OfNumbers(losses.RobustBCEWithLogits(reduction="none"))}
NUMBERS: Variants = {
    "robust": lambda: OfNumbers(losses.RobustMSELoss(reduction="none")),
    "huber": lambda: OfNumbers(nn.HuberLoss(reduction="none")),
    "general": lambda: OfNumbers(losses.GeneralRobustLoss(reduction="none")),
}

classification = Kind(
    cross_entropy, (Metric("accuracy", metrics.accuracy, SHARE, True),), "accuracy", noise.wrong_classes, CLASSES
)
binary = Kind(
    binary_cross_entropy,
    (Metric("accuracy", metrics.binary_accuracy, SHARE, True), Metric("roc_auc", metrics.roc_auc, SHARE, True)),
    "accuracy",
    noise.wrong_bits,
    BITS,
)
rare_binary = replace(binary, score="roc_auc")
"""For labels that are nearly all the same: always giving the frequent one has a high accuracy and ranks nothing."""
regression = Kind(squared_error, (Metric("nmse", metrics.nmse, "ratio", False),), "nmse", noise.gaussian, NUMBERS)


def regression_over(variance: float) -> Kind:
    """Regression whose squared error is divided by this variance, which several tasks may share."""
    return replace(regression, metrics=(Metric("nmse", metrics.error_over(variance), "ratio", False),))


segmentation = Kind(
    pixel_cross_entropy,
    (Metric("miou", metrics.confusion, SHARE, True, 0), Metric("pixel_accuracy", metrics.confusion, SHARE, True, 1)),
    "pixel_accuracy",
    noise.wrong_pixels,
    CLASSES,
)
depth = Kind(
    depth_error,
    (
        Metric("abs_error", metrics.depth_error, "m", False, 0),
        Metric("rel_error", metrics.depth_error, "ratio", False, 1),
    ),
    "rel_error",
    noise.wrong_depths,
)
normals = Kind(
    cosine_distance,
    (
        Metric("angle_mean", metrics.angle, "degrees", False, 0),
        Metric("angle_median", metrics.angle, "degrees", False, 1),
        Metric("within_11.25", metrics.angle, SHARE, True, 2),
        Metric("within_22.5", metrics.angle, SHARE, True, 3),
        Metric("within_30", metrics.angle, SHARE, True, 4),
    ),
    "within_11.25",
    noise.wrong_normals,
)

LABELS = {
    **dict.fromkeys((classification.loss, segmentation.loss), "classification"),
    **dict.fromkeys((regression.loss, depth.loss, normals.loss), "regression"),
    binary.loss: "binary",
}
"""Loss -> the kind of its labels, as `diagnose` calls it: benchmarks have metrics of their own for the ready kinds."""
