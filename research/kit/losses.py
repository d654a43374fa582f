"""The losses of one task in all runs, by the library's loss modules: one module for each run."""

import torch
from torch import Tensor
from torch.nn import functional as F

from excessmtl.losses import RobustCrossEntropy, RobustMSELoss
from research.kit.configs import Config


class Losses:
    """Plain or robust losses, of classes or (no classes) of numbers."""

    def __init__(self, runs: int, config: Config, classes: int) -> None:
        self._classes = classes
        self._modules: list[RobustCrossEntropy] | list[RobustMSELoss] = []
        if config.robust and classes:
            self._modules = [RobustCrossEntropy(reduction="none", entropy=config.entropy) for _ in range(runs)]
        elif config.robust:
            self._modules = [RobustMSELoss(reduction="none") for _ in range(runs)]

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """[runs] mean losses from outputs [runs, batch, classes or 1] and targets [runs, batch]."""
        outputs = outputs if self._classes else outputs[..., 0]
        if self._modules:
            every = torch.ones_like(targets, dtype=torch.bool)
            # One call for all modules; each of them has its own estimate of the noise.
            entries, lesson = type(self._modules[0]).entries(self._modules, outputs, targets, every)  # type: ignore[arg-type]
            if lesson is not None:
                lesson.learn()
        elif self._classes:
            entries = F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
        else:
            entries = (outputs - targets).square()
        return entries.mean(-1)
