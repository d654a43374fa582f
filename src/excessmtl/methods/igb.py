"""IGB: more weight on tasks whose loss is still far from zero, measured against an early epoch.

Dai et al., "Improvable Gap Balancing for Multi-Task Learning", UAI 2023, https://arxiv.org/abs/2307.15429, IGBv1. With
b_i the mean loss of task i in the second epoch:
    L = sum_i lambda_i log l_i,   lambda = m softmax(l / b),   so w_i = lambda_i / l_i
and lambda = 1 until b is known. The gap to be improved is that to a loss of zero, so a task with noisy labels, whose
loss cannot fall, keeps a large gap. IGBv2, which learns lambda by reinforcement learning, is not here.

Call `balancer.end_epoch()` after every epoch; if it is never called, every `window` steps count as one (also in the
first epoch of a loop that does call it). A task without a loss in that epoch counts as one that stands where it did.
A task that is missing from a batch is compared by its latest loss. The total is the method's own, so `scale="sum"` and
`"mean"` leave it as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from excessmtl.methods.base import Decision, Rule, State, method
from excessmtl.methods.loss_values import check_epochs
from excessmtl.methods.observation import Observation
from excessmtl.methods.since_epoch import SinceEpoch


@method("igb")
@dataclass(frozen=True)
class IGB(Rule):
    """More weight on tasks that have most left to improve."""

    simplex: ClassVar[bool] = False

    base_epoch: int = 1
    """The epoch that the losses are compared with, counted from 0."""
    window: int = 100
    """Steps that count as an epoch where `end_epoch` is never called."""

    def __post_init__(self) -> None:
        check_epochs(("base_epoch", "window"), (self.base_epoch, self.window), (0, 1))

    @property
    def _compared(self) -> SinceEpoch:
        return SinceEpoch(self.base_epoch, self.window)

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """The latest losses, and the sums of the epoch to compare with."""
        return self._compared.init(tasks)

    def prior(self, tasks: int) -> Tensor:
        """One each."""
        return torch.ones(tasks)

    def update(self, state: State, seen: Observation) -> Decision:
        """w_i = lambda_i / l_i, lambda = m softmax(l / b)."""
        return self._compared.decide(state, seen, lambda ratios: ratios)

    def end_epoch(self, state: State) -> State:
        """The next epoch."""
        return self._compared.end_epoch(state)
