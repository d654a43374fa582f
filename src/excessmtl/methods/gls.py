"""The geometric loss strategy: train the geometric mean of the losses.

Chennupati et al., CVPR Workshops 2019, https://arxiv.org/abs/1904.08492:
    L = (prod_i l_i)^(1/m),   w_i = dL/dl_i = L / (m l_i)
computed as exp(mean log l_i): the product of many losses overflows. The step has the direction of `log_loss` and the
length of the losses. Losses must be positive; what is below 1e-8 counts as 1e-8. A task that is missing from a batch
stands in the mean with its latest loss. The total is the method's own, so `scale="sum"` and `"mean"` leave it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from excessmtl.methods.base import Decision, Rule, State, method
from excessmtl.methods.loss_values import latest, latest_state
from excessmtl.methods.observation import Observation


@method("gls")
@dataclass(frozen=True)
class GLS(Rule):
    """The geometric mean of the losses."""

    simplex: ClassVar[bool] = False

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """The latest loss of every task."""
        return latest_state(tasks)

    def prior(self, tasks: int) -> Tensor:
        """1/m each: the weights of equal losses."""
        return torch.full((tasks,), 1 / tasks)

    def update(self, state: State, seen: Observation) -> Decision:
        """w_i = L / (m l_i), over the tasks that have had a loss."""
        losses, known, state = latest(state, seen)
        count = known.sum().clamp(min=1)
        mean = torch.where(known, losses.log(), 0).sum() / count
        return Decision(torch.where(known, (mean - losses.log()).exp() / count, 0), state)
