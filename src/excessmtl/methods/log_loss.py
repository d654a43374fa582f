"""The sum of the logarithms of the losses: a step that does not depend on the scale of any loss.

The scale-invariant baseline of Dai et al., UAI 2023, https://arxiv.org/abs/2307.15429, Sec. 3 (SI), and others:
    L = sum_i log l_i,   w_i = dL/dl_i = 1 / l_i
Losses must be positive; what is below 1e-8 counts as 1e-8. The total is the method's own, so `scale="sum"` and `"mean"`
leave it as it is: with losses of 0.01 the step is that of a hundred times the sum.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from excessmtl.methods.base import Decision, Rule, State, method
from excessmtl.methods.loss_values import positive
from excessmtl.methods.observation import Observation


@method("log_loss")
@dataclass(frozen=True)
class LogLoss(Rule):
    """The sum of the logarithms of the losses."""

    simplex: ClassVar[bool] = False

    def prior(self, tasks: int) -> Tensor:
        """One each."""
        return torch.ones(tasks)

    def update(self, state: State, seen: Observation) -> Decision:
        """w_i = 1 / l_i."""
        return Decision(1 / positive(seen.losses), state)
