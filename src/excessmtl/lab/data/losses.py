"""The losses of the ready kinds, and the robust ones that `--loss` names.

All are means over the mini-batch, so that they do not grow with its size.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from excessmtl import losses
from excessmtl.lab.data.tasks import IGNORED

PLAIN = "plain"
LOSSES = (PLAIN, "robust", "gce", "symmetric", "bootstrapped", "huber", "general")
"""Their names on the command line."""
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

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean over the batch."""
        value: Tensor = self.loss(output, target.long())
        return torch.where((target != IGNORED).any(), value, 0 * output.sum())


class OfNumbers(nn.Module):
    """A loss of numbers that may come as (n,) or (n, 1)."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean over the batch."""
        value: Tensor = self.loss(output, target.reshape_as(output).float())
        return value


CLASSES: Variants = {
    "robust": lambda: OfClasses(losses.RobustCrossEntropy(ignore_index=IGNORED)),
    "gce": lambda: OfClasses(losses.GeneralizedCrossEntropy(ignore_index=IGNORED)),
    "symmetric": lambda: OfClasses(losses.SymmetricCrossEntropy(ignore_index=IGNORED)),
    "bootstrapped": lambda: OfClasses(losses.BootstrappedCrossEntropy(ignore_index=IGNORED)),
}
BITS: Variants = {"robust": lambda: OfNumbers(losses.RobustBCEWithLogits())}
NUMBERS: Variants = {
    "robust": lambda: OfNumbers(losses.RobustMSELoss()),
    "huber": lambda: OfNumbers(nn.HuberLoss()),
    "general": lambda: OfNumbers(losses.GeneralRobustLoss()),
}
