"""The losses that `--loss` names, for each of the ready kinds. Shapes and types are those of the plain losses."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from excessmtl import losses
from excessmtl.lab.data.losses import IGNORED

PLAIN = "plain"
LOSSES = (PLAIN, "robust", "gce", "symmetric", "bootstrapped", "huber", "general")
"""Their names on the command line."""
Variants = Mapping[str, Callable[[], nn.Module]]


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
